"""A job's metrics as they are declared, with what they are now: what Prometheus and OpenTelemetry get. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.job_metrics import JOB_METRICS, JobMetric
from checkpoint.metric_names import otel_unit, prometheus_name, prometheus_value
from checkpoint.metrics import METRICS, Metric
from pipeline.runtime.driver.status.job_statuses import STATUSES

_PARTS: Final = {
    "timestamp_seconds": "trigger_time",
    "duration_seconds": "duration",
    "start_delay_seconds": "start_delay",
    "alignment_seconds": "alignment",
    "sync_seconds": "sync",
    "async_seconds": "async_",
    "finalise_seconds": "finalise",
    "commit_seconds": "commit",
    "size_bytes": "size",
    "written_bytes": "written",
    "in_flight_bytes": "in_flight_bytes",
    "in_flight_records": "in_flight_records",
    "span_records": "span_records",
}
"""Of a checkpoint, by the end of the metric's name."""

_NUMBERS: Final = re.compile(r"\d+(?:[,.] ?\d+)*")
"""A label must not have ever other values."""

Sample = tuple[tuple[str, ...], float | None]
"""Values of its labels, and its own; `None` = there is none now."""


@dataclass(frozen=True)
class Family:
    """A metric with its samples, of which no two have the same labels."""

    name: str
    """Prometheus'."""
    kind: Literal["counter", "gauge"]
    help: str
    unit: str
    """OpenTelemetry's."""
    of_attempt: bool
    """Counters begin at 0 with each attempt; otherwise with the job."""
    labels: tuple[str, ...]
    samples: tuple[tuple[tuple[str, ...], float], ...]
    """Values of its labels, and its own."""


def families(status: Mapping[str, Any], ready: bool, last: Mapping[str, Any] | None, now: float) -> Iterator[Family]:
    """All that are declared.

    Args:
        status: a job's, as `WatchedJob` has it.
        last: the newest completed checkpoint.
        now: in seconds since 1970.
    """
    yield from _of_subtasks(status)
    yield from _of_job(status, ready, last, now)


def _there(samples: Iterable[Sample]) -> tuple[tuple[tuple[str, ...], float], ...]:
    return tuple((labels, float(value)) for labels, value in samples if value is not None)


# -- subtasks ---------------------------------------------------------------------------------------------------


def _of_subtasks(status: Mapping[str, Any]) -> Iterator[Family]:
    for metric in METRICS:
        name = prometheus_name(metric)
        if name is None:
            continue
        extra = {"text": ("reason",), "by split": ("topic", "partition")}.get(metric.kind, ())
        samples = [
            ((status["name"], *_place(subtask), *more), value)
            for subtask, values in status["subtasks"].items()
            for more, value in _values(metric, values.get(metric.name))
        ]
        kind: Literal["counter", "gauge"] = "counter" if metric.kind == "counter" else "gauge"
        labels = ("job", "step", "subtask", *extra)
        yield Family(name, kind, metric.help, otel_unit(name, metric.unit), True, labels, _there(samples))


def _place(subtask: str) -> tuple[str, str]:
    """`totals[1]` is subtask 1 of the step `totals`."""
    step, _, number = subtask.rpartition("[")
    return step, number.rstrip("]")


def _values(metric: Metric, value: Any) -> Iterable[Sample]:
    if value is None:
        return
    if metric.kind == "text":
        yield (_NUMBERS.sub("N", str(value)),), 1.0
    elif metric.kind == "by split":
        for split, one in value.items():
            yield _place(split), prometheus_value(metric, one)
    elif metric.name == "watermark" and value == MAX_WATERMARK:
        yield (), float("inf")
    else:
        yield (), prometheus_value(metric, value)


# -- the job ----------------------------------------------------------------------------------------------------


def _of_job(status: Mapping[str, Any], ready: bool, last: Mapping[str, Any] | None, now: float) -> Iterator[Family]:
    for metric in JOB_METRICS:
        samples = [((status["name"], *more), value) for more, value in _job_samples(metric, status, ready, last, now)]
        unit, labels = otel_unit(metric.name, metric.counted), ("job", *metric.labels)
        yield Family(metric.name, metric.kind, metric.help, unit, False, labels, _there(samples))


def _job_samples(
    metric: JobMetric, status: Mapping[str, Any], ready: bool, last: Mapping[str, Any] | None, now: float
) -> Iterable[Sample]:
    match metric.name.removeprefix("weir_"):
        case "job_status":
            return [((one,), float(one == status["status"])) for one in STATUSES]
        case "job_start_timestamp_seconds":
            return [((), status["started"])]
        case "job_running_seconds":
            return [((), status["running_for"])]
        case "job_ready":
            return [((), float(ready))]
        case "job_restarts_total":
            return [((), status["restarts"])]
        case "autoscale_rescales_total":
            return _by_label(status["autoscale"], "rescales")
        case "autoscale_refusals_total":
            return _by_label(status["autoscale"], "refusals")
        case "job_start_phase_seconds":
            return [((phase,), seconds) for phase, seconds in status["start"].items()]
        case "checkpoints_completed_total":
            return [((), status["checkpoints_completed"])]
        case "checkpoints_failed_total":
            return [((), status["checkpoints_failed"])]
        case "checkpoint_in_progress_seconds":
            begun = [row["trigger_time"] for row in status["checkpoints"] if row["status"] == "in_progress"]
            return [((), max(0.0, now - min(begun)) if begun else 0.0)]
        case "waits_since_timestamp_seconds":
            since: dict[str, float] = {}
            for wait in status["waits"]:
                since[wait["kind"]] = min(wait["since"], since.get(wait["kind"], wait["since"]))
            return [((kind,), at) for kind, at in since.items()]
        case part:
            return [] if last is None else [((), last[_PARTS[part.removeprefix("last_checkpoint_")]])]


def _by_label(autoscale: Mapping[str, Any] | None, name: str) -> Iterable[Sample]:
    return [] if autoscale is None else [((label,), count) for label, count in autoscale[name].items()]
