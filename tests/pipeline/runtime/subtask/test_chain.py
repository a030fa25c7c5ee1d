"""Steps joined into one function: what each does, what they share, and in which order they open and close."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from chains import Build, chain_of, run

from checkpoint.codec import EncodingError, encode_key
from checkpoint.errors import Explained
from checkpoint.key_groups import key_group
from checkpoint.state import StateAccessError, StateRestoreError, make_backend
from pipeline import (
    BroadcastState,
    KeyedOperator,
    Operator,
    OperatorListState,
    ValueState,
    WatermarkStrategy,
)
from pipeline.runtime.subtask.chain import Chain
from pipeline.streams import Stream
from pipeline.testing import ManualClock


class Twice(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        yield value
        yield value


class Split(Operator):
    """Odd numbers go to the side."""

    def process(self, value: int, ctx: Any) -> Any:
        if value % 2:
            ctx.side_output("odd", value)
        else:
            yield value


# -- what steps do --------------------------------------------------------------------------------------------


def test_map_filter_and_flat_map() -> None:
    assert run(lambda s: s.map(lambda v: v * 10, id="x"), [1, 2], "x") == [10, 20]
    assert run(lambda s: s.filter(lambda v: v > 1, id="x"), [1, 2, 3], "x") == [2, 3]
    assert run(lambda s: s.flat_map(range, id="x"), [2, 0, 3], "x") == [0, 1, 0, 1, 2]


@pytest.mark.parametrize(
    ("returned", "emitted"),
    [(lambda v: None, []), (lambda v: [], []), (lambda v: [v, v], [1, 1]), (lambda v: iter((v,)), [1])],
)
def test_process_may_return_an_iterable_or_none(returned: Any, emitted: list[int]) -> None:
    class Returns(Operator):
        def process(self, value: Any, ctx: Any) -> Any:
            return returned(value)

    assert run(lambda s: s.process("x", Returns()), [1], "x") == emitted


def test_records_go_depth_first_so_that_none_is_in_progress_between_two() -> None:
    trace: list[Any] = []

    def note(name: str) -> Callable[[Any], Any]:
        def step(value: Any) -> Any:
            trace.append((name, value))
            return value

        return step

    chain, _ = chain_of(lambda s: s.process("twice", Twice()).map(note("a")).map(note("b")))
    chain.push(1)
    assert trace == [("a", 1), ("b", 1), ("a", 1), ("b", 1)]


def test_a_record_goes_to_every_reader_of_a_step() -> None:
    left: list[Any] = []
    right: list[Any] = []
    edge: list[Any] = []

    def build(s: Stream) -> None:
        s.map(left.append, id="left")
        s.map(right.append, id="right")

    chain, _ = chain_of(build, {("in", None): [edge.append]})
    chain.push(1)
    assert (left, right, edge) == ([1], [1], [1])


def test_the_output_of_a_last_step_that_nobody_reads_is_dropped() -> None:
    seen: list[Any] = []
    chain, _ = chain_of(lambda s: s.map(seen.append))
    chain.push(1)
    assert seen == [1]


# -- side outputs ---------------------------------------------------------------------------------------------


def test_a_side_output_goes_to_its_readers_and_not_downstream() -> None:
    build: Build = lambda s: s.process("split", Split()).side_output("odd").map(str, id="odd")  # noqa: E731
    main: list[Any] = []
    side: list[Any] = []
    chain, _ = chain_of(build, {("split", None): [main.append], ("odd", None): [side.append]})
    for value in range(5):
        chain.push(value)
    assert (main, side) == ([0, 2, 4], ["1", "3"])


def test_a_side_output_crosses_edges() -> None:
    assert run(lambda s: s.process("split", Split()), [1, 2, 3], "split", tag="odd") == [1, 3]


class Label(Operator):
    """Emits to the side under a tag that other steps use, too, before and after each output."""

    def __init__(self, name: str) -> None:
        self.name = name

    def process(self, value: Any, ctx: Any) -> Any:
        ctx.side_output("note", f"{self.name} before {value}")
        yield value
        ctx.side_output("note", f"{self.name} after {value}")


def test_steps_that_use_one_tag_have_each_their_own_side_output() -> None:
    first: list[Any] = []
    second: list[Any] = []
    build: Build = lambda s: s.process("first", Label("first")).process("second", Label("second"))  # noqa: E731
    chain, _ = chain_of(build, {("first", "note"): [first.append], ("second", "note"): [second.append]})
    chain.push(1)
    assert first == ["first before 1", "first after 1"]
    assert second == ["second before 1", "second after 1"]


def test_a_step_whose_side_output_nobody_reads_does_not_emit_to_that_of_another() -> None:
    notes: list[Any] = []
    build: Build = lambda s: s.process("first", Label("first")).process("second", Label("second"))  # noqa: E731
    chain, _ = chain_of(build, {("first", "note"): [notes.append]})
    chain.push(1)
    assert notes == ["first before 1", "first after 1"]


def test_a_reader_of_a_side_output_does_not_emit_to_the_side_output_that_it_reads() -> None:
    emitted: list[Any] = []
    build: Build = lambda s: s.process("a", Label("a")).side_output("note").process("b", Label("b"))  # noqa: E731
    chain, _ = chain_of(build, {("b", None): [emitted.append]})
    chain.push(1)
    assert emitted == ["a before 1", "a after 1"]


# -- what is shared and what not ------------------------------------------------------------------------------


def change(value: dict[str, Any]) -> dict[str, Any]:
    value["changed"] = True
    value["deep"].append(1)
    return value


def test_a_reader_that_changes_a_record_in_place_does_not_change_it_for_the_others() -> None:
    seen: list[Any] = []

    def build(s: Stream) -> None:
        s.map(change, id="changing")
        s.map(lambda v: seen.append(dict(v)), id="looking")
        s.map(change, id="changing too")

    sent: list[Any] = []
    chain, _ = chain_of(build, {("in", None): [lambda value: sent.append(repr(value))]})
    chain.push({"id": 1, "deep": []})
    assert seen == [{"id": 1, "deep": []}]
    assert sent == ["{'id': 1, 'deep': []}"]


class Collect(KeyedOperator):
    """Emits the very list that lies in its state."""

    seen = ValueState(default=list)

    def process(self, value: Any, ctx: Any) -> Any:
        self.seen.value.append(value)
        yield self.seen.value
        ctx.side_output("also", self.seen.value)


@pytest.mark.parametrize("tag", [None, "also"])
def test_a_chained_step_never_holds_what_lies_in_keyed_state(tag: str | None) -> None:
    held: list[Any] = []

    def build(s: Stream) -> None:
        step = s.key_by(0).process("collect", Collect())
        (step if tag is None else step.side_output(tag)).map(held.append, id="hold")

    backend = make_backend(range(128), 128)
    chain, _ = chain_of(build, vertex=1, backend=backend)
    key = encode_key("k")
    backend.set_current_key(key, key_group(key, 128))
    chain.push(1)
    held[0].append("changed by the step that holds it")
    chain.push(2)
    assert held == [[1, "changed by the step that holds it"], [1, 2]]


# -- two inputs, broadcast state ------------------------------------------------------------------------------


class Rules(Operator):
    """The second stream's records are rules, the first's are looked up in them."""

    rules = BroadcastState[str, Any]()

    def process(self, value: Any, ctx: Any) -> Any:
        yield [value, self.rules.get(value)]
        if value == "write":
            self.rules["x"] = 0

    def process_connected(self, value: Any, ctx: Any) -> Any:
        self.rules[value[0]] = value[1]
        ctx.side_output("changed", value[0])


class KeyedRules(KeyedOperator):
    rules = BroadcastState[str, Any]()
    count = ValueState(default=0)

    def process(self, value: Any, ctx: Any) -> Any:
        self.count.value += 1
        yield [self.rules.get("limit"), self.count.value]

    def process_connected(self, value: Any, ctx: Any) -> Any:
        if value == "count":
            self.count.value += 1
        self.rules["limit"] = value


def with_rules(s: Stream) -> Stream:
    return s.rebalance().connect(s.broadcast()).process("rules", Rules())


def test_a_connected_step_has_an_entry_for_each_input() -> None:
    emitted: list[Any] = []
    changed: list[Any] = []
    outputs: dict[Any, list[Any]] = {("rules", None): [emitted.append], ("rules", "changed"): [changed.append]}
    chain, _ = chain_of(with_rules, outputs, vertex=1)
    assert chain.push_connected is not None
    chain.push("a")
    chain.push_connected(["a", 1])
    chain.push("a")
    assert emitted == [["a", None], ["a", 1]]
    assert changed == ["a"]


def test_a_step_with_one_input_has_no_second_entry() -> None:
    assert chain_of(lambda s: s.map(str))[0].push_connected is None


def test_what_was_in_flight_enters_at_its_step_chained_or_not() -> None:
    """In-flight data belongs to the operator it was sent to, which may be chained to another now."""
    emitted: list[Any] = []

    def build(s: Stream) -> Stream:
        return with_rules(s).map(lambda v: [*v, "first"], id="first").map(lambda v: [*v, "second"], id="second")

    chain, _ = chain_of(build, {("second", None): [emitted.append]}, vertex=1)
    chain.entry("rules", 1)(["a", 1])
    chain.entry("rules", 0)("a")
    chain.entry("first", 0)(["b"])
    chain.entry("second", 0)(["c"])
    assert emitted == [["a", 1, "first", "second"], ["b", "first", "second"], ["c", "second"]]
    for step, number in (("first", 1), ("gone", 0)):
        with pytest.raises(LookupError, match=f"no input {number} of step '{step}'"):
            chain.entry(step, number)


def test_broadcast_state_is_changed_by_broadcast_records_only() -> None:
    chain, _ = chain_of(with_rules, vertex=1)
    with pytest.raises(StateAccessError, match="can be changed only while a record of a broadcast stream"):
        chain.push("write")


def test_broadcast_state_is_closed_again_after_a_record_that_failed() -> None:
    chain, _ = chain_of(with_rules, vertex=1)
    assert chain.push_connected is not None
    with pytest.raises(TypeError):
        chain.push_connected(7)
    with pytest.raises(StateAccessError):
        chain.push("write")


def test_the_first_of_two_streams_may_be_the_broadcast_one() -> None:
    class Reversed(Rules):
        process = Rules.process_connected
        process_connected = Rules.process

    emitted: list[Any] = []
    chain, _ = chain_of(
        lambda s: s.broadcast().connect(s).process("rules", Reversed()), {("rules", None): [emitted.append]}, vertex=1
    )
    assert chain.push_connected is not None
    chain.push(["a", 1])
    chain.push_connected("a")
    assert emitted == [["a", 1]]
    with pytest.raises(StateAccessError):
        chain.push_connected("write")


def test_keyed_and_broadcast_state_live_side_by_side() -> None:
    emitted: list[Any] = []
    backend = make_backend(range(128), 128)
    chain, _ = chain_of(
        lambda s: s.key_by(0).connect(s.broadcast()).process("x", KeyedRules()),
        {("x", None): [emitted.append]},
        vertex=1,
        backend=backend,
    )
    assert chain.push_connected is not None
    chain.push_connected(5)
    backend.set_current_key(encode_key("k"), key_group(encode_key("k"), 128))
    chain.push(1)
    assert emitted == [[5, 1]]
    backend.clear_current_key()
    with pytest.raises(StateAccessError, match="no current key"):
        chain.push_connected("count")


def test_broadcast_state_comes_back_in_another_chain() -> None:
    chain, _ = chain_of(with_rules, vertex=1)
    assert chain.broadcast_snapshot() == {}
    assert chain.push_connected is not None
    chain.push_connected(["a", (1, 2)])
    snapshot = chain.broadcast_snapshot()
    chain.push_connected(["a", "later"])
    emitted: list[Any] = []
    restored, _ = chain_of(with_rules, {("rules", None): [emitted.append]}, vertex=1)
    restored.restore_broadcast("rules", snapshot["rules"])
    restored.push("a")
    assert emitted == [["a", (1, 2)]]
    assert restored.broadcast_snapshot() == snapshot


def test_restored_broadcast_state_that_nobody_declares_is_refused() -> None:
    chain, _ = chain_of(lambda s: s.process("twice", Twice()))
    with pytest.raises(StateRestoreError, match="broadcast state 'rules'"):
        chain.restore_broadcast("twice", {"rules": {}})
    chain.restore_broadcast("twice", {"rules": {}}, allow_unclaimed=True)


def test_a_chained_step_never_holds_what_lies_in_broadcast_state() -> None:
    held: list[Any] = []
    chain, _ = chain_of(lambda s: with_rules(s).map(held.append, id="hold"), vertex=1)
    assert chain.push_connected is not None
    chain.push_connected(["a", [1]])
    chain.push("a")
    held[0][1].append("changed by the step that holds it")
    chain.push("a")
    assert held[1] == ["a", [1]]


# -- operator lists -------------------------------------------------------------------------------------------


class Keeps(Operator):
    """Keeps what it gets in a list of the subtask and emits it; `snapshot` adds a note."""

    kept = OperatorListState[Any]()

    def __init__(self) -> None:
        self.found: list[Any] = []

    def process(self, value: Any, ctx: Any) -> Any:
        self.kept.append(value)
        yield self.kept[-1]
        yield value

    def snapshot(self, checkpoint_id: int) -> Any:
        self.kept.append(f"checkpoint {checkpoint_id}")
        return "own"

    def restore(self, state: Any) -> None:
        self.found.append((state, list(self.kept)))


def test_operator_lists_come_back_before_the_operators_own_state() -> None:
    chain, _ = chain_of(lambda s: s.process("keeps", Keeps()).process("twice", Twice()))
    chain.push(1)
    own = chain.snapshot(7)
    lists = chain.freeze_lists()
    chain.push(2)
    assert list(lists) == ["keeps"]
    restored, _ = chain_of(lambda s: s.process("keeps", Keeps()))
    restored.restore_lists("keeps", lists["keeps"].stored())
    operator = restored.operators["keeps"]
    operator.restore(own["keeps"])
    assert operator.found == [("own", [1, "checkpoint 7"])]  # type: ignore[attr-defined]


def test_restored_operator_lists_that_nobody_declares_are_refused() -> None:
    chain, _ = chain_of(lambda s: s.process("twice", Twice()))
    stored = {"operator list": {"kept": [[1, b""]]}}
    with pytest.raises(StateRestoreError, match="operator list state 'kept'"):
        chain.restore_lists("twice", stored)
    chain.restore_lists("twice", stored, allow_unclaimed=True)


def test_a_chained_step_may_change_what_lies_in_an_operator_list_without_changing_the_list() -> None:
    chain, _ = chain_of(lambda s: s.process("keeps", Keeps()).map(lambda v: v.append("changed"), id="change"))
    chain.push([1])
    assert list(chain.operators["keeps"].kept) == [[1]]  # type: ignore[attr-defined]


# -- map_batches ----------------------------------------------------------------------------------------------


def test_batches_are_flushed_in_the_order_of_the_chain_so_that_nothing_stays_in_progress() -> None:
    emitted: list[Any] = []

    def build(s: Stream) -> Stream:
        return s.map_batches(lambda batch: batch).map(lambda v: v).map_batches(lambda batch: batch, id="last")

    clock = ManualClock()
    chain, _ = chain_of(build, {("last", None): [emitted.append]}, clock=clock)
    for i in range(100):
        chain.push({"id": i})
    assert len(emitted) < 100
    chain.flush()
    assert emitted == [{"id": i} for i in range(100)]


def test_record_batches_reach_batch_steps_whole_and_others_row_by_row_in_order() -> None:
    taken: list[Any] = []
    rows: list[tuple[Any, ...]] = []
    edge: list[Any] = []

    def take(batch: pa.RecordBatch) -> pa.RecordBatch:
        taken.append(batch)
        return batch

    def build(s: Stream) -> None:
        s.map_batches(take).map_batches(take, id="last")
        s.map(look, id="rows")

    def look(value: Any) -> Any:
        rows.append((value["id"], record.timestamp, record.source_rows[record.row].offset))
        return value

    chain, record = chain_of(build, {("last", None): [edge.append]})
    record.source_rows = [SimpleNamespace(offset=100 + i) for i in range(4)]
    record.row = 1
    batch = pa.record_batch({"id": pa.array([1, 2, 3], pa.int8())})
    assert chain.push_batch is not None
    chain.push_batch(batch, [11, None, 13])
    assert taken == [batch, batch]
    assert edge == batch.to_pylist()
    assert rows == [(1, 11, 101), (2, None, 102), (3, 13, 103)]
    assert record.row == 1


def test_a_chain_without_batch_steps_behind_its_source_takes_rows() -> None:
    assert chain_of(lambda s: s.map(lambda v: v).map_batches(lambda batch: batch))[0].push_batch is None


# -- life -----------------------------------------------------------------------------------------------------


class Alive(Operator):
    def __init__(self, name: str, trace: list[str], fails: str = "") -> None:
        self.name, self.trace, self.fails = name, trace, fails

    def _do(self, what: str) -> None:
        self.trace.append(f"{what} {self.name}")
        if self.fails == what:
            raise RuntimeError(f"{what} of {self.name} failed")

    def open(self, ctx: Any) -> None:
        self._do("open")

    def process(self, value: Any, ctx: Any) -> Any:
        yield value

    def close(self) -> None:
        self._do("close")

    def snapshot(self, checkpoint_id: int) -> Any:
        self._do("snapshot")
        return None if self.name == "b" else {"of": self.name}

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._do(f"complete {checkpoint_id}")

    def on_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._do(f"aborted {checkpoint_id}")


def three(trace: list[str], **fails: str) -> Chain:
    def build(s: Stream) -> None:
        for name in "abc":
            s = s.process(name, Alive(name, trace, fails.get(name, "")))

    return chain_of(build)[0]


def test_operators_open_from_the_last_to_the_head_and_close_from_the_head_to_the_last() -> None:
    trace: list[str] = []
    chain = three(trace)
    chain.open()
    chain.close()
    assert trace == ["open c", "open b", "open a", "close a", "close b", "close c"]


def test_all_are_closed_even_if_one_fails() -> None:
    trace: list[str] = []
    chain = three(trace, a="close", b="close")
    chain.open()
    trace.clear()
    with pytest.raises(RuntimeError, match="close of"):
        chain.close()
    assert trace == ["close a", "close b", "close c"]


def test_an_operator_that_failed_to_open_is_closed_and_those_never_opened_are_not() -> None:
    trace: list[str] = []
    chain = three(trace, b="open")
    with pytest.raises(RuntimeError, match="open of b failed"):
        chain.open()
    chain.close()
    assert trace == ["open c", "open b", "close b", "close c"]


def test_closing_twice_closes_once() -> None:
    trace: list[str] = []
    chain = three(trace)
    chain.open()
    chain.close()
    trace.clear()
    chain.close()
    assert trace == []


def test_a_snapshot_holds_the_operators_that_have_state_of_their_own() -> None:
    assert three([]).snapshot(7) == {"a": {"of": "a"}, "c": {"of": "c"}}


def test_every_operator_is_told_how_a_checkpoint_ended() -> None:
    trace: list[str] = []
    chain = three(trace)
    chain.notify(4, completed=True)
    chain.notify(5, completed=False)
    assert sorted(trace) == [f"{how} {name}" for how in ("aborted 5", "complete 4") for name in "abc"]


@pytest.mark.parametrize("returned", [{"user": 1}, "text", b"bytes"])
@pytest.mark.parametrize("with_side_output", [False, True])
def test_one_record_returned_bare_is_refused_and_not_taken_apart(returned: Any, with_side_output: bool) -> None:
    class Bare(Operator):
        def process(self, value: Any, ctx: Any) -> Any:
            return returned

    def build(stream: Stream) -> Stream:
        bare = stream.process("x", Bare())
        if with_side_output:
            bare.side_output("side").map(str, id="reader")
        return bare

    with pytest.raises(TypeError, match=r"Bare.process returned a (dict|str|bytes).*yield"):
        run(build, [1], "x")
    with pytest.raises(TypeError, match=r"flat_map returned a (dict|str|bytes).*yield"):
        run(lambda s: s.flat_map(lambda v: returned, id="x"), [1], "x")


def test_a_flat_map_may_return_none() -> None:
    assert run(lambda s: s.flat_map(lambda v: [v] if v > 1 else None, id="x"), [1, 2], "x") == [2]


# -- contexts -------------------------------------------------------------------------------------------------


class Emits(KeyedOperator):
    """Emits to the side whatever it is told, by the context that it got when it was opened."""

    def open(self, ctx: Any) -> None:
        self.ctx = ctx
        ctx.side_output("told", "open")

    def process(self, value: Any, ctx: Any) -> Any:
        assert ctx is self.ctx
        ctx.side_output("told", value)

    def snapshot(self, checkpoint_id: int) -> Any:
        self.ctx.side_output("told", "snapshot")

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.ctx.side_output("told", "complete")

    def on_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.ctx.side_output("told", "aborted")

    def on_watermark(self, timestamp: int, ctx: Any) -> Any:
        ctx.side_output("told", "watermark")

    def close(self) -> None:
        self.ctx.side_output("told", "close")


def test_only_what_belongs_to_a_record_or_a_timer_goes_to_a_side_output() -> None:
    told: list[Any] = []
    backend = make_backend(range(16), 16)
    chain, _ = chain_of(
        lambda s: s.key_by(lambda v: v).process("x", Emits()), {("x", "told"): [told.append]}, vertex=1, backend=backend
    )
    chain.open()
    chain.push("before")
    chain.snapshot(1)
    chain.notify(1, completed=True)
    chain.notify(2, completed=False)
    for _, on_watermark in chain.time.head.listeners:
        on_watermark(5)
    chain.push("after")
    chain.close()
    assert told == ["before", "after"]


def test_each_step_sees_the_watermark_of_its_domain() -> None:
    seen: list[Any] = []

    class Look(Operator):
        def __init__(self, name: str):
            self.name = name

        def process(self, value: Any, ctx: Any) -> Any:
            seen.append((self.name, ctx.timestamp, ctx.watermark))
            yield value
            seen.append((f"{self.name} again", ctx.timestamp, ctx.watermark))

    def build(s: Stream) -> None:
        front = s.process("front", Look("front"))
        front.assign_timestamps(WatermarkStrategy.bounded("at", 0), id="times").process("behind", Look("behind"))
        front.process("beside", Look("beside"))

    chain, record = chain_of(build)
    chain.time.head.show(3)
    chain.time.of["behind"].show(40)
    record.timestamp = 7
    chain.push({"at": 50})
    assert seen == [
        ("front", 7, 3),
        ("behind", 50, 40),
        ("behind again", 50, 40),
        ("beside", 7, 3),
        ("beside again", 7, 3),
        ("front again", 7, 3),
    ]


# -- which step an exception came from ------------------------------------------------------------------------


class Fails(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        yield value
        raise ValueError(value)


def no_good(value: Any) -> Any:
    raise ValueError(value)


class Wrong:
    def method(self, value: Any) -> Any:
        raise ValueError(value)


BY_NOTHING = WatermarkStrategy.bounded(lambda v: 1, 0)
FAILING: dict[str, tuple[Build, str | None]] = {
    "a function": (lambda s: s.map(lambda v: v, id="a").map(no_good, id="b").map(lambda v: v, id="c"), "b"),
    "a filter": (lambda s: s.process("a", Twice()).filter(no_good, id="b"), "b"),
    "an operator": (lambda s: s.map(lambda v: v, id="a").process("b", Fails()).map(lambda v: v, id="c"), "b"),
    "behind an operator": (lambda s: s.process("a", Twice()).map(no_good, id="b"), "b"),
    "what has no frame": (lambda s: s.map(lambda v: v, id="a").map(int, id="b"), "b"),
    "a field of timestamps": (
        lambda s: s.map(lambda v: {"at": v}, id="a").assign_timestamps(WatermarkStrategy.bounded("at", 0), id="b"),
        "b",
    ),
    "a function of batches": (
        lambda s: s.map(lambda v: {"at": v}, id="a").map_batches(no_good, id="b").map(lambda v: v, id="c"),
        "b",
    ),
    "behind batches": (
        lambda s: s.map(lambda v: {"at": v}, id="a").map_batches(lambda b: b, id="b").map(no_good, id="c"),
        "c",
    ),
    "a method that is no operator's": (lambda s: s.map(lambda v: v, id="a").map(Wrong().method, id="b"), "b"),
    "a flat map": (lambda s: s.flat_map(lambda v: [v], id="a").flat_map(no_good, id="b"), "b"),
    "behind it": (lambda s: s.assign_timestamps(BY_NOTHING, id="a").map(int, id="b"), "b"),
}


@pytest.mark.parametrize(("build", "step"), FAILING.values(), ids=FAILING)
def test_the_step_that_an_exception_came_from_is_told(build: Build, step: str | None) -> None:
    chain, _ = chain_of(build)
    with pytest.raises(ValueError) as caught:  # noqa: PT011, PT012
        chain.push("no number")
        chain.flush()
    assert chain.step_of(caught.value) == step


class Returns(Operator):
    def __init__(self, value: Any):
        self.value = value

    def process(self, value: Any, ctx: Any) -> Any:
        return self.value


class ReturnsBesideSides(Returns):
    def process(self, value: Any, ctx: Any) -> Any:
        ctx.side_output("odd", value)
        return self.value


class Kind(Enum):
    A = 1


MEANT_FOR_ONE = (7, 1.5, True, "abc", b"abc", {"a": 1}, Kind.A, date(2026, 1, 1))


@pytest.mark.parametrize("value", MEANT_FOR_ONE, ids=repr)
@pytest.mark.parametrize("step", ["process", "process with sides", "flat_map"])
def test_one_record_where_a_list_is_expected_is_named_with_its_step(step: str, value: Any) -> None:
    def build(s: Stream) -> Stream:
        if step == "flat_map":
            return s.flat_map(lambda v: value, id="x").map(lambda v: v, id="y")
        operator = Returns(value) if step == "process" else ReturnsBesideSides(value)
        stream = s.process("x", operator)
        if step != "process":
            stream.side_output("odd").map(str, id="odd")
        return stream.map(lambda v: v, id="y")

    chain, _ = chain_of(build)
    with pytest.raises(TypeError, match="yield it, or return it in a list") as caught:
        chain.push(1)
    assert isinstance(caught.value, Explained)
    assert chain.step_of(caught.value) == "x"


@pytest.mark.parametrize("operator", [Returns([1j]), ReturnsBesideSides([1j])])
def test_what_can_not_go_on_names_the_step_that_emitted_it(operator: Operator) -> None:
    def build(s: Stream) -> Stream:
        stream = s.process("x", operator)
        if isinstance(operator, ReturnsBesideSides):
            stream.side_output("odd").map(str, id="odd")
        return stream.map(lambda v: v, id="y")

    chain, _ = chain_of(build)
    with pytest.raises(EncodingError) as caught:
        chain.push(1)
    assert chain.step_of(caught.value) == "x"


def test_a_type_error_of_the_users_stays_one() -> None:
    """However it comes up: from the step's own code, or from a step behind it."""

    class Adds(Operator):
        def process(self, value: Any, ctx: Any) -> Any:
            ctx.side_output("odd", value)
            return [value + None]

    def build(s: Stream) -> Stream:
        stream = s.process("x", Adds())
        stream.side_output("odd").map(lambda v: v, id="odd")
        return stream

    chain, _ = chain_of(build)
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        chain.push(1)
    assert chain.step_of(caught.value) == "x"
    chain, _ = chain_of(lambda s: s.process("x", Returns([1])).map(lambda v: v + None, id="y"))
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        chain.push(1)
    assert chain.step_of(caught.value) == "y"
