"""Event time over several source subtasks, with the parts that make and combine it: it only grows, waits for whom it
must, and goes on when all are quiet."""

from __future__ import annotations

from typing import Any

import ormsgpack
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.elements import IdleStatus, Watermark
from checkpoint.event_time.combiner import WatermarkCombiner
from pipeline import Pipeline, WatermarkStrategy
from pipeline.runtime.subtask.chain import Chain
from pipeline.runtime.subtask.context import contexts_of
from pipeline.runtime.subtask.event_time.event_time import EventTime
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.testing import ManualClock, TestingSource

IDLE, QUIET = 2.0, 4.0
START = 1_700_000_000.0


class Wire:
    """The edge behind `assign_timestamps`."""

    def __init__(self, edge: Any, number: int, combiner: WatermarkCombiner) -> None:
        self.edge = edge
        self._number, self._combiner = number, combiner

    def broadcast(self, element: Any) -> None:
        match element:
            case Watermark(timestamp):
                self._combiner.on_watermark(self._number, timestamp)
            case IdleStatus(idle):
                self._combiner.on_idle(self._number, idle)


class Sources:
    """Subtasks of one source with a split each, but for the last one, which has none; what reads them combines what
    they say. A restart restores all of it from one checkpoint."""

    def __init__(self, splits: int, idle_after: float | None) -> None:
        p = Pipeline("job")
        strategy = WatermarkStrategy.bounded("at", 0, idle_after, quiet_after=QUIET)
        p.source("in", TestingSource()).assign_timestamps(strategy, id="times").rebalance().map(str)
        self._plan = p.plan()
        self.clock = ManualClock(START)
        self.splits = splits
        self._make(None)

    def _make(self, state: Any) -> None:
        self.combiner = WatermarkCombiner(range(self.splits + 1))
        if state is not None:
            self.combiner.restore([state["combiner"]], True, ())
        self.times: list[EventTime] = []
        self.pushes: list[Any] = []
        vertex, (edge,) = self._plan.vertices[0], self._plan.outputs_of(0)
        for number in range(self.splits + 1):
            record = RecordInProgress()
            record.source_splits = number
            chain = Chain(
                vertex,
                record,
                contexts_of(vertex, record, number),
                {},
                {(edge.upstream_step, None): [lambda value: None]},
                None,
                self.clock,
            )
            read = [number] if number < self.splits else []
            one = EventTime(
                chain=chain,
                backend=None,
                writers=[Wire(edge, number, self.combiner)],  # type: ignore[list-item]
                mailbox=Mailbox(),
                channels=None,
                splits=lambda read=read: read,  # type: ignore[misc]
                clock=self.clock,
                wall_clock=self.clock,
            )
            if state is not None:
                one.restore([time for time, _ in state["subtasks"]], {}, True)
                one.restore_watermarks("times", [made["times"] for _, made in state["subtasks"]], True)
            one.open()
            self.times.append(one)
            self.pushes.append(chain.push)

    def pass_time(self, seconds: float, held_up: bool = False) -> None:
        steps = round(seconds / 0.25)
        for _ in range(steps):
            self.clock.advance(0.25)
            for one in self.times:
                one.on_clock(self.clock(), held_up)
                while one.due:
                    one.fire()
        if (pending := self.combiner.pending) is not None:
            self.combiner.passed(pending)

    def checkpoint(self) -> Any:
        state = {
            "combiner": self.combiner.snapshot(),
            "subtasks": [[one.snapshot(), one.snapshot_watermarks()] for one in self.times],
        }
        return ormsgpack.unpackb(ormsgpack.packb(state))

    def restart(self, state: Any, after: float) -> None:
        self.clock.advance(after)
        self._make(state)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.integers(0, 1), st.integers(0, 5000)),
        st.tuples(st.just("time"), st.sampled_from([0.25, 1.0, 3.0, 6.0]), st.booleans()),
        st.tuples(st.just("checkpoint"), st.none(), st.none()),
        st.tuples(st.just("restart"), st.sampled_from([0.0, 1.0, 5.0]), st.none()),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from([None, IDLE]))
def test_event_time_over_subtasks_only_grows_and_follows_the_clock_when_all_are_quiet(
    steps: list[Any], idle_after: float | None
) -> None:
    job = Sources(2, idle_after)
    state, state_largest = job.checkpoint(), [0, 0]
    largest, fresh = [0, 0], [False, False]
    for step, argument, more in steps:
        before = job.combiner.combined
        match step:
            case "record":
                at = int(job.clock() * 1000) - more
                job.pushes[argument]({"at": at})
                largest[argument] = max(largest[argument], at)
                fresh[argument] = True
            case "time":
                job.pass_time(argument, more)
                # A split that has just had a record holds the others back.
                for split, is_fresh in enumerate(fresh):
                    now = job.combiner.combined
                    if is_fresh and argument < IDLE and now is not None and now != before:
                        assert now < largest[split]
                fresh = [False, False]
            case "checkpoint":
                state, state_largest = job.checkpoint(), list(largest)
                continue
            case "restart":
                job.restart(state, argument)
                largest, fresh = list(state_largest), [False, False]
                continue
        assert before is None or (job.combiner.combined or 0) >= before
    newest = max(largest)
    job.pass_time(20)
    if newest:
        combined = job.combiner.combined
        assert combined is not None
        assert newest + 10_000 < combined
        assert combined < int(job.clock() * 1000) + 60_000
        assert job.combiner.follows_clock
    else:
        assert job.combiner.combined is None
