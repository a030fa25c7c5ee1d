"""`OperatorHarness`: what an operator sees in it is what it would see in a job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from checkpoint.codec import EncodingError
from checkpoint.state import StateAccessError, StateRestoreError
from pipeline import (
    AggregatingState,
    BroadcastState,
    KeyedOperator,
    ListState,
    MapState,
    Operator,
    OperatorListState,
    OperatorUnionState,
    PipelineError,
    ReducingState,
    ValueState,
)
from pipeline.testing import ManualClock, OperatorHarness


class RunningTotal(KeyedOperator):
    total = ValueState(default=0.0)

    def process(self, order: dict[str, Any], ctx: Any) -> Iterable[Any]:
        self.total.value += order["amount"]
        yield {"user": ctx.key, "total": self.total.value}


class Everything(KeyedOperator):
    seen = ListState[Any]()
    by_kind = MapState[str, int]()
    largest = ReducingState(max)

    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        self.seen.append(value)
        self.by_kind[type(value).__name__] = len(list(self.seen))
        self.largest.add(len(list(self.seen)))
        yield [list(self.seen), dict(self.by_kind.items()), self.largest.value]


class Count(Operator):
    """State of its own, and every call noted."""

    def __init__(self) -> None:
        self.count = 0
        self.calls: list[Any] = []

    def open(self, ctx: Any) -> None:
        self.calls.append(("open", ctx.subtask, ctx.parallelism))

    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        self.count += 1
        ctx.side_output("timestamps", (ctx.timestamp,))
        return [value] * self.count

    def snapshot(self, checkpoint_id: int) -> Any:
        self.calls.append(("snapshot", checkpoint_id))
        return {"count": self.count}

    def restore(self, state: Any) -> None:
        self.calls.append(("restore", state))
        self.count = state["count"]

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.calls.append(("complete", checkpoint_id))

    def on_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.calls.append(("aborted", checkpoint_id))

    def close(self) -> None:
        self.calls.append(("close",))


class Returns(Operator):
    def __init__(self, what: Any) -> None:
        self.what = what

    def process(self, value: Any, ctx: Any) -> Any:
        return self.what


def test_each_key_has_its_own_state() -> None:
    harness = OperatorHarness(RunningTotal())
    assert harness.process({"amount": 2.5}, key="ann") == [{"user": "ann", "total": 2.5}]
    harness.process({"amount": 1.0}, key="bob")
    harness.process({"amount": 2.5}, key="ann")
    assert harness.outputs == [
        {"user": "ann", "total": 2.5},
        {"user": "bob", "total": 1.0},
        {"user": "ann", "total": 5.0},
    ]


def test_equal_keys_of_different_types_are_different_keys() -> None:
    harness = OperatorHarness(RunningTotal())
    for key in (1, 1.0, True):
        (output,) = harness.process({"amount": 1.0}, key=key)
        assert output["total"] == 1.0
        assert type(output["user"]) is type(key)


def test_a_snapshot_restores_every_kind_of_keyed_state_into_a_new_operator() -> None:
    harness = OperatorHarness(Everything())
    harness.process("a", key=1)
    harness.process("other key", key=2)
    snapshot = harness.snapshot()
    harness.process("after the snapshot", key=1)
    restored = OperatorHarness.restore(Everything(), snapshot)
    assert restored.process(5, key=1) == [[["a", 5], {"str": 1, "int": 2}, 2]]
    assert restored.outputs == [[["a", 5], {"str": 1, "int": 2}, 2]]


def test_an_operators_own_state_is_restored_before_open() -> None:
    harness = OperatorHarness(Count())
    harness.process("x")
    restored = OperatorHarness.restore(Count(), harness.snapshot())
    assert restored.operator.calls == [("restore", {"count": 1}), ("open", 0, 1)]  # type: ignore[attr-defined]
    assert restored.process("y") == ["y", "y"]


def test_an_operator_without_state_is_not_asked_to_restore_any() -> None:
    OperatorHarness.restore(Returns(None), OperatorHarness(Returns(None)).snapshot())


def test_an_operator_that_keeps_state_but_cannot_restore_it_says_so() -> None:
    class Forgetful(Returns):
        def snapshot(self, checkpoint_id: int) -> Any:
            return 1

    snapshot = OperatorHarness(Forgetful(None)).snapshot()
    with pytest.raises(NotImplementedError, match="returned state from snapshot but doesn't implement restore"):
        OperatorHarness.restore(Forgetful(None), snapshot)


def test_checkpoints_are_numbered_and_their_ends_told() -> None:
    operator = Count()
    harness = OperatorHarness(operator)
    harness.snapshot()
    harness.complete_checkpoint()
    harness.snapshot()
    harness.abort_checkpoint()
    harness.close()
    assert operator.calls[1:] == [
        ("snapshot", 1),
        ("complete", 1),
        ("snapshot", 2),
        ("aborted", 2),
        ("close",),
    ]


def test_records_and_outputs_pass_through_a_channel() -> None:
    """A test can't pass on what a job would change."""
    kept = [1]
    harness = OperatorHarness(Returns([("a", kept), {"k": (2,)}]))
    assert harness.process(None) == [("a", [1]), {"k": (2,)}]
    assert harness.outputs[0][1] is not kept
    seen: list[Any] = []

    class Look(Operator):
        def process(self, value: Any, ctx: Any) -> None:
            seen.append((value, ctx.key))

    OperatorHarness(Look()).process(("x", ("y",)))
    assert seen == [(("x", ("y",)), None)]


def test_a_record_is_the_operators_own() -> None:
    class Change(Operator):
        def process(self, value: Any, ctx: Any) -> None:
            value.append(1)

    record: list[int] = []
    OperatorHarness(Change()).process(record)
    assert record == []


@pytest.mark.parametrize("what", [1j, object(), {(1, object()): 2}])
def test_an_output_that_cannot_travel_is_refused(what: Any) -> None:
    with pytest.raises(EncodingError):
        OperatorHarness(Returns([what])).process("x")


def test_a_record_or_key_that_cannot_travel_is_refused() -> None:
    with pytest.raises(EncodingError):
        OperatorHarness(Returns(None)).process(1j)
    with pytest.raises(EncodingError):
        OperatorHarness(RunningTotal()).process({"amount": 1.0}, key={})


def test_side_outputs_are_kept_by_tag() -> None:
    harness = OperatorHarness(Count())
    harness.process("a", timestamp=5)
    harness.process("b")
    assert harness.side_outputs == {"timestamps": [(5,), (None,)]}


def test_keyed_state_is_out_of_reach_in_open() -> None:
    class Eager(RunningTotal):
        def open(self, ctx: Any) -> None:
            self.total.value = 1.0

    with pytest.raises(StateAccessError):
        OperatorHarness(Eager())


def test_keyed_state_can_be_looked_at_behind_a_record() -> None:
    operator = RunningTotal()
    OperatorHarness(operator).process({"amount": 1.5}, key="ann")
    assert operator.total.value == 1.5


@pytest.mark.parametrize("callback", ["snapshot", "complete_checkpoint", "abort_checkpoint", "close"])
def test_keyed_state_is_out_of_reach_where_there_is_no_record(callback: str) -> None:
    class Eager(RunningTotal):
        def _touch(self, *_: Any) -> None:
            self.total.value = 0.0

        snapshot = on_checkpoint_complete = on_checkpoint_aborted = close = _touch

    harness = OperatorHarness(Eager())
    harness.process({"amount": 1.0}, key="ann")
    with pytest.raises(StateAccessError):
        getattr(harness, callback)()


def test_state_that_the_new_operator_does_not_declare_is_refused() -> None:
    harness = OperatorHarness(RunningTotal())
    harness.process({"amount": 1.0}, key="ann")

    class Renamed(KeyedOperator):
        sum = ValueState(default=0.0)

        def process(self, value: Any, ctx: Any) -> None: ...

    with pytest.raises(StateRestoreError, match="state 'total'"):
        OperatorHarness.restore(Renamed(), harness.snapshot())


def test_an_exception_of_the_operator_comes_out_as_it_is() -> None:
    harness = OperatorHarness(RunningTotal())
    with pytest.raises(KeyError, match="amount"):
        harness.process({}, key="ann")


# -- two streams, broadcast state -----------------------------------------------------------------------------


class Limits(KeyedOperator):
    limits = BroadcastState[str, int]()
    spent = ValueState(default=0)

    def process(self, value: int, ctx: Any) -> Iterable[Any]:
        self.spent.value += value
        yield [ctx.key, self.spent.value, self.limits.get(ctx.key)]

    def process_connected(self, value: Any, ctx: Any) -> Iterable[Any]:
        if value is None:
            self.spent.value = 0
        self.limits[value[0]] = value[1]
        yield [ctx.key, "limit set"]


def test_records_of_a_broadcast_stream_have_no_key_and_change_broadcast_state() -> None:
    harness = OperatorHarness(Limits(), broadcast="process_connected")
    harness.process(5, key="ann")
    assert harness.process_connected(("ann", 10)) == [[None, "limit set"]]
    harness.process(5, key="ann")
    assert harness.outputs == [["ann", 5, None], [None, "limit set"], ["ann", 10, 10]]
    with pytest.raises(StateAccessError, match="no current key"):
        harness.process_connected(None)
    with pytest.raises(ValueError, match="process_connected gets records of a broadcast stream"):
        harness.process_connected(("ann", 10), key="ann")


def test_records_of_another_stream_do_not() -> None:
    harness = OperatorHarness(Limits())
    with pytest.raises(StateAccessError, match="only while a record of a broadcast stream"):
        harness.process_connected(("ann", 10), key="ann")


def test_broadcast_state_is_in_the_snapshot() -> None:
    harness = OperatorHarness(Limits(), broadcast="process_connected")
    harness.process_connected(("ann", 10))
    restored = OperatorHarness.restore(Limits(), harness.snapshot(), broadcast="process_connected")
    assert restored.process(5, key="ann") == [["ann", 5, 10]]
    restored.process_connected(("ann", 20))
    assert restored.process(5, key="ann") == [["ann", 10, 20]]


# -- operator list and union state ----------------------------------------------------------------------------


class Batches(Operator):
    """Emits records by threes, and knows who else holds some."""

    held = OperatorListState[Any]()
    holders = OperatorUnionState[str]()

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.found: list[Any] = []

    def open(self, ctx: Any) -> None:
        self.found = [list(self.held), list(self.holders)]

    def process(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        self.held.append(value)
        if len(self.held) < 3:
            return None
        batch = list(self.held)
        self.held.clear()
        return [batch]

    def snapshot(self, checkpoint_id: int) -> Any:
        self.holders.update([self.name])
        return None


def test_operator_lists_are_in_the_snapshot_as_the_operator_leaves_them_at_the_barrier() -> None:
    harness = OperatorHarness(Batches("x"))
    assert harness.operator.found == [[], []]  # type: ignore[attr-defined]
    for value in (1, 2, 3, 4, "five"):
        harness.process(value)
    assert harness.outputs == [[1, 2, 3]]
    snapshot = harness.snapshot()
    harness.process(6)
    restored = OperatorHarness.restore(Batches(), snapshot)
    assert restored.operator.found == [[4, "five"], ["x"]]  # type: ignore[attr-defined]
    assert restored.process(6) == [[4, "five", 6]]


def test_several_snapshots_come_together_in_one_subtask() -> None:
    snapshots = []
    for name in ("x", "y"):
        harness = OperatorHarness(Batches(name))
        harness.process(f"of {name}")
        harness.watermark(10 if name == "x" else 5)
        snapshots.append(harness.snapshot())
    restored = OperatorHarness.restore(Batches(), snapshots)
    assert restored.operator.found == [["of x", "of y"], ["x", "y"]]  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="no snapshot"):
        OperatorHarness.restore(Batches(), [])


def test_keyed_state_timers_and_watermarks_of_several_snapshots_come_together() -> None:
    snapshots = []
    for key, watermark in (("ann", 10), ("bob", 5)):
        harness = OperatorHarness(Reminder())
        harness.process(20, key=key)
        harness.watermark(watermark)
        snapshots.append(harness.snapshot())
    restored = OperatorHarness.restore(Reminder(), snapshots)
    assert restored.watermark(5) == []
    restored.process(7, key="cid")
    assert restored.watermark(7) == [["cid", 7, 7]]
    assert sorted(restored.watermark(20)) == [["ann", 20, 20], ["bob", 20, 20]]


class Later(KeyedOperator):
    """Emits what comes a second later by the clock of the host, and with another timestamp."""

    item = ValueState()

    def process(self, value: Any, ctx: Any) -> Any:
        self.item.value = value
        ctx.processing_timer(ctx.processing_time + 1000)
        ctx.emit_at(ctx.timestamp + 5)
        yield ctx.timestamp

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield self.item.value


def test_an_operator_sees_the_clock_and_says_when_what_it_emits_was() -> None:
    harness = OperatorHarness(Later(), clock=ManualClock(50.0))
    assert harness.process("x", key="ann", timestamp=10) == [15]
    assert harness.advance_time(0.999) == []
    assert harness.advance_time(0.001) == ["x"]


class Late(KeyedOperator):
    """Tells what time it is for the key, too."""

    def process(self, value: Any, ctx: Any) -> Any:
        yield [ctx.key, ctx.watermark, ctx.key_watermark]


def test_where_snapshots_come_together_time_does_not_go_back_for_a_key() -> None:
    snapshots = []
    for key, watermark in (("ann", 10), ("bob", 5)):
        harness = OperatorHarness(Late())
        harness.process(0, key=key)
        harness.watermark(watermark)
        snapshots.append(harness.snapshot())
    for _ in range(2):  # also over one more restore
        restored = OperatorHarness.restore(Late(), snapshots)
        told = [restored.process(0, key=key)[0] for key in ("ann", "bob", "cid")]
        assert told == [["ann", 5, 10], ["bob", 5, 5], ["cid", 5, 5]]
        snapshots = [restored.snapshot()]
    restored.watermark(7)
    assert restored.process(0, key="ann") == [["ann", 7, 10]]
    restored.watermark(12)
    assert restored.process(0, key="ann") == [["ann", 12, 12]]


def test_time_does_not_go_back_for_a_key_that_came_in_front_of_the_first_watermark_and_a_restore() -> None:
    harness = OperatorHarness(Late())
    harness.process(0, key="ann")
    harness = OperatorHarness.restore(Late(), harness.snapshot())
    harness.watermark(10)
    other = OperatorHarness(Late())
    other.watermark(5)
    restored = OperatorHarness.restore(Late(), [harness.snapshot(), other.snapshot()])
    assert restored.process(0, key="ann") == [["ann", 5, 10]]


def test_an_operator_list_that_is_no_longer_declared_is_an_error() -> None:
    class Plain(Operator):
        def process(self, value: Any, ctx: Any) -> None: ...

    harness = OperatorHarness(Batches())
    harness.process(1)
    with pytest.raises(StateRestoreError, match="operator list state 'held'"):
        OperatorHarness.restore(Plain(), harness.snapshot())


def test_a_keyed_operator_has_lists_of_its_subtask_beside_the_state_of_keys() -> None:
    class Both(KeyedOperator):
        mean = AggregatingState[float, float](
            create=lambda: (0.0, 0), add=lambda acc, x: (acc[0] + x, acc[1] + 1), result=lambda acc: acc[0] / acc[1]
        )
        keys = OperatorListState[str]()

        def process(self, value: Any, ctx: Any) -> Iterable[Any]:
            self.mean.add(value)
            self.keys.append(ctx.key)
            yield [self.mean.value, list(self.keys)]

    harness = OperatorHarness(Both())
    harness.process(1.0, key="ann")
    harness.process(2.0, key="bob")
    restored = OperatorHarness.restore(Both(), harness.snapshot())
    assert restored.process(4.0, key="ann") == [[2.5, ["ann", "bob", "ann"]]]


# -- time -----------------------------------------------------------------------------------------------------


class Reminder(KeyedOperator):
    """One timer a record, at its value; with `by_the_clock` a processing timer."""

    def __init__(self, by_the_clock: bool = False) -> None:
        self.by_the_clock = by_the_clock

    def process(self, value: int, ctx: Any) -> None:
        if self.by_the_clock:
            ctx.processing_timer(value)
        else:
            ctx.timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        ctx.side_output("fired", (timestamp,))
        yield [ctx.key, timestamp, ctx.watermark]


def test_a_watermark_fires_the_timers_up_to_it_in_order() -> None:
    harness = OperatorHarness(Reminder())
    for at, key in ((20, "ann"), (10, "bob"), (30, "ann")):
        assert harness.process(at, key=key) == []
    assert harness.watermark(20) == [["bob", 10, 20], ["ann", 20, 20]]
    assert harness.watermark(20) == harness.watermark(5) == []
    assert harness.watermark(30) == [["ann", 30, 30]]
    assert harness.outputs == [["bob", 10, 20], ["ann", 20, 20], ["ann", 30, 30]]
    assert harness.side_outputs == {"fired": [(10,), (20,), (30,)]}


def test_operators_hear_of_watermarks_behind_the_timers() -> None:
    calls: list[Any] = []

    class Listens(Reminder):
        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            calls.append(("timer", timestamp))
            return ()

        def on_watermark(self, timestamp: int, ctx: Any) -> None:
            calls.append(("watermark", timestamp, ctx.watermark, ctx.key, ctx.timestamp))

    harness = OperatorHarness(Listens())
    harness.process(10, key="ann")
    harness.watermark(10)
    assert calls == [("timer", 10), ("watermark", 10, 10, None, None)]


def test_what_an_operator_emits_for_a_watermark_is_output() -> None:
    class Beats(Operator):
        def process(self, value: Any, ctx: Any) -> Any:
            return None

        def on_watermark(self, timestamp: int, ctx: Any) -> Any:
            return [("beat", timestamp)]

    assert OperatorHarness(Beats()).watermark(5) == [("beat", 5)]


def test_processing_time_passes_when_the_test_says_so() -> None:
    harness = OperatorHarness(Reminder(by_the_clock=True))
    for at, key in ((2000, "ann"), (1000, "bob")):
        harness.process(at, key=key)
    assert harness.advance_time(0.5) == []
    assert harness.advance_time(1.5) == [["bob", 1000, None], ["ann", 2000, None]]


def test_processing_time_can_begin_anywhere() -> None:
    clock = ManualClock(1_700_000_000.0)
    harness = OperatorHarness(Reminder(by_the_clock=True), clock=clock)
    harness.process(clock.milliseconds + 10, key="ann")
    assert harness.advance_time(0.01) == [["ann", 1_700_000_000_010, None]]


def test_timers_and_the_watermark_are_part_of_a_snapshot() -> None:
    harness = OperatorHarness(Reminder())
    harness.process(10, key="ann")
    harness.watermark(5)
    snapshot = harness.snapshot()
    harness.watermark(50)
    restored = OperatorHarness.restore(Reminder(), snapshot)
    assert restored.watermark(5) == []
    assert restored.watermark(15) == [["ann", 10, 15]]


def test_processing_timers_that_came_due_while_the_job_was_down_fire_after_the_restore() -> None:
    harness = OperatorHarness(Reminder(by_the_clock=True))
    harness.process(1000, key="ann")
    restored = OperatorHarness.restore(Reminder(by_the_clock=True), harness.snapshot(), clock=ManualClock(60.0))
    assert restored.advance_time(0) == [["ann", 1000, None]]


def test_a_timer_can_be_taken_back() -> None:
    class PutsOff(KeyedOperator):
        until = ValueState(default=0)

        def process(self, value: int, ctx: Any) -> None:
            if self.until.value:
                ctx.delete_timer(self.until.value)
            self.until.value = value
            ctx.timer(value)

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            yield timestamp

    harness = OperatorHarness(PutsOff())
    for at in (10, 20, 30):
        harness.process(at, key="ann")
    assert harness.watermark(100) == [30]


def test_an_operator_without_a_key_has_no_timers() -> None:
    class Sets(Operator):
        def process(self, value: Any, ctx: Any) -> None:
            ctx.timer(value)

    with pytest.raises(StateAccessError, match="derive the operator from KeyedOperator"):
        OperatorHarness(Sets()).process(1)


# -- what a source tells of a record, and what the harness has to be told ---------------------------------------------


class TellsOrigin(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        yield [ctx.topic, ctx.partition, ctx.offset, [list(header) for header in ctx.headers], ctx.kafka_key]

    def process_connected(self, value: Any, ctx: Any) -> Any:
        yield ctx.offset

    def on_watermark(self, timestamp: int, ctx: Any) -> Any:
        yield hasattr(ctx, "offset")


def test_a_record_may_have_what_its_source_tells_of_it() -> None:
    harness = OperatorHarness(TellsOrigin())
    found = harness.process(
        1, topic="orders", partition=3, offset=17, headers=[("trace", b"x"), ("none", None)], kafka_key="ann"
    )
    assert found == [["orders", 3, 17, [["trace", b"x"], ["none", None]], "ann"]]
    assert harness.process_connected(1, offset=5) == [5]
    assert harness.watermark(1) == [False]


def test_what_was_not_given_of_a_record_is_named() -> None:
    harness = OperatorHarness(TellsOrigin())
    with pytest.raises(AttributeError, match=r"ctx.partition is not known of .*: give it with the record, partition="):
        harness.process(1, topic="orders")
    with pytest.raises(TypeError, match=r"there is no 'ofset'.*did you mean 'offset'"):
        harness.process(1, ofset=3)  # type: ignore[call-arg]


class WritesRules(Operator):
    rules = BroadcastState[str, Any]()

    def process(self, value: Any, ctx: Any) -> Any:
        yield self.rules.get(value)

    def process_connected(self, value: Any, ctx: Any) -> Any:
        self.rules[value] = 1


def test_a_harness_that_was_not_told_of_a_broadcast_stream_says_how_to() -> None:
    with pytest.raises(StateAccessError, match=r'OperatorHarness\(WritesRules\(…\), broadcast="process_connected"\)'):
        OperatorHarness(WritesRules()).process_connected("a")
    harness = OperatorHarness(WritesRules(), broadcast="process_connected")
    harness.process_connected("a")
    assert harness.process("a") == [1]


class Sound(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        yield value


class Async(Operator):
    async def process(self, value: Any, ctx: Any) -> Any:
        return [value]


class WithoutContext(Operator):
    def process(self, value: Any) -> Any:  # type: ignore[override]
        yield value


class WithoutProcess(Operator):
    def proces(self, value: Any, ctx: Any) -> Any:
        yield value


class StateOfAnInstance(Sound):
    def __init__(self) -> None:
        self.seen = ValueState(default=0)


@pytest.mark.parametrize(
    ("operator", "says"),
    [
        (Sound, r"^give an instance, Sound\(\), not the class"),
        (Async(), "^Async.process is async"),
        (WithoutContext(), r"^WithoutContext.process can't be called with \(value, ctx\)"),
        (WithoutProcess(), r"^WithoutProcess has no method process\(value, ctx\)"),
        (StateOfAnInstance(), "^StateOfAnInstance.seen is a ValueState made for an instance"),
        (print, "^expected an Operator, not builtin_function_or_method"),
    ],
)
def test_what_a_job_would_refuse_is_refused(operator: Any, says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        OperatorHarness(operator)


@pytest.mark.parametrize("timestamp", ["2026-11-29", 1.5, True])
def test_a_timestamp_is_an_int(timestamp: Any) -> None:
    with pytest.raises(TypeError, match="a timestamp is an int, in milliseconds since the epoch"):
        OperatorHarness(Sound()).process(1, timestamp=timestamp)


def test_behind_the_end_of_event_time_a_timer_for_later_than_any_time_is_dropped() -> None:
    """Also if no event timer has fired at the end."""

    class AsksLate(KeyedOperator):
        def process(self, value: Any, ctx: Any) -> Any:
            ctx.processing_timer(0)

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            ctx.timer(2**63 + 5)
            yield "asked"

    harness = OperatorHarness(AsksLate())
    harness.process("x", key="k")
    assert harness.end_of_input() == ["asked"]
    assert harness.timers_dropped == 1
