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
rates, lag and what is busy by vertex. The [web server](http.md) gives them to Prometheus at `/metrics`.
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


def as_markdown() -> str:
    """The page."""
    rows = []
    for m in METRICS:
        name = prometheus_name(m)
        rows.append(f"| `{m.name}` | {m.kind} | {m.unit} | {m.help} | {'' if name is None else f'`{name}`'} |")
    job = [f"| `{m.name}` | {m.kind} | {', '.join(m.labels)} | {m.help} |" for m in JOB_METRICS]
    return _HEAD + "\n".join(rows) + "\n" + _JOB + "\n".join(job) + "\n"
