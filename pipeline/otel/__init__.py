"""The export of a job's metrics by OpenTelemetry's protocol (OTLP over HTTP), which is an option."""
