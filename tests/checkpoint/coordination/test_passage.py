"""Which barriers have passed: for each source when all that it reaches have taken their snapshots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from option_values import checkpoint_config

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination.coordinator import CheckpointCoordinator
from checkpoint.coordination.coordinator_events import (
    Acknowledged,
    Action,
    BarrierPassed,
    CheckpointRequested,
    Declined,
    SnapshotTaken,
    SubtasksRunning,
    Tick,
)
from checkpoint.coordination.pending_checkpoint import Passage, Passed
from pipeline.job import Pipeline
from pipeline.runtime.reach import reached_from_sources
from sinks.print import PrintSink
from sources.sequence import SequenceSource

FIRST, SECOND, OTHER = 0, 1, 2
REACH = {FIRST: frozenset({3, 4}), SECOND: frozenset({3, 4}), OTHER: frozenset({5})}


@given(st.permutations(range(6)))
def test_it_has_passed_a_source_with_the_last_of_those_it_reaches(order: list[int]) -> None:
    passage, told = Passage(REACH), {}
    for delay, subtask in enumerate(order):
        for one in passage.snapshot_taken(subtask, float(delay), 10 * subtask if subtask in REACH else None, True):
            assert not told.keys() & set(one.sources)
            told.update(dict.fromkeys(one.sources, delay))
        assert passage.snapshot_taken(subtask, float(delay), None, False) == []
    last = {source: max(order.index(subtask) for subtask in reached) for source, reached in REACH.items()}
    assert told == last
    for source, delay in last.items():
        one = passage.passed(source)
        assert one is not None
        assert one.start_delay == delay


def test_the_busy_span_leaves_out_those_who_had_no_more() -> None:
    passage = Passage(REACH)
    passage.snapshot_taken(FIRST, 0.0, 100, True)
    passage.snapshot_taken(SECOND, 0.0, 20, False)
    passage.snapshot_taken(3, 1.0, None, False)
    assert passage.snapshot_taken(4, 2.0, None, False) == [Passed((FIRST, SECOND), 2.0, 60.0, 100.0)]


def test_the_mean_span_is_that_of_the_sources_that_reach_the_same() -> None:
    passage = Passage(REACH)
    for source, span in ((FIRST, 100), (SECOND, 300), (OTHER, 7)):
        assert passage.snapshot_taken(source, 0.0, span, False) == []
    assert passage.snapshot_taken(3, 1.0, None, False) == []
    assert passage.snapshot_taken(4, 2.0, None, False) == [Passed((FIRST, SECOND), 2.0, 200.0, 0.0)]
    assert passage.snapshot_taken(5, 3.0, None, False) == [Passed((OTHER,), 3.0, 7.0, 0.0)]


def coordinator() -> CheckpointCoordinator:
    made = CheckpointCoordinator(checkpoint_config(interval=10.0, max_concurrent=2), 6, 1, reach=REACH)
    made.handle(SubtasksRunning(), 0.0)
    made.handle(Tick(), 10.0)
    return made


def passed(actions: list[Action]) -> list[BarrierPassed]:
    return [action for action in actions if isinstance(action, BarrierPassed)]


def test_the_coordinator_tells_it_before_storage_is_done_and_keeps_it_in_heartbeats() -> None:
    made = coordinator()
    assert passed(made.handle(SnapshotTaken(1, 3), 11.0)) == []
    assert passed(made.handle(SnapshotTaken(1, 4), 12.5)) == [BarrierPassed(1, (FIRST, SECOND), 2.5, 0.0, 0.0)]
    assert made.heartbeat(13.0, FIRST).passed == ((1, 2.5, 0.0, 0.0),)
    assert made.heartbeat(13.0, OTHER).passed == ()
    assert made.heartbeat(13.0).passed == ()
    assert passed(made.handle(SnapshotTaken(1, 5), 14.0)) == [BarrierPassed(1, (OTHER,), 4.0, 0.0, 0.0)]


def test_an_acknowledgement_says_that_the_snapshot_was_taken() -> None:
    made = coordinator()
    made.handle(Acknowledged(1, 3), 11.0)
    assert passed(made.handle(Acknowledged(1, 4), 12.0)) == [BarrierPassed(1, (FIRST, SECOND), 2.0, 0.0, 0.0)]
    assert passed(made.handle(SnapshotTaken(1, 4), 13.0)) == []


def test_nothing_passes_of_a_checkpoint_that_is_over_or_of_a_savepoint() -> None:
    made = coordinator()
    made.handle(CheckpointRequested(CheckpointKind.SAVEPOINT, "user"), 11.0)
    assert [one.kind for one in made.statistics().in_progress] == [CheckpointKind.CHECKPOINT, CheckpointKind.SAVEPOINT]
    assert all(passed(made.handle(SnapshotTaken(2, subtask), 12.0)) == [] for subtask in range(6))
    made = CheckpointCoordinator(checkpoint_config(interval=10.0, tolerable_failures=9), 6, 1, reach=REACH)
    made.handle(SubtasksRunning(), 0.0)
    made.handle(Tick(), 10.0)
    made.handle(Declined(1, 0, "disk full"), 11.0)
    assert all(passed(made.handle(SnapshotTaken(1, subtask), 12.0)) == [] for subtask in range(6))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_what_sources_reach_follows_the_channels(parallelism: int) -> None:
    p = Pipeline("reach", parallelism=parallelism)
    p.source("a", SequenceSource(1)).rebalance().map(abs, id="sum").sink("out", PrintSink())
    p.source("alone", SequenceSource(1)).sink("own", PrintSink())
    plan = p.plan()
    names = {
        plan.subtask_name(source): {plan.subtask_name(n) for n in reached}
        for source, reached in reached_from_sources(plan).items()
    }
    everywhere = {f"sum → out[{i}]" for i in range(parallelism)}
    assert names == {
        **{f"a[{i}]": everywhere for i in range(parallelism)},
        **{f"alone → own[{i}]": {f"alone → own[{i}]"} for i in range(parallelism)},
    }
