"""Fixtures of the tests of OpenTelemetry's export."""

from no_otel_variables import no_otel_variables

__all__ = ["no_otel_variables"]
