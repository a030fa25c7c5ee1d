"""What a run gives, and what it comes to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from checkpoint.coordination.coordinator import JOB_ENDING
from pipeline.bench.backpressure.full_speed import Return
from pipeline.bench.backpressure.rates import rates
from pipeline.bench.backpressure.variants import Settings, Variant
from pipeline.bench.percentiles import percentile
from pipeline.bench.report import Figure, figure
from pipeline.runtime.driver.status.checkpoint_stats import ATTEMPT_ENDED, CheckpointStats


@dataclass(frozen=True)
class Sample:
    """The job at one moment. Counters begin with the job."""

    at: float
    """Seconds since all subtasks run."""
    fetched: int
    """Records that the source subtasks have emitted."""
    processed: int
    """Records that the operator subtasks have done."""
    in_flight_bytes: int
    """In all queues between them."""
    gate_closed_ms: float
    """How long the gate of the source subtask that was closed longest was closed."""
    resident_bytes: int
    """Memory of driver, JVM and workers together."""
    window: int | None = None
    """Records, of the source subtask with the largest; `None`: none has one."""


@dataclass(frozen=True)
class Checkpoint:
    at: float
    """Seconds from the moment that all subtasks ran to the trigger."""
    age: float
    """Its duration, or how long it had taken when the run ended."""
    stats: CheckpointStats

    @property
    def outcome(self) -> Literal["completed", "failed", "subsumed", "in_progress"]:
        """One that the end of a failing job cut short has not failed on its own account."""
        return "in_progress" if self.stats.failure in (JOB_ENDING, ATTEMPT_ENDED) else self.stats.status


@dataclass(frozen=True)
class Spread:
    """Values of several checkpoints; `None` without checkpoints."""

    p50: float | None
    p95: float | None
    max: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(percentile(values, 0.5), percentile(values, 0.95), max(values, default=None))


@dataclass(frozen=True)
class Summary:
    """Figures of one run. Checkpoints triggered during the warm-up are counted, but in no spread. Durations are
    seconds unless named otherwise, sizes bytes."""

    completed: int
    failed: int
    in_progress: int
    """When the run ended."""
    oldest_in_progress: float | None
    """How long the oldest of them had taken."""
    unaligned: int
    """Completed checkpoints whose barrier overtook data somewhere."""
    duration: Spread
    start_delay: Spread
    """From the trigger to the last subtask's snapshot."""
    span_records: Spread
    """Emitted between two barriers, by the source subtask that emitted most; failed checkpoints included."""
    span_bytes: Spread
    in_flight_records: Spread
    """Stored in the checkpoint as records in flight."""
    in_flight_bytes: Spread
    size: Spread
    """All that a checkpoint wrote or refers to."""
    records_per_s: float | None
    """Through the operators, after the warm-up."""
    fetched_per_s_max: float | None
    """The most that the source gave in any second."""
    queued_bytes_max: int
    """The most in queues at any sample."""
    gate_closed: float
    """Part of the run that the gate was closed, of the source subtask where it was longest."""
    window_end: int | None
    """Records at the end, of the source subtask with the largest window; `None` without a window."""
    window_max: int | None
    """The largest at any sample."""


@dataclass(frozen=True)
class Cost:
    """What a run took of the machine. Peaks of resident memory are bytes; those of workers the largest worker's."""

    driver_bytes: int
    jvm_bytes: int
    worker_bytes: int
    total_bytes: int
    """Memory of all processes at one time; pages shared between workers count for each."""
    jvm_gc_ms: float
    """Time of garbage collection in the driver's JVM, while the run was watched."""
    driver_gc_ms: float
    """Time of garbage collection in the driver's Python."""
    workers_gc_ms: float
    """Time of garbage collection in all workers' Pythons together."""


@dataclass(frozen=True)
class Window:
    """The window of one source subtask when the run ended."""

    subtask: str
    records: int | None
    change: str | None
    """The last one and its reason."""


@dataclass(frozen=True)
class Run:
    variant: Variant
    seconds: float
    """How long it was watched, from the moment that all subtasks ran."""
    failure: str | None
    """Why the job failed meanwhile; `None` if it ran to the end."""
    summary: Summary
    cost: Cost
    checkpoints: tuple[Checkpoint, ...]
    samples: tuple[Sample, ...]
    round: int = 1
    """How often it had been run, with this one."""
    windows: tuple[Window, ...] = ()
    """Windows of all source subtasks that have one."""
    returns: tuple[Return, ...] = ()
    """In the order of time."""

    @property
    def name(self) -> str:
        """The variant's; with the number of a later round."""
        return self.variant.name if self.round == 1 else f"{self.variant.name} #{self.round}"


@dataclass(frozen=True)
class Result:
    settings: Settings
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Reported:
    """A result, for the report that all measurements share."""

    result: Result

    def settings(self) -> dict[str, Any]:
        return asdict(self.result.settings)

    def figures(self) -> list[Figure | None]:
        return [
            figure(f"{run.name}, {what}", value, unit, "higher" if unit == "records/s" else "lower")
            for run in self.result.runs
            for what, value, unit in (
                ("checkpoint p50", run.summary.duration.p50, "s"),
                ("checkpoint p95", run.summary.duration.p95, "s"),
                ("checkpoint max", run.summary.duration.max, "s"),
                ("start delay p50", run.summary.start_delay.p50, "s"),
                ("in flight p50", run.summary.in_flight_bytes.p50, "bytes"),
                ("failed checkpoints", run.summary.failed, ""),
                ("throughput", run.summary.records_per_s, "records/s"),
                ("memory", run.cost.total_bytes, "bytes"),
            )
        ]

    def fields(self) -> dict[str, Any]:
        return {"runs": [asdict(run) for run in self.result.runs]}


def summarise(checkpoints: Sequence[Checkpoint], samples: Sequence[Sample], warm_up: float) -> Summary:
    counted = [one for one in checkpoints if one.at >= warm_up]
    done = [one for one in counted if one.outcome == "completed"]
    pending = [one.age for one in checkpoints if one.outcome == "in_progress"]
    spans = [one.stats for one in counted if one.stats.subtasks]
    peaks = [rate for _, rate in rates([(sample.at, sample.fetched) for sample in samples])]
    return Summary(
        completed=sum(one.outcome == "completed" for one in checkpoints),
        failed=sum(one.outcome == "failed" for one in checkpoints),
        in_progress=len(pending),
        oldest_in_progress=max(pending, default=None),
        unaligned=sum(one.outcome == "completed" and one.stats.unaligned for one in checkpoints),
        duration=Spread.of([one.age for one in done]),
        start_delay=Spread.of([one.stats.start_delay for one in done]),
        span_records=Spread.of([stats.span_records for stats in spans]),
        span_bytes=Spread.of([stats.span_bytes for stats in spans]),
        in_flight_records=Spread.of([one.stats.in_flight_records for one in done]),
        in_flight_bytes=Spread.of([one.stats.in_flight_bytes for one in done]),
        size=Spread.of([one.stats.size for one in done]),
        records_per_s=_throughput(samples, warm_up),
        fetched_per_s_max=max(peaks, default=None),
        queued_bytes_max=max((sample.in_flight_bytes for sample in samples), default=0),
        gate_closed=_gate_closed(samples),
        window_end=samples[-1].window if samples else None,
        window_max=max((sample.window for sample in samples if sample.window is not None), default=None),
    )


def _throughput(samples: Sequence[Sample], warm_up: float) -> float | None:
    after = [sample for sample in samples if sample.at >= warm_up]
    if len(after) < 2:
        return None
    first, last = after[0], after[-1]
    return (last.processed - first.processed) / (last.at - first.at)


def _gate_closed(samples: Sequence[Sample]) -> float:
    if not samples or samples[-1].at <= 0:
        return 0.0
    return min(1.0, samples[-1].gate_closed_ms / 1000 / samples[-1].at)
