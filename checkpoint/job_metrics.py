"""Metrics of a whole job, by the names that Prometheus has for them; those of subtasks are in `metrics.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class JobMetric:
    name: str
    kind: Literal["counter", "gauge"]
    labels: tuple[str, ...]
    """Beside `job`."""
    help: str
    counted: str = ""
    """What it counts; other units are at the end of the name."""


def _checkpoint(name: str, meaning: str, counted: str = "") -> JobMetric:
    meaning = f"Of the newest completed checkpoint: {meaning}"
    return JobMetric(f"weir_last_checkpoint_{name}", "gauge", (), meaning, counted)


JOB_METRICS: Final[tuple[JobMetric, ...]] = (
    JobMetric("weir_job_status", "gauge", ("status",), "1 for what the job is (`handle.status`), 0 for all else."),
    JobMetric("weir_job_start_timestamp_seconds", "gauge", (), "When the job was started, since 1970."),
    JobMetric("weir_job_running_seconds", "gauge", (), "How long all subtasks of this attempt have run; none before."),
    JobMetric("weir_job_ready", "gauge", (), "1 if the job is up and moving, as /readyz says, else 0."),
    JobMetric("weir_job_restarts_total", "counter", (), "Restarts after failures.", "restarts"),
    JobMetric(
        "weir_autoscale_rescales_total",
        "counter",
        ("outcome",),
        "Rescales that the job has begun by itself, `rescaled` or `failed`; none without the option `autoscale`.",
        "rescales",
    ),
    JobMetric(
        "weir_autoscale_refusals_total",
        "counter",
        ("reason",),
        "How often `autoscale` has begun not to follow advice on parallelism, by reason: `bounds`, `slots`, "
        "`own_parallelism`, `plan`, `like_rate`, `no_gain`, `failed` or `checkpoint`; none without that option.",
        "refusals",
    ),
    JobMetric("weir_job_start_phase_seconds", "gauge", ("phase",), "How long each phase of this attempt's start took."),
    JobMetric("weir_checkpoints_completed_total", "counter", (), "Checkpoints that were completed.", "checkpoints"),
    JobMetric("weir_checkpoints_failed_total", "counter", (), "Checkpoints that failed.", "checkpoints"),
    JobMetric("weir_checkpoint_in_progress_seconds", "gauge", (), "Age of the oldest checkpoint in progress, 0: none."),
    _checkpoint("timestamp_seconds", "when it was triggered, since 1970."),
    _checkpoint("duration_seconds", "from the trigger to durable _metadata."),
    _checkpoint("start_delay_seconds", "from the trigger to a subtask's snapshot, the largest."),
    _checkpoint("alignment_seconds", "from a subtask's first barrier to its last, the largest."),
    _checkpoint("sync_seconds", "how long a task thread was held, the largest."),
    _checkpoint("async_seconds", "how long a subtask wrote beside it, the largest."),
    _checkpoint("finalise_seconds", "from the last acknowledgement to durable _metadata."),
    _checkpoint("commit_seconds", "from durable _metadata to the commit by every sink; none before."),
    _checkpoint("size_bytes", "all its files."),
    _checkpoint("written_bytes", "the files that are new with it."),
    _checkpoint("in_flight_bytes", "what was in flight and is part of it."),
    _checkpoint("in_flight_records", "the same in records.", "records"),
    _checkpoint("span_records", "the most that a source has emitted since the barrier before.", "records"),
    JobMetric(
        "weir_waits_since_timestamp_seconds",
        "gauge",
        ("on",),
        "Since when the job has waited for `brokers`, brokers that refuse its `credentials`, `slots`, `processes`, a "
        "`subtask` that takes long, `event_time`, answers to `requests`, the `rate` that a step is limited to, or "
        "`other`, since 1970; none while it doesn't.",
    ),
)
