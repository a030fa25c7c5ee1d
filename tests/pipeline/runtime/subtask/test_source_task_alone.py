"""What a source's task does next, step by step and without a job."""

from __future__ import annotations

from typing import Any

import pytest
from captures import data
from lone_tasks import CHAINED, Source

from checkpoint.barriers.events import Barrier
from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination.coordinator_events import Heartbeat
from checkpoint.elements import EndOfInput, RestoreBarrier
from checkpoint.gate import gate_events
from pipeline.runtime import protocol
from sources import END, SourceBatch


def test_a_source_emits_what_it_has_polled_before_it_polls_again() -> None:
    rig = Source(["a", "b"], ["c"]).ready()
    rig.interrupted_by = "a"
    rig.step(5)
    assert rig.said() == ["a", "b", "c"]
    assert len(rig.reader.polls) == 2
    assert rig.task.metrics.records_in == 3
    assert rig.task.metrics.idle_s == 0.0


def test_a_source_does_first_what_was_restored_and_what_is_due() -> None:
    rig = Source(["new"], restored=[(CHAINED, data(["a"]))])
    rig.step(2)
    rig.times.due = True
    rig.step(4)
    assert rig.said() == [("behind", "a"), "fired", "all restored", "new"]


def test_without_room_a_source_emits_nothing_and_its_next_barrier_says_so() -> None:
    rig = Source(["a"]).ready()
    rig.edge.has_room = False
    rig.step(2)
    assert (rig.said(), rig.reader.polls) == ([], [])
    assert len(rig.mailbox.waits) == 2
    rig.edge.has_room = True
    told: list[Any] = []
    handle = rig.task._gate.handle

    def noting(event: Any, now: float) -> Any:
        told.extend([event] if isinstance(event, gate_events.BarrierTaken) else [])
        return handle(event, now)

    rig.task._gate.handle = noting  # type: ignore[method-assign]
    rig.trigger(1, CheckpointKind.SAVEPOINT)
    rig.trigger(2)
    rig.trigger(3)
    assert [one.held_up for one in told] == [True, True, False], "a savepoint's barrier refills nothing"


@pytest.mark.parametrize("end", [True, False])
def test_a_source_ends_once_by_itself_or_when_it_is_told_to(end: bool) -> None:
    rig = Source(*([["a"], END] if end else [])).ready()
    if not end:
        rig.task._read(protocol.EndInput())
    rig.step(6)
    assert rig.said() == [*(["a"] if end else []), "input ended", EndOfInput(), protocol.InputEnded()]
    assert len(rig.reader.polls) == (2 if end else 0)
    assert len(rig.mailbox.waits) > 0


def test_while_the_replay_goes_on_a_source_reads_nothing() -> None:
    rig = Source(["a"], replay=True)
    rig.step(3)
    assert rig.said() == ["all restored", RestoreBarrier(), "told again"]
    assert rig.reader.polls == []
    rig.task._read(protocol.Heartbeat(Heartbeat((), 1.0, None)))
    rig.task._read(protocol.ReplayEnded())
    rig.step(2)
    assert rig.said() == ["a"]


@pytest.mark.parametrize(
    ("options", "timeout"), [({}, 0.0), ({"stop": True}, 1.0), ({"stop": True, "unaligned": True}, 0.0)]
)
def test_the_last_barrier_leaves_what_is_in_flight_time_to_come_out_unless_it_is_to_be_quick(
    options: dict[str, bool], timeout: float
) -> None:
    rig = Source(["a"], alignment="unaligned").ready()
    rig.trigger(1, CheckpointKind.FINAL, **options)
    (taken,) = rig.checkpoints.taken
    assert (taken["barrier"].alignment_timeout, taken["unaligned"]) == (timeout, timeout == 0.0)


def test_behind_the_jobs_last_barrier_a_source_emits_nothing_unless_that_checkpoint_fails() -> None:
    rig = Source(["a"]).ready()
    rig.trigger(1, CheckpointKind.FINAL, stop=True)
    rig.step(2)
    assert rig.said() == []
    rig.task._read(protocol.Aborted(7))
    rig.step()
    assert rig.said() == [("aborted", 7)]
    rig.task._read(protocol.Aborted(1))
    rig.step(2)
    assert rig.said() == [("aborted", 1), "a"]


def test_a_barrier_knows_the_age_of_its_trigger_its_target_and_its_timeout() -> None:
    rig = Source(["a", "b"]).ready()
    rig.interrupted_by = "a"
    rig.step(2)
    rig.trigger(1, age=2.0)
    rig.trigger(2, CheckpointKind.SAVEPOINT, target="file:///s")
    rig.trigger(2)
    rig.trigger(1)
    one, two = rig.checkpoints.taken
    assert one["barrier"] == Barrier(1, CheckpointKind.CHECKPOINT, 7.0, 2.0, None)
    assert two["barrier"] == Barrier(2, CheckpointKind.SAVEPOINT, 7.0, 0.0, "file:///s")
    assert (one["head"], one["unaligned"], one["alignment"]) == ({"source": 1}, False, 0.0)
    assert (one["figures"]["span_records"], one["figures"]["span_bytes"]) == (1, 100)


def test_a_closed_gate_pauses_the_reader_once_and_an_open_one_resumes_it() -> None:
    rig = Source(["a", "b", "c"], ["d"], interval=10.0, max_span_records=3).ready()
    rig.step(2)
    assert not rig.task._gate.is_open
    said = rig.said()
    assert said[:3] == ["a", "b", "c"]
    assert said.count("paused") == 1
    assert [one for one in said if isinstance(one, protocol.CheckpointAsked)] == [protocol.CheckpointAsked(0)]
    rig.task._act([gate_events.CloseGate("again")])
    rig.reader.polls.clear()
    rig.step()
    assert rig.reader.polls == [(1, 0.0)], "so that it can serve its callbacks"
    assert rig.mailbox.waits == [0.01]
    assert rig.task.metrics.gate_closed_s == pytest.approx(0.005)
    rig.reader.polls.clear()
    rig.step()
    assert rig.reader.polls == [], "it has a batch now"
    rig.trigger(1)
    rig.task._act([gate_events.OpenGate()])
    assert rig.said() == ["resumed"]
    rig.task._act([gate_events.OpenGate()])
    rig.step()
    assert rig.said() == ["d"]


def test_a_source_that_has_ended_pauses_no_reader() -> None:
    rig = Source(END).ready()
    rig.step()
    rig.said()
    rig.task._act([gate_events.CloseGate("span")])
    assert rig.said() == []


def test_a_trigger_that_was_lost_is_made_up_for_by_the_gate() -> None:
    rig = Source().ready()
    rig.task._act([gate_events.TakeBarrier(4, CheckpointKind.CHECKPOINT)])
    assert [(one["barrier"].checkpoint_id, one["barrier"].age) for one in rig.checkpoints.taken] == [(4, 0.0)]


def test_the_size_of_a_record_is_guessed_where_the_source_does_not_tell() -> None:
    for batch, size in ((["a", "b"], 200), (SourceBatch(["a", "b"], size=50), 50), (SourceBatch([], size=9), 0)):
        rig = Source(batch).ready()
        rig.step(2)
        assert rig.task._gate.span_bytes == size
        assert rig.task.metrics.bytes_in == (batch.size if isinstance(batch, SourceBatch) else 0)


def test_what_is_no_batch_is_refused_by_its_type() -> None:
    rig = Source(7).ready()
    with pytest.raises(TypeError, match=r"Reader\.poll returned a int; it must return a SourceBatch"):
        rig.step()


def test_the_reader_is_told_how_checkpoints_end_and_closed() -> None:
    rig = Source().ready()
    rig.task._read(protocol.Completed(3, CheckpointKind.CHECKPOINT, True))
    rig.task._read(protocol.Aborted(4))
    rig.task._close()
    assert [one for one in rig.said() if one != ("copies", 3)] == [("complete", 3), ("aborted", 4), "reader closed"]


def test_timestamps_are_those_of_each_row_and_a_batch_without_has_none() -> None:
    rig = Source(SourceBatch(["a", "b"], timestamps=[5, 6]), ["c"]).ready()
    seen: list[Any] = []
    record = rig.task.chain.record
    rig.task.chain.push = lambda value: seen.append((value, record.timestamp, record.row))
    rig.step(4)
    assert seen == [("a", 5, 0), ("b", 6, 1), ("c", None, 0)]
