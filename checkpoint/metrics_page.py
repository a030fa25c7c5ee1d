"""docs/metrics.md, made from the lists of metrics."""

from __future__ import annotations

from typing import Final

from checkpoint.job_metrics import JOB_METRICS
from checkpoint.metric_names import prometheus_name
from checkpoint.metrics import METRICS

_HEAD: Final = """\
# Metrics

`handle.metrics()` gives them by subtask, as they were reported last (twice a second), with totals
of the counters; `weir metrics JOB` and `weir metrics JOB --json` print them, and `weir status JOB` has
rates, lag and what is busy by vertex. The [web server](http.md) gives them to Prometheus at `/metrics`, and
[OpenTelemetry](#opentelemetry) gets the same by option.
This page is made from `checkpoint/metrics.py` and `checkpoint/job_metrics.py`.

## Of each subtask

In Prometheus they have the labels `job` (the pipeline's name), `step` (the vertex' name) and `subtask` (its number);
units are seconds, bytes, and shares from 0 to 1. Counters begin at 0 with each attempt. Metrics without a name there
are left out: Prometheus makes rates from counters, and words such as the last failure may come from records.

| name | kind | unit | meaning | in Prometheus |
|---|---|---|---|---|
"""
_JOB: Final = """
## Of the job

Only in Prometheus, each with the label `job`. Prometheus gives a target a label `job` of its own: `honor_labels: true`
keeps Weir's ([web server](http.md#prometheus)).

| name | kind | labels | meaning |
|---|---|---|---|
"""

_OTEL: Final = """
## OpenTelemetry

    pip install 'weir-streams[otel]'                     # on the driver
    export OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318
    weir run --otel orders.py                            # or start(otel=True), or WEIR_OTEL=true

The driver sends all that Prometheus would get, by OTLP over HTTP (protobuf): at the start, every 60 s and at the end.
Names, values and labels (as attributes) are the same, but that `job` is the attribute `pipeline`: a collector that
hands metrics on to Prometheus makes a label `job` of `service.name`, which is the pipeline's name, too. Units are `s`,
`By`, `1` for shares, and what is counted, as in `{records}`. Counters are cumulative sums; those of subtasks begin
anew, with a new start time, with each attempt. A metric that has no value now is left out. Nothing is sent without the
option, and nothing but these metrics.
OpenTelemetry's own variables say where and how:

- `OTEL_EXPORTER_OTLP_ENDPOINT`: the receiver, by default `http://localhost:4318`; `/v1/metrics` is added to it.
  `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` is the whole address.
- `OTEL_EXPORTER_OTLP_HEADERS`, such as `authorization=Bearer%20TOKEN`; likewise `…_CERTIFICATE`,
  `…_CLIENT_CERTIFICATE`, `…_CLIENT_KEY`, `…_COMPRESSION` and `…_TIMEOUT` (10 s).
- `OTEL_METRIC_EXPORT_INTERVAL`: milliseconds, at least 100; by default 60000.
- `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`: the resource. `service.name` is the pipeline's name by default.
- `OTEL_SDK_DISABLED=true`: nothing is sent, which the log says.

Another protocol than `http/protobuf`, or counters as deltas (`OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE`), are
refused at the start. One thread of the driver looks at the job once a second, as the web server does, and sends. The
job never waits for it: a receiver that is down, or refuses, is said once in the log, and in `weir status`, REST and
the page for as long as it lasts. The thread ends with the job; the last values may hold that end for two seconds, and
not at all where the receiver is known to be down.
"""


def as_markdown() -> str:
    """The page."""
    rows = []
    for m in METRICS:
        name = prometheus_name(m)
        rows.append(f"| `{m.name}` | {m.kind} | {m.unit} | {m.help} | {'' if name is None else f'`{name}`'} |")
    job = [f"| `{m.name}` | {m.kind} | {', '.join(m.labels)} | {m.help} |" for m in JOB_METRICS]
    return _HEAD + "\n".join(rows) + "\n" + _JOB + "\n".join(job) + "\n" + _OTEL
