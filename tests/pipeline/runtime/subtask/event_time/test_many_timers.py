"""Very many windows and records are due at one watermark: a barrier waits for one timer, and for what that gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chains import chain_of
from lone_tasks import CHANNELS, PLAIN, Operator
from window_oracle import operator

from checkpoint.barriers.events import Barrier
from checkpoint.barriers.handler import BarrierHandler
from checkpoint.codec import encode_key
from checkpoint.elements import BarrierElement, EndOfInput, Watermark
from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.key_groups import key_group
from checkpoint.state import make_backend
from pipeline import Session, Sliding, Tumbling
from pipeline.joins import AsOfJoin, IntervalJoin, WindowJoin
from pipeline.joins.options import MOST_AT_ONCE
from pipeline.operators import KeyedOperator
from pipeline.runtime.subtask import mail
from pipeline.runtime.subtask.batch_in_progress import BatchInProgress
from pipeline.runtime.subtask.chain import ChainEntry
from pipeline.runtime.subtask.event_time.event_time import EventTime
from pipeline.runtime.subtask.operator_task import OperatorTask
from pipeline.streams import Stream
from pipeline.windows.operator import MOST_AT_ONCE as MOST_RESULTS

GROUPS = 8
KEYS = 400
FEW = 3
"""Results of a key, at one time."""


class Busy(Operator):
    """An operator's task with event time and state as in a job. When it has emitted `announced_at` results, an
    unaligned barrier is announced; `at_snapshot` is how many it had emitted when its snapshot was taken."""

    def __init__(self, runs: KeyedOperator, backend: Any) -> None:
        super().__init__()

        def build(stream: Stream) -> Any:
            keyed = stream.key_by(lambda value: value)
            return keyed.connect(keyed).process("op", runs) if runs._inputs else keyed.process("op", runs)

        clock = self.system.monotonic
        self.backend = make_backend(range(GROUPS), GROUPS, False, backend)
        self.emitted = 0
        self.announced_at: int | None = None
        self.chain, self.record = chain_of(
            build, {("op", None): [self.emit]}, 1, self.backend, clock, self.mailbox.tick
        )
        time = EventTime(
            chain=self.chain,
            backend=self.backend,
            writers=[],
            mailbox=self.mailbox,
            channels=CHANNELS,
            clock=clock,
            wall_clock=clock,
        )
        self.common |= {
            "chain": self.chain,
            "writers": [],
            "event_time": time,
            "batch": BatchInProgress(self.record, self.mailbox, self.backend),
            "entries": {CHANNELS[0].edge: ChainEntry(self.chain.push, PLAIN)},
        }
        self.task = OperatorTask(
            inputs=self.inputs, channels=CHANNELS, barriers=BarrierHandler(2, self.system.now), **self.common
        )
        self.chain.open()
        time.open()
        self.at_snapshot: list[int] = []
        take = self.checkpoints.take
        self.checkpoints.take = lambda *parts: (self.at_snapshot.append(self.emitted), take(*parts))  # type: ignore[method-assign, assignment]

    def emit(self, value: Any) -> None:
        self.emitted += 1
        if self.emitted == self.announced_at:
            self.mailbox.post(mail.BarrierSeen(0, BarrierElement(Barrier(1, alignment_timeout=0.0), self.system.now)))

    def process(self, key: Any, at: int, connected: bool = False) -> None:
        encoded = encode_key(key)
        self.record.timestamp, self.record.key_bytes = at, encoded
        self.record.key_group = key_group(encoded, GROUPS)
        self.backend.set_current_key(encoded, self.record.key_group)
        push = self.chain.push_connected if connected else self.chain.push
        assert push is not None
        push([key, at])
        self.record.leave()
        self.backend.clear_current_key()

    def reach(self, watermark: int) -> None:
        for upstream in (0, 1):
            self.put(upstream, EndOfInput() if watermark == MAX_WATERMARK else Watermark(watermark))

    def run_on(self, until: Callable[[], bool]) -> None:
        """As `Task.run` does."""
        for _ in range(100_000):
            self.task._look_around()
            if until():
                return
            self.task._step()
        raise AssertionError("it does not come to an end")


KINDS: dict[str, tuple[Callable[[], KeyedOperator], int]] = {
    "tumbling": (lambda: operator(Tumbling(1)), 1),
    "sliding": (lambda: operator(Sliding(1, 0.5)), 2),
    "sessions": (lambda: operator(Session(1)), 1),
    "windowed join": (lambda: WindowJoin(Tumbling(1), "left"), FEW),
    "interval join": (lambda: IntervalJoin((-1, 1), "left"), FEW),
    "as-of join": (lambda: AsOfJoin("left"), FEW),
}
"""How each is made, and how many results a key has of `FEW` records."""


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("watermark", [10_000, MAX_WATERMARK])
@pytest.mark.parametrize("kind", KINDS)
def test_behind_the_news_of_a_barrier_only_the_timer_of_one_key_is_done(
    kind: str, watermark: int, backend: Any
) -> None:
    make, results = KINDS[kind]
    rig = Busy(make(), backend)
    for key in range(KEYS):
        for i in range(FEW):
            rig.process(key, 600 + i)
    rig.announced_at = KEYS * results // 2
    rig.reach(watermark)
    rig.run_on(lambda: bool(rig.at_snapshot))
    (taken,) = rig.at_snapshot
    assert rig.announced_at <= taken < rig.announced_at + FEW
    assert len(rig.backend.event_timers) >= KEYS // 2 - 1, "the others are in the snapshot"
    rig.run_on(lambda: not rig.task.event_time.due)
    assert rig.emitted == KEYS * results
    rig.backend.close()


MANY: dict[str, tuple[Callable[[], KeyedOperator], int, int, int]] = {
    "sliding": (lambda: operator(Sliding(1, 0.5)), 3000, 0, 3001),
    "windowed join": (lambda: WindowJoin(Tumbling(10_000)), 70, 60, 4200),
    "windowed join of sessions": (lambda: WindowJoin(Session(10_000)), 70, 60, 4200),
    "interval join": (lambda: IntervalJoin((-1, 1), "left"), 3000, 0, 3000),
    "as-of join": (lambda: AsOfJoin("left"), 3000, 0, 3000),
}
"""How each is made, with how many left and right records of one key, half a second apart, and how many results."""


@pytest.mark.parametrize("watermark", [10**9, MAX_WATERMARK])
@pytest.mark.parametrize("kind", MANY)
def test_of_one_key_with_very_much_no_more_than_a_thousand_results_are_given(kind: str, watermark: int) -> None:
    make, lefts, rights, results = MANY[kind]
    rig = Busy(make(), "heap")
    for i in range(lefts):
        rig.process("k", 500 * i)
    for i in range(rights):
        rig.process("k", 500 * i, connected=True)
    rig.announced_at = 1500
    rig.reach(watermark)
    rig.run_on(lambda: bool(rig.at_snapshot))
    assert 1500 <= rig.at_snapshot[0] <= 1500 + max(MOST_AT_ONCE, MOST_RESULTS)
    rig.run_on(lambda: not rig.task.event_time.due)
    assert rig.emitted == results
    rig.backend.close()


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("watermark", [None, -1])
def test_of_the_pairs_of_one_record_no_more_than_a_thousand_are_in_front_of_a_barrier(
    watermark: int | None, backend: Any
) -> None:
    """Event time stands still, or is not known yet."""
    rig = Busy(IntervalJoin((-10, 10), "full"), backend)
    if watermark is not None:
        rig.reach(watermark)
        rig.run_on(lambda: not rig.task.event_time.due)
    for i in range(2 * MOST_AT_ONCE + 500):
        rig.process("hot", i)
    rig.announced_at = 1
    for at in (5, 6):
        rig.process("hot", at, connected=True)
    rig.run_on(lambda: bool(rig.at_snapshot))
    assert 1 <= rig.at_snapshot[0] <= MOST_AT_ONCE
    rig.run_on(lambda: not rig.task.event_time.due)
    assert rig.emitted == 2 * (2 * MOST_AT_ONCE + 500)
    rig.reach(MAX_WATERMARK)
    rig.run_on(lambda: not rig.task.event_time.due)
    assert rig.emitted == 2 * (2 * MOST_AT_ONCE + 500), "all have found partners"
    rig.backend.close()
