"""A job, Kafka to Kafka, that is struck again and again: each time a worker is killed at one step of the source, the
sink or the commit, and what a reader finds must be exact before the next one comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest
from deadlines import PATIENCE, eventually
from kafka_job import EXACT, Findings, Record, Stage, count_open, judge, record
from kafka_reader import CommittedReader

from pipeline import JobFailed, JobHandle, RestartStrategy
from pipeline.testing import failpoints
from pipeline.testing.failpoints import Armed

FEED: Final = 80
"""Records that are written at once while a step is waited for."""
SPAN: Final = 100
"""`max_span_records`, of each subtask."""
TRANSACTION: Final = 2048
"""`max_transaction_bytes`: about 15 records, so that every epoch has several segments and transactions."""
REPORTED: Final = 0.5
"""Seconds between two reports of a subtask's metrics."""


@dataclass(frozen=True)
class Step:
    """How a worker comes to a failpoint and is killed there."""

    name: str
    nth: int = 2
    """Over all subtasks, so that as a rule one of them is past it and another is not."""
    at_start: bool = False
    """It is reached by starting only: another crash, in the middle of a commit, comes first."""
    fails_at: str | None = None
    """It is reached behind a failure at this failpoint."""
    burst: int = 0
    """Records that are written at once, to begin with."""
    new_partition: bool = False
    """It is reached once the input has another partition."""

    def __str__(self) -> str:
        return self.name


@dataclass
class _Trap:
    step: Armed
    first: Armed | None
    """What brings the job there."""

    def wake(self) -> None:
        self.step.wake()
        if self.first is not None:
            self.first.wake()

    @property
    def sprung(self) -> bool:
        return self.step.fired and (self.first is None or self.first.fired)


@dataclass
class StruckJob:
    """Runs without end of its input. With two checkpoints at a time each of them lasts for longer than the interval."""

    stage: Stage
    spark: Any
    steps: tuple[Step, ...]
    max_concurrent: int = 1
    delivery: str = "exactly_once"
    parallelism: int = 0
    """Parallelism of the running attempt; 0 before the first start."""
    _handle: JobHandle | None = None
    _traps: dict[str, _Trap] = field(default_factory=dict)
    _next_feed: float = 0.0
    """When more input may be written: a reading of the clock."""

    def __post_init__(self) -> None:
        self._reader = CommittedReader(self.stage.broker, self.stage.out_topic)

    @property
    def handle(self) -> JobHandle:
        assert self._handle is not None
        return self._handle

    def start(self, parallelism: int, restarts: bool, crash_at: Step | None = None) -> None:
        """Start, or again, at this parallelism, with every step ready to strike once; `crash_at` does so at once."""
        failpoints.clear()
        self._traps = {step.name: self._set(step) for step in self.steps}
        if crash_at is not None:
            self._traps[crash_at.name].step.wake()
        options: dict[str, Any] = {"max_concurrent": self.max_concurrent, "interval": 0.2}
        if self.max_concurrent > 1:
            options["interval"] = 0.1
            failpoints.stall("snapshot.async_write", 0.15, subtask=0, times=1_000_000)
        job = self.stage.pipeline(
            source=self.stage.source(
                end=None,
                rate_limit=None,
                group_id=f"{self.stage.name}-group",
                max_span_records=SPAN,
                discovery_interval=0.2,
            ),
            sink=self.stage.sink(
                **{"delivery": self.delivery, "max_transaction_bytes": TRANSACTION}
                if self.delivery == "exactly_once"
                else {"delivery": self.delivery}
            ),
            parallelism=parallelism,
            restart=RestartStrategy.fixed_delay(attempts=1000, delay=0.05) if restarts else RestartStrategy.none(),
            **options,
        )
        self._handle = job.start(spark=self.spark)
        self.parallelism = parallelism

    def strike(self, step: Step) -> None:
        """Kill a worker at the step, and return when the job runs again."""
        before, trap = self.handle.restarts, self._traps[step.name]
        trap.wake()
        self._feed_until(step, lambda: trap.sprung)
        crashes = 2 if step.at_start else 1
        eventually(lambda: self.handle.restarts == before + crashes)

    def strike_and_rescale(self, step: Step, parallelism: int) -> None:
        """Kill a worker at the step, which ends the job, and start it at another parallelism. A step that is reached by
        starting is that of a start at the other parallelism, which therefore fails once."""
        trap = self._traps[step.name]
        if step.at_start:
            assert trap.first is not None
            trap.first.wake()
            self._feed_until(step, lambda: trap.first is not None and trap.first.fired)
            self._await_failure()
            self.start(parallelism, restarts=False, crash_at=step)
            trap = self._traps[step.name]
        else:
            trap.wake()
            self._feed_until(step, lambda: trap.sprung)
        self._await_failure()
        assert trap.step.fired
        self.start(parallelism, restarts=False)

    def findings(self) -> Findings:
        """What a reader that has been there from the start has found once everything is out, or after a long while."""
        stage, reader, deadline = self.stage, self._reader, time.monotonic() + PATIENCE
        exact, wanted = self.delivery == "exactly_once", len(self.stage.inputs)
        while True:
            reader.read(wanted, deadline - time.monotonic())
            found = judge(reader.records, stage.inputs, 0)
            if exact or not found.lost or time.monotonic() > deadline:
                break
            wanted = len(reader.records) + found.lost
        while (count := count_open(stage.broker, stage.out_topic)) and time.monotonic() < deadline:
            pass
        return replace(found, open_transactions=count)

    def stop(self) -> None:
        self.handle.stop(timeout=PATIENCE)

    def discard(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._reader.close()
        failpoints.clear()

    # -- inside -----------------------------------------------------------------------------------------------------

    def _set(self, step: Step) -> _Trap:
        first: Armed | None = None
        if step.at_start:
            first = failpoints.crash("committer.after_send_offsets", nth=2, asleep=True)
        elif step.fails_at is not None:
            first = failpoints.fail(step.fails_at, asleep=True)
        return _Trap(failpoints.crash(step.name, nth=step.nth, asleep=True), first)

    def _feed_until(self, step: Step, condition: Callable[[], bool]) -> None:
        if step.new_partition:
            self._await_readers()
            self._add_partition()

        def fed() -> bool:
            if condition():
                return True
            assert self.handle.status != "failed" or condition(), self.handle.failure
            # Again and again: a checkpoint may be so quick that one burst closes no gate. But no more than the job
            # keeps up with, or it would have nothing else to do for minutes.
            if time.monotonic() >= self._next_feed and self._lag < max(FEED, step.burst):
                self.stage.produce(max(FEED, step.burst))
                self._next_feed = time.monotonic() + REPORTED
            return condition()

        eventually(fed)

    @property
    def _lag(self) -> int:
        """Records that sources have yet to read, as they reported last."""
        return sum(values.get("recordsLag") or 0 for values in self.handle.metrics()["subtasks"].values())

    def _await_readers(self) -> None:
        """A reader that the restart from the last crash makes afterwards would have the partition to begin with."""
        self.stage.produce(FEED)
        assert self.findings().lost == 0

    def _add_partition(self) -> None:
        """With records of a key that is only there."""
        broker, topic = self.stage.broker, self.stage.source_topic
        number = len(broker.end_offsets(topic))
        broker.add_partitions(topic, number + 1)
        first = self.stage.inputs[-1]["id"] + 1
        more: list[Record] = [{**record(id), "key": f"partition-{number}"} for id in range(first, first + FEED)]
        broker.produce(topic, more, key=lambda r: r["key"], partition=number)
        self.stage.inputs += more

    def _await_failure(self) -> None:
        with pytest.raises(JobFailed):
            self.handle.wait(PATIENCE)


class Jobs:
    """The job that the rows of a table share, one at a time. A row that fails takes it down."""

    def __init__(self, make: Callable[..., StruckJob]) -> None:
        self._make = make
        self._kind: tuple[Any, ...] = ()
        self._job: StruckJob | None = None

    @contextmanager
    def running(self, parallelism: int, restarts: bool, **kind: Any) -> Iterator[StruckJob]:
        """A running job of this kind at this parallelism.

        Args:
            restarts: whether it restarts by itself.
            kind: options of `StruckJob`.
        """
        wanted = (restarts, *sorted(kind.items()))
        if self._job is not None and self._kind != wanted:
            self.finish()
        if self._job is not None and self._job.parallelism != parallelism:
            self._job.stop()
        try:
            if self._job is None:
                self._job, self._kind = self._make(**kind), wanted
            if self._job.parallelism != parallelism:
                self._job.start(parallelism, restarts)
                self._job.stage.produce(FEED)
                assert self._job.findings().lost == 0
            yield self._job
        except BaseException:
            job, self._job = self._job, None
            if job is not None:
                job.discard()
            raise

    def finish(self) -> None:
        """Stop the job, and look at its output a last time."""
        job, self._job = self._job, None
        if job is None:
            return
        try:
            job.stop()
            if job.delivery == "exactly_once":
                assert job.stage.findings() == EXACT
        finally:
            job.discard()
