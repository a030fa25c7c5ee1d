"""What an operator's task does next, step by step and without a job."""

from __future__ import annotations

import pytest
from captures import data
from lone_tasks import CHAINED, CHANNELS, Operator

from checkpoint.barriers.events import Barrier
from checkpoint.elements import BarrierElement, CancelMarker, EndOfInput, IdleStatus, RestoreBarrier, Watermark
from checkpoint.row_format import row_format
from pipeline.runtime import protocol
from pipeline.runtime.subtask import mail
from pipeline.runtime.subtask.chain import ChainEntry


def test_an_operator_processes_a_batch_then_what_is_due_then_what_is_next() -> None:
    rig = Operator().ready()
    rig.interrupted_by = "a"
    rig.put(0, data(["a", "b"]))
    rig.put(1, data(["c"]))
    rig.step(2)
    rig.times.due = True
    rig.step(4)
    assert rig.said() == ["a", "b", "fired", "c"]


def test_an_operator_processes_what_was_restored_before_anything_new() -> None:
    rig = Operator([(CHANNELS[0], data(["a"])), (CHANNELS[1], Watermark(7)), (CHANNELS[1], IdleStatus(True))])
    rig.put(0, data(["b"]))
    rig.step(7)
    told = [("watermark", 1, 7, True), ("idle", 1, True, True)]
    assert rig.said() == ["a", *told, "all restored", "b"]


def test_of_restored_controls_inside_the_chain_nothing_is_told() -> None:
    rig = Operator([(CHAINED, Watermark(7)), (CHAINED, data(["a"]))])
    rig.step(4)
    assert rig.said() == [("behind", "a"), "all restored"]


def test_what_is_due_waits_for_what_was_in_flight_behind_the_head() -> None:
    rig = Operator([(CHAINED, data(["a"])), (CHANNELS[0], data(["b"]))])
    rig.times.due = True
    rig.step(2)
    assert rig.said() == [("behind", "a")]
    rig.step()
    assert rig.said() == ["fired"]


def test_an_operator_tells_of_the_keys_that_have_most_of_its_records() -> None:
    rig = Operator().ready()
    rig.task._entry_of = [ChainEntry(rig.take, row_format(carries_keys=True))] * 2
    rig.interrupted_by = ["ann", 1]
    for _ in range(30):
        rig.put(0, data([["ann", 1], *[["bob", 2]] * 39], keyed=True))
        rig.step(2)
        rig.task._put_batch_back()  # it has been looked at, and is not looked at again
        rig.step(2)
    for _ in range(10):
        rig.put(1, data([["carl", 3]] * 120, keyed=True))
        rig.step(2)
    rig.task._set_gauges()
    told = dict(rig.task.metrics.hot_keys)
    assert told["'carl'"] == 0.5, "it has 1,200 records of 2,400"
    assert told.keys() <= {"'ann'", "'bob'", "'carl'"}


@pytest.mark.parametrize("restored", [False, True])
def test_the_rate_is_that_of_what_is_processed_restored_or_not(restored: bool) -> None:
    """A batch takes a second. Of one in progress only the part that is processed counts."""
    batches = [data(["a", "b", "c", "d"]) for _ in range(8)]
    rig = Operator([(CHANNELS[i % 2], batch) for i, batch in enumerate(batches)] if restored else [])
    if not restored:
        rig.ready()
        for batch in batches:
            rig.put(0, batch)
    rig.interrupted_by = "b"
    for i in range(8):
        rig.step(2)
        rig.system.now += 0.5
        rig.task._on_clock(rig.system.now)
        if i == 5:
            rig.task._put_batch_back()
            rig.step()
        rig.step()
        rig.system.now += 0.5
        rig.task._on_clock(rig.system.now)
    assert rig.said() == list("abcd") * 8
    assert rig.inputs.statistics().rate == pytest.approx(batches[0].size)


@pytest.mark.parametrize("restored", [False, True])
def test_what_is_left_of_a_batch_is_put_back_where_it_came_from(restored: bool) -> None:
    rig = Operator([(CHANNELS[1], data(["a", "b"]))] if restored else [])
    rig.interrupted_by = "a"
    if not restored:
        rig.ready()
        rig.put(1, data(["a", "b"]))
    rig.step(2)
    assert rig.said() == ["a"]
    rig.task._put_batch_back()
    assert not rig.task.batch
    assert len(rig.restored) == restored
    rig.step(2)
    assert rig.said() == ["b"]


def test_without_room_an_operator_takes_barriers_and_no_data() -> None:
    rig = Operator().ready()
    rig.edge.has_room = False
    rig.barrier(0)
    rig.put(1, data(["a"]))
    rig.step(2)
    assert [one["barrier"].checkpoint_id for one in rig.checkpoints.taken] == []
    assert rig.task._barriers.pending == 1
    assert len(rig.mailbox.waits) == 1
    assert rig.task.metrics.backpressured_s == pytest.approx(0.1)
    assert rig.said() == []


@pytest.mark.parametrize("what", ["batch", "due", "restored"])
def test_without_room_no_barrier_is_taken_in_front_of_which_something_is_left(what: str) -> None:
    rig = Operator([(CHANNELS[0], data(["a"]))] if what == "restored" else [])
    if what != "restored":
        rig.ready()
    if what == "batch":
        rig.put(0, data(["a"]))
        rig.step()
    rig.times.due = what == "due"
    rig.edge.has_room = False
    rig.barrier(1)
    rig.step()
    assert rig.task._barriers.pending is None
    assert len(rig.mailbox.waits) == 1


def test_a_sink_that_accepts_nothing_holds_records_up() -> None:
    rig = Operator(sinks=2).ready()
    rig.put(0, data(["a"]))
    rig.sinks["out1"].accepts_records = False
    rig.step(2)
    assert rig.said() == []
    rig.sinks["out1"].accepts_records = True
    rig.step(2)
    assert rig.said() == ["a"]


def test_the_end_of_all_inputs_is_the_end_of_output_once() -> None:
    rig = Operator().ready()
    rig.put(0, EndOfInput())
    rig.step(2)
    assert rig.said() == [("end", 0)]
    rig.put(1, EndOfInput())
    rig.step(4)
    assert rig.said() == [("end", 1), "input ended", EndOfInput(), protocol.InputEnded()]
    rig.barrier(0)
    rig.step()
    assert rig.checkpoints.taken == [], "barriers go on coming"
    rig.barrier(1)
    rig.step()
    assert len(rig.checkpoints.taken) == 1


def test_a_channel_that_has_delivered_its_barrier_waits_for_the_others() -> None:
    rig = Operator().ready()
    rig.barrier(0)
    rig.put(0, data(["behind the barrier"]))
    rig.put(1, data(["a"]))
    rig.step(5)
    assert rig.said() == ["a"]
    rig.barrier(1)
    rig.step(3)
    assert rig.said() == ["behind the barrier"]
    (taken,) = rig.checkpoints.taken
    assert (taken["unaligned"], taken["capture"], taken["busy"]) == (False, [], False)


def test_a_channel_waits_no_longer_for_a_checkpoint_that_was_given_up() -> None:
    rig = Operator().ready()
    rig.barrier(0)
    rig.put(0, data(["behind the barrier"]))
    rig.step(3)
    assert rig.said() == []
    rig.task._read(protocol.Aborted(1))
    rig.step(3)
    assert rig.said() == ["behind the barrier"]


def test_a_checkpoint_that_turns_unaligned_captures_what_is_left_of_the_batch() -> None:
    rig = Operator().ready()
    rig.interrupted_by = "a"
    rig.put(1, data(["a", "b"]))
    rig.step(2)
    rig.barrier(0, timeout=5.0)
    seen = mail.BarrierSeen(0, BarrierElement(Barrier(1, alignment_timeout=5.0), rig.system.now))
    rig.system.now += 3.0
    rig.task._read(seen)
    rig.system.now += 1.9
    rig.task._on_clock(rig.system.now)
    assert rig.checkpoints.taken == []
    rig.system.now += 0.2
    rig.task._on_clock(rig.system.now)
    (taken,) = rig.checkpoints.taken
    assert (taken["unaligned"], taken["capture"]) == (True, CHANNELS)
    assert rig.checkpoints.captured == [(CHANNELS[0], 1, [])], "nothing is in front of its barrier"
    assert not rig.task.batch, "it is in its channel again"


def test_a_checkpoint_given_up_upstream_is_given_up_here() -> None:
    rig = Operator().ready()
    rig.put(0, CancelMarker(1))
    rig.step()
    assert rig.said() == [("given up", 1)]


def test_a_restore_barrier_goes_on_once_all_channels_have_it_and_nothing_restored_is_left() -> None:
    rig = Operator(replay=True)
    rig.put(0, RestoreBarrier())
    rig.put(1, RestoreBarrier())
    rig.step()
    assert rig.said() == ["all restored"]
    rig.step()
    assert rig.said() == []
    rig.step()
    assert rig.said() == [RestoreBarrier(), "told again"]


def test_the_last_subtask_tells_the_driver_that_all_is_replayed() -> None:
    rig = Operator(replay=True, edge=False)
    for upstream in (0, 1):
        rig.put(upstream, RestoreBarrier())
    rig.step(3)
    assert rig.said() == ["all restored", "told again", protocol.RestoreBarrierArrived()]


def test_bytes_count_once_though_a_batch_is_put_back() -> None:
    rig = Operator().ready()
    rig.interrupted_by = "a"
    batch = data(["a", "b"])
    rig.put(0, batch)
    rig.step(2)
    rig.task._put_batch_back()
    rig.step(2)
    assert (rig.task.metrics.bytes_in, rig.task.metrics.records_in) == (batch.size, 2)


def test_whoever_has_not_delivered_the_barrier_is_told() -> None:
    rig = Operator().ready()
    rig.barrier(0)
    rig.step()
    rig.task._on_clock(rig.system.now)
    assert rig.task.metrics.barriers == {1: [1]}
    rig.barrier(1)
    rig.step()
    rig.task._on_clock(rig.system.now)
    assert rig.task.metrics.barriers == {}


def test_what_is_queued_is_told_for_both_ends() -> None:
    rig = Operator().ready()
    assert rig.task._in_flight_bytes() == 3
    rig.inputs.channels[0]._received_bytes = 4
    assert rig.task._in_flight_bytes() == 7
