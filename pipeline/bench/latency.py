"""How long records take from a producer through a job to a consumer, at several rates, with both guarantees."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from pipeline.bench.arrivals import Delays
from pipeline.bench.errors import BenchFailed
from pipeline.bench.helpers import Helper
from pipeline.bench.input import RECORD_BYTES
from pipeline.bench.jobs import Job, JobKind
from pipeline.bench.open_loop import Sent
from pipeline.bench.percentiles import percentile
from pipeline.bench.report import Figure, figure
from pipeline.bench.topics import topics
from pipeline.bench.watch import is_over
from pipeline.handle import JobHandle
from sinks.kafka.clients import Delivery

_PARTITIONS: Final = 4
_START_TIMEOUT_S: Final = 120.0
_LEAD_S: Final = 0.2
"""From telling the producer to its first record."""
_BEHIND_S: Final = 0.05
"""A producer that is later than this at the 99th percentile is said to have fallen behind."""


@dataclass(frozen=True)
class Stage:
    """One rate under one guarantee."""

    delivery: Delivery
    rate: float
    """Records/s that were due."""
    delays: Delays
    sent: Sent
    checkpoints: tuple[float | None, float | None] = (None, None)
    """How long they took meanwhile, in seconds: p50 and p95; `None` if there were none."""

    @property
    def behind(self) -> bool:
        """The producer itself could not keep the rate, so the delays say little about the job."""
        return self.sent.late_p99 > _BEHIND_S


@dataclass(frozen=True)
class LatencyOptions:
    rates: tuple[float, ...] = (1_000.0, 10_000.0, 50_000.0)
    """Records/s."""
    seconds: float = 20.0
    """Of each rate, without the warm-up."""
    warm_up: float = 5.0
    interval: float = 1.0
    """Seconds between checkpoints."""
    job: JobKind = "sum"
    parallelism: int = 2
    deliveries: tuple[Delivery, ...] = ("at_least_once", "exactly_once")
    service: float = 0.01
    """As `Job` has them."""
    capacity: int = 100


@dataclass(frozen=True)
class Latency:
    options: LatencyOptions
    stages: list[Stage] = field(default_factory=list)

    def stage(self, delivery: Delivery, rate: float) -> Stage | None:
        return next((one for one in self.stages if (one.delivery, one.rate) == (delivery, rate)), None)

    def settings(self) -> dict[str, Any]:
        return {**asdict(self.options), "record_bytes": RECORD_BYTES, "partitions": _PARTITIONS}

    def figures(self) -> list[Figure | None]:
        return [
            figure(f"{stage.delivery.replace('_', ' ')}, {stage.rate:g} records/s, {what}", value, "s", "lower")
            for stage in self.stages
            for what, value in (
                ("p50", stage.delays.p50),
                ("p99", stage.delays.p99),
                ("max", stage.delays.max),
            )
        ]

    def fields(self) -> dict[str, Any]:
        return {"stages": [{**asdict(stage), "producer_behind": stage.behind} for stage in self.stages]}


def measure(servers: str, options: LatencyOptions, say: Callable[[str], None]) -> Latency:
    """
    Raises:
        BenchFailed: the job has failed, or records are missing.
        TopicTrouble: the broker doesn't do what is needed.
    """
    measured = Latency(options)
    for delivery in options.deliveries:
        name = f"weir-bench-{uuid.uuid4().hex[:8]}"
        source, target = f"{name}-in", f"{name}-out"
        with (
            topics(servers, dict.fromkeys((source, target), _PARTITIONS)),
            tempfile.TemporaryDirectory(prefix="weir-bench-") as folder,
        ):
            job = Job(
                options.job,
                options.parallelism,
                options.interval,
                delivery,
                ends=False,
                service=options.service,
                capacity=options.capacity,
            )
            say(f"{delivery.replace('_', ' ')}: starting")
            handle = job.pipeline(name, servers, source, target, folder).start(restore="none")
            try:
                _await_running(handle)
                for rate in options.rates:
                    before = max((row.id for row in handle.checkpoints()), default=0)
                    stage = _stage(servers, source, target, delivery, rate, options)
                    _check(handle)
                    stage = replace(stage, checkpoints=_durations(handle, before))
                    measured.stages.append(stage)
                    say(
                        f"{delivery.replace('_', ' ')}, {rate:,g} records/s: p50 {stage.delays.p50 * 1e3:.1f} ms, "
                        f"p99 {stage.delays.p99 * 1e3:.1f} ms"
                    )
            finally:
                handle.cancel()
    return measured


def _stage(servers: str, source: str, target: str, delivery: Delivery, rate: float, options: LatencyOptions) -> Stage:
    count = int(rate * (options.warm_up + options.seconds))
    patience = 10 + 3 * options.interval
    with (
        Helper("pipeline.bench.open_loop", servers, source, rate, count) as sender,
        Helper("pipeline.bench.arrivals", servers, target, count, options.warm_up, patience) as receiver,
    ):
        sender.line()
        receiver.line()
        begin = time.monotonic_ns() + int(_LEAD_S * 1e9)
        sender.tell(begin)
        receiver.tell(begin)
        sent, received = Sent(**sender.line()), receiver.line()
    if received["received"] != count or received["delays"] is None:
        raise BenchFailed(f"{received['received']} records came out of {count}")
    return Stage(delivery, rate, Delays(**received["delays"]), sent)


def _durations(handle: JobHandle, before: int) -> tuple[float | None, float | None]:
    took = [row.duration for row in handle.checkpoints() if row.id > before and row.duration is not None]
    return percentile(took, 0.5), percentile(took, 0.95)


def _await_running(handle: JobHandle) -> None:
    until = time.monotonic() + _START_TIMEOUT_S
    while handle.running_since is None:
        _check(handle)
        if time.monotonic() > until:
            raise BenchFailed(f"the job doesn't run after {_START_TIMEOUT_S:g} s")
        time.sleep(0.05)


def _check(handle: JobHandle) -> None:
    if handle.restarts or is_over(handle):
        raise BenchFailed(f"the job {handle.status} after {handle.restarts} restarts: {handle.failure}")
