"""A record that an operator fails on leaves nothing: an operator that gets only the others does the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.codec import encode
from checkpoint.errors import NotOfTheRecord, PermanentFailure
from checkpoint.state import (
    TTL,
    AggregatingState,
    BroadcastState,
    ListState,
    MapState,
    OperatorListState,
    OperatorUnionState,
    ReducingState,
    ValueState,
    read_batches,
)
from pipeline import AtMost, KeyedOperator, Operator, Skip, Sum, Tumbling
from pipeline.aggregates import Aggregation
from pipeline.graph import StepKind
from pipeline.on_error import ERRORS
from pipeline.plan import PlannedStep, Vertex
from pipeline.runtime.subtask.chain import Chain
from pipeline.runtime.subtask.context import Context, contexts_of
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.steps.failed_records import TooManyFailures
from pipeline.runtime.subtask.steps.guarded import holding
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from pipeline.testing import OperatorHarness
from pipeline.testing.harness import HarnessSnapshot
from pipeline.windows.operator import Options
from pipeline.windows.operator_choice import operator_of

LIVING = TTL(5, refresh="read_and_write")


class Boom(Exception):
    pass


def added(accumulator: list[Any], value: Any) -> list[Any]:
    accumulator.append(value)
    return accumulator


class Busy(KeyedOperator):
    """Does what its records say."""

    count = ValueState(default=0)
    bag = ValueState[Any](default=list)
    old_bag = ValueState[Any](default=list, ttl=LIVING)
    items = ListState[Any]()
    old_items = ListState[Any](ttl=LIVING)
    dict = MapState[Any, Any]()
    old_dict = MapState[Any, Any](ttl=LIVING)
    largest = ReducingState(max)
    gathered = AggregatingState[Any, Any](list, added, list)
    seen = OperatorListState[Any]()
    told = OperatorUnionState[Any]()
    rules = BroadcastState[Any, Any]()

    fails = True

    def process(self, record: Any, ctx: Any) -> Iterable[Any] | None:
        style, steps = record
        return self.run(steps, ctx) if style == "yield" else list(self.run(steps, ctx))

    def process_connected(self, record: Any, ctx: Any) -> Iterable[Any] | None:
        for name, *args in record:
            match name:
                case "put":
                    self.rules[args[0]] = [args[1]]
                case "remove":
                    self.rules.pop(args[0], None)
                case "clear":
                    self.rules.clear()
                case "spoil":  # by a record that fails next
                    for rule in self.rules.values():
                        rule.append("spoilt")
                    raise Boom
        return [sorted(self.rules)]

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any] | None:
        if timestamp % 3 == 0:
            if not self.fails:
                return
            self.count.value += 1000
            self.bag.value.append(timestamp)
            ctx.timer(timestamp + 1)
            yield "lost"
            raise Boom
        self.count.value += 1
        yield timestamp, self.count.value

    def run(self, steps: Any, ctx: Any) -> Iterator[Any]:
        shown: list[Any] = []
        try:
            for name, *args in steps:
                if name == "emit":
                    shown.append(args[0])
                    yield shown  # which is changed later
                elif name == "fail":
                    for rule in self.rules.values():
                        rule.append("spoilt")
                    raise Boom("no more")
                else:
                    self.do(ctx, name, *args)
        finally:
            self.count.value += 7

    def do(self, ctx: Any, name: str, *args: Any) -> None:
        if name == "side":
            ctx.side_output("side", args[0])
        elif name == "count":
            self.count.value += args[0]
        elif name == "largest":
            self.largest.add(args[0])
        elif name == "gathered":
            self.gathered.add(args[0])
        elif name == "timer":
            ctx.timer(args[0])
        elif name == "processing_timer":
            ctx.processing_timer(args[0] * 1000)
        elif name == "delete_timer":
            ctx.delete_timer(args[0])
        else:
            self.change(getattr(self, args[0]), name, *args[1:])

    def change(self, state: Any, name: str, *args: Any) -> None:
        match name:
            case "clear":
                state.clear()
            case "in place":
                state.value.append(args[0])
            case "put again":
                value = state.value
                value.append(args[0])
                state.value = value
            case "replace":
                state.value = [args[0]]
            case "append":
                state.append([args[0]])
            case "extend":
                state.extend([[args[0]], [args[0] + 1]])
            case "update":
                state.update([[args[0]]])
            case "change items":
                for item in state.get():
                    item.append(args[0])
            case "set":
                state[args[0]] = [args[0]]
            case "remove":
                state.pop(args[0], None)
            case "look":
                state.get(args[0])
            case "change entry":
                if args[0] in state:
                    state[args[0]].append("more")
            case "change entries":
                for value in state.values():
                    value.append("more")


class Patient(Busy):
    """Gets only what `Busy` does not fail on."""

    fails = False


small = st.integers(0, 4)
bags, lists, maps = (
    st.sampled_from(["bag", "old_bag"]),
    st.sampled_from(["items", "old_items"]),
    st.sampled_from(["dict", "old_dict"]),
)
of_subtasks = st.sampled_from(["seen", "told"])
step = st.one_of(
    st.tuples(st.sampled_from(["emit", "side", "count", "largest", "gathered", "processing_timer"]), small),
    st.tuples(st.sampled_from(["timer", "delete_timer"]), st.integers(0, 30)),
    st.tuples(st.sampled_from(["in place", "put again", "replace"]), bags, small),
    st.tuples(st.sampled_from(["append", "extend", "update", "change items"]), lists, small),
    st.tuples(st.sampled_from(["set", "set", "remove", "look", "change entry", "change entries"]), maps, small),
    st.tuples(st.just("clear"), st.one_of(bags, lists, maps, of_subtasks)),
    st.tuples(st.sampled_from(["append", "extend", "update"]), of_subtasks, small),
)
good = st.lists(step, max_size=8)
failing = st.builds(lambda before, after: [*before, ("fail",), *after], good, st.just([]))
record = st.tuples(st.sampled_from(["yield", "list"]), st.one_of(good, failing))
rule = st.one_of(st.tuples(st.just("put"), small, small), st.tuples(st.just("remove"), small), st.just(("clear",)))
rules = st.builds(
    lambda steps, spoil: [*steps, *spoil], st.lists(rule, max_size=4), st.sampled_from([[], [("spoil",)]])
)
event = st.one_of(
    st.tuples(st.just("record"), st.sampled_from("ab"), st.integers(0, 30), record),
    st.tuples(st.just("record"), st.just("a"), st.integers(0, 30), record),
    st.tuples(st.just("rules"), rules),
    st.tuples(st.just("watermark"), st.integers(0, 40)),
    st.tuples(st.just("time"), st.integers(1, 4)),
    st.tuples(st.just("snapshot")),
)


def fails(one: Any) -> bool:
    if one[0] == "record":
        return ("fail",) in one[3][1]
    return one[0] == "rules" and ("spoil",) in one[1]


def feed(harness: OperatorHarness, one: Any) -> None:
    match one:
        case "record", key, at, value:
            harness.process(value, key=key, timestamp=at)
        case "rules", value:
            harness.process_connected(value)
        case "watermark", at:
            harness.watermark(at)
        case "time", seconds:
            harness.advance_time(seconds)


def content(snapshot: HarnessSnapshot) -> Any:
    """Independent of the order in which keys came first."""
    rows = {
        (batch.group, batch.state, key, namespaces): (encode(value), written)
        for batch in read_batches(snapshot.keyed_state)
        for key, namespaces, value, written in zip(
            batch.keys,
            batch.namespaces or [None] * len(batch.keys),
            batch.values,
            batch.written or [None] * len(batch.keys),
            strict=True,
        )
    }
    return rows, snapshot.operator_state, snapshot.broadcast_state, snapshot.operator_lists


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@given(events=st.lists(event, max_size=25))
def test_a_failed_record_leaves_nothing(backend: Any, events: list[Any]) -> None:
    strict = OperatorHarness(Patient(), broadcast="process_connected", state_backend=backend)
    lenient = OperatorHarness(Busy(), broadcast="process_connected", state_backend=backend, on_error="skip")
    taken: list[tuple[Any, Any]] = []
    for one in events:
        if one == ("snapshot",):  # written later, while the state goes on
            assert strict._backend is not None
            assert lenient._backend is not None
            taken.append((strict._backend.freeze(), lenient._backend.freeze()))
            continue
        feed(lenient, one)
        if not fails(one):
            feed(strict, one)
    assert lenient.outputs == strict.outputs
    assert lenient.side_outputs == strict.side_outputs
    records = [one for one in events if fails(one)]
    assert [letter["timer"] is None for letter in lenient.errors].count(True) == len(records)
    assert content(lenient.snapshot()) == content(strict.snapshot())
    for pair in taken:
        then = []
        for frozen in pair:
            written = bytearray()
            frozen.write(written.extend, "none")
            then.append(content(HarnessSnapshot(bytes(written), b"", b"", b"", b"")))
        assert then[0] == then[1]
    strict.close()
    lenient.close()


RICH = [
    *[("in place", bag, i) for bag in ("bag", "old_bag") for i in range(2)],
    *[("append", items, i) for items in ("items", "old_items") for i in range(3)],
    *[("set", name, i) for name in ("dict", "old_dict") for i in range(3)],
    *[("append", name, i) for name in ("seen", "told") for i in range(2)],
    *[("count", 3), ("largest", 3), ("gathered", 3), ("timer", 30), ("processing_timer", 30)],
]
CHANGES: list[list[Any]] = [
    *[[(name, bag, 9)] for name in ("in place", "put again", "replace") for bag in ("bag", "old_bag")],
    *[
        [(name, items, 9)]
        for name in ("append", "extend", "update", "change items")
        for items in ("items", "old_items")
    ],
    *[
        [(name, of, 1)]
        for name in ("set", "remove", "look", "change entry", "change entries")
        for of in ("dict", "old_dict")
    ],
    *[[("clear", name)] for name in ("bag", "old_bag", "items", "old_items", "dict", "old_dict", "seen", "told")],
    *[[(name, of, 9)] for name in ("append", "extend", "update") for of in ("seen", "told")],
    *[
        [("count", 9)],
        [("largest", 9)],
        [("gathered", 9)],
        [("timer", 29)],
        [("processing_timer", 29)],
        [("delete_timer", 30)],
    ],
    *[[("append", of, 9), ("change items", of, 9)] for of in ("items", "old_items")],
    *[[("append", of, 9), ("clear", of), ("append", of, 8)] for of in ("items", "old_items")],
    *[[("set", of, 7), ("remove", of, 0), ("set", of, 0), ("change entries", of, 0)] for of in ("dict", "old_dict")],
    *[[("change entry", of, 1), ("remove", of, 1), ("clear", of), ("set", of, 1)] for of in ("dict", "old_dict")],
]


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_each_change_is_taken_back(changes: list[Any], backend: Any) -> None:
    """Also while a snapshot is open, which must not see it, and after which the state goes on."""
    harness = OperatorHarness(Busy(), broadcast="process_connected", state_backend=backend, on_error="skip")
    harness.process_connected([("put", 1, 1)])
    harness.process(["list", RICH], key="a", timestamp=5)
    before = content(harness.snapshot())
    failing = ["list", [*changes, ("fail",)]]
    for _ in range(2):
        harness.process(failing, key="a", timestamp=6)
        assert content(harness.snapshot()) == before
    assert harness._backend is not None
    frozen = harness._backend.freeze()
    harness.process(failing, key="a", timestamp=6)
    added = [("append", "items", 5), ("append", "old_items", 5), ("set", "dict", 5), ("set", "old_dict", 5)]
    harness.process(["list", added], key="a", timestamp=7)
    harness.process(["list", changes], key="a", timestamp=7)
    written = bytearray()
    frozen.write(written.extend, "none")
    assert content(HarnessSnapshot(bytes(written), *[b""] * 4))[0] == before[0]
    harness.close()


# -- what each rule is for -----------------------------------------------------------------------------------------


class Halfway(KeyedOperator):
    n = ValueState(default=0)

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.n.value += 1
        ctx.side_output("side", value)
        yield value
        if value == "bad":
            raise Boom("halfway")
        yield self.n.value


class Stamped(KeyedOperator):
    """Emits each of a record's times at that time."""

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        for at in value:
            ctx.emit_at(at)
            yield at


def test_what_is_held_back_goes_on_with_the_timestamp_that_it_was_emitted_with() -> None:
    harness = OperatorHarness(Stamped(), on_error="skip")
    assert harness.process([3, 9, 5], key="a", timestamp=1) == [3, 9, 5]
    assert harness.timestamps == [3, 9, 5]


def test_a_generator_that_fails_halfway_has_emitted_nothing() -> None:
    harness = OperatorHarness(Halfway(), on_error="skip")
    assert harness.process("good", key="a") == ["good", 1]
    assert harness.process("bad", key="a", timestamp=7) == []
    assert harness.process("good", key="a") == ["good", 2]
    assert harness.side_outputs == {"side": ["good", "good"]}
    [letter] = harness.errors
    assert {name: letter[name] for name in ("step", "subtask", "reason", "record", "key", "timestamp", "timer")} == {
        "step": "operator",
        "subtask": 0,
        "reason": "halfway",
        "record": "bad",
        "key": "a",
        "timestamp": 7,
        "timer": None,
    }
    assert letter["error"].endswith("test_guarded.Boom")
    assert 'raise Boom("halfway")' in letter["traceback"]


def test_without_the_option_it_fails_the_attempt() -> None:
    harness = OperatorHarness(Halfway())
    with pytest.raises(Boom):
        harness.process("bad", key="a")
    assert harness.outputs == ["bad"]


class SpoilsItsRecord(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        value["items"].clear()
        raise Boom


def test_the_letter_has_the_record_as_it_came() -> None:
    harness = OperatorHarness(SpoilsItsRecord(), on_error="skip")
    harness.process({"items": [1, 2]})
    assert harness.errors[0]["record"] == {"items": [1, 2]}


class Lists(KeyedOperator):
    """Emits something that no channel takes."""

    n = ValueState(default=0)

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        try:
            self.n.value += 1
            yield object()
        finally:
            self.n.value += 10


def test_what_cannot_travel_is_its_steps_error_and_a_generators_end_is_taken_back_too() -> None:
    harness = OperatorHarness(Lists(), on_error="skip")
    assert harness.process("x", key="a") == []
    assert "object" in harness.errors[0]["reason"]
    assert content(harness.snapshot())[0] == {}


class Reminders(KeyedOperator):
    n = ValueState(default=0)

    def process(self, value: Any, ctx: Any) -> None:
        ctx.timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        self.n.value += 1
        ctx.timer(timestamp + 1000)
        ctx.delete_timer(30)
        yield timestamp
        if timestamp == 10:
            raise Boom


def test_a_timer_that_fails_has_fired_and_leaves_nothing() -> None:
    harness = OperatorHarness(Reminders(), on_error="skip")
    for at in (10, 30):
        harness.process(at, key="a", timestamp=0)
    assert harness.watermark(20) == []  # and does not fire again and again
    assert [(one["timer"], one["key"], "record" in one) for one in harness.errors] == [(10, "a", False)]
    assert harness.watermark(40) == [30]
    assert harness.watermark(1020) == []
    assert harness.watermark(1030) == [1030]


@pytest.mark.parametrize("error", [PermanentFailure("stop"), NotOfTheRecord("the disk is full"), MemoryError()])
def test_what_is_not_the_records_fault_fails_the_attempt(error: Exception) -> None:
    class Fails(Operator):
        def process(self, value: Any, ctx: Any) -> None:
            raise error

    harness = OperatorHarness(Fails(), on_error="skip")
    with pytest.raises(type(error)):
        harness.process(1)
    assert harness.errors == []


def test_more_failures_than_the_bound_fail_the_attempt() -> None:
    harness = OperatorHarness(Halfway(), on_error=Skip(at_most=AtMost(0.25, within=60, minimum=2)))
    for value in ("bad", "good", "good", "good", "good", "good", "good", "good", "bad"):
        harness.process(value, key="a")
    with pytest.raises(TooManyFailures, match=r"'operator': 3 of 10 records .* within 60 s.*Boom: halfway") as caught:
        harness.process("bad", key="a")
    assert isinstance(caught.value.__cause__, Boom)
    assert len(harness.errors) == 2


class FailsAtTheEnd(Sum):
    def result(self, accumulator: Any) -> Any:
        if accumulator:
            raise Boom
        return super().result(accumulator)


def test_of_windows_records_are_left_out_and_results_fail_the_attempt() -> None:
    aggregation = Aggregation({"total": Sum("amount"), "odd": FailsAtTheEnd("odd")})
    harness = OperatorHarness(operator_of(Tumbling(0.01), aggregation, Options()), on_error="skip")
    harness.process({"amount": 1, "odd": 0}, key="a", timestamp=1)
    harness.process({"odd": 0}, key="a", timestamp=2)
    harness.process({"amount": 5, "odd": 0}, key="a", timestamp=3)
    assert [one["total"] for one in harness.watermark(9)] == [6]
    assert len(harness.errors) == 1
    harness.process({"amount": 5, "odd": 1}, key="a", timestamp=11)
    with pytest.raises(Boom):
        harness.watermark(19)


# -- in a chain ------------------------------------------------------------------------------------------------------


def chain_of(*steps: tuple[StepKind, Any, bool], emit: list[Any]) -> tuple[Chain, dict[str, list[Any]], TaskMetrics]:
    """Steps called a, b, …, each with or without `on_error`, and the letters of each."""
    record = RecordInProgress()
    planned = []
    for i, (kind, payload, lenient) in enumerate(steps):
        before = None if i == 0 else "abc"[i - 1]
        planned.append(PlannedStep("abc"[i], kind, payload, before, None, on_error=Skip() if lenient else None))
    vertex = Vertex(0, "v", 1, 0, tuple(planned))
    letters: dict[str, list[Any]] = {one.id: [] for one in planned}
    outputs: dict[Any, Any] = {(planned[-1].id, None): [emit.append]}
    outputs |= {(id, ERRORS): [told.append] for id, told in letters.items()}
    metrics = TaskMetrics()
    return Chain(vertex, record, contexts_of(vertex, record, 0), {}, outputs, None, metrics=metrics), letters, metrics


def half(value: Any) -> Any:
    return 10 / value


class Remembers(Operator):
    seen = OperatorListState[Any]()

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.seen.append(value)
        yield value


@pytest.mark.parametrize("kind", [StepKind.MAP, StepKind.FLAT_MAP, StepKind.FILTER])
def test_a_function_that_fails_costs_one_record(kind: StepKind) -> None:
    out: list[Any] = []
    function: Any = {StepKind.MAP: half, StepKind.FLAT_MAP: lambda v: [half(v)], StepKind.FILTER: half}[kind]
    chain, letters, metrics = chain_of((kind, function, True), emit=out)
    for value in (5, 0, 10):
        chain.push(value)
    assert out == ([5, 10] if kind is StepKind.FILTER else [2.0, 1.0])
    assert [(one["record"], one["error"]) for one in letters["a"]] == [(0, "ZeroDivisionError")]
    assert metrics.report()["recordsFailed"] == 1
    assert metrics.report()["lastFailure"] == "'a': ZeroDivisionError: division by zero"


def test_what_fails_downstream_is_that_steps_error() -> None:
    out: list[Any] = []
    first = Remembers()
    chain, letters, _ = chain_of((StepKind.PROCESS, first, True), (StepKind.MAP, half, True), emit=out)
    chain.push(0)
    chain.push(5)
    assert out == [2.0]
    assert letters["a"] == []
    assert [one["step"] for one in letters["b"]] == ["b"]
    assert list(first.seen) == [0, 5]


def test_what_fails_downstream_without_the_option_fails_the_attempt() -> None:
    out: list[Any] = []
    first = Remembers()
    chain, letters, _ = chain_of((StepKind.PROCESS, first, True), (StepKind.MAP, half, False), emit=out)
    with pytest.raises(ZeroDivisionError) as caught:
        chain.push(0)
    assert chain.step_of(caught.value) == "b"
    assert letters["a"] == []
    assert list(first.seen) == [0]


def test_a_failure_of_the_step_itself_is_blamed_on_it() -> None:
    chain, _, _ = chain_of((StepKind.MAP, strict_half, True), (StepKind.MAP, half, False), emit=[])
    with pytest.raises(PermanentFailure) as caught:
        chain.push(0)
    assert chain.step_of(caught.value) == "a"


def strict_half(value: Any) -> Any:
    if value == 0:
        raise PermanentFailure("nothing helps")
    return value


def test_an_output_is_what_it_was_when_it_was_emitted() -> None:
    class Grows(Operator):
        def process(self, value: Any, ctx: Any) -> Iterator[Any]:
            shown: list[int] = []
            for i in range(3):
                shown.append(i)
                yield shown

    out: list[Any] = []
    chain, _, _ = chain_of((StepKind.PROCESS, Grows(), True), emit=out)
    chain.push(0)
    assert out == [[0], [0, 1], [0, 1, 2]]


class TellsTheSame(Operator):
    def __init__(self) -> None:
        self.told = ["kept"]

    def process(self, value: Any, ctx: Any) -> Any:
        return None

    def on_watermark(self, timestamp: int, ctx: Any) -> Any:
        yield self.told


def test_what_is_not_held_back_is_copied_too() -> None:
    def spoil(value: list[str]) -> list[str]:
        value.append("spoilt")
        return value

    out: list[Any] = []
    operator = TellsTheSame()
    chain, _, _ = chain_of((StepKind.PROCESS, operator, True), (StepKind.MAP, spoil, False), emit=out)
    [(_, on_watermark)] = chain.time.of["a"].listeners
    on_watermark(1)
    assert out == [["kept", "spoilt"]]
    assert operator.told == ["kept"]


@pytest.mark.parametrize("error", [PermanentFailure("stop"), NotOfTheRecord("the disk is full")])
def test_what_a_generator_raises_at_its_end_may_be_no_records_fault_either(error: Exception) -> None:
    class Fails(Operator):
        def process(self, value: Any, ctx: Any) -> Iterator[Any]:
            try:
                yield object()
            finally:
                raise error

    harness = OperatorHarness(Fails(), on_error="skip")
    with pytest.raises(type(error)):
        harness.process(1)
    assert harness.errors == []


def test_timers_that_nobody_takes_back_are_not_noted_for_long() -> None:
    """A million windows may fire in a row."""
    aggregation = Aggregation({"total": Sum("amount")})
    harness = OperatorHarness(operator_of(Tumbling(0.01), aggregation, Options()), on_error="skip")
    for i in range(50):
        harness.process({"amount": i}, key=f"k{i}", timestamp=1)
    assert len(harness.watermark(9)) == 50
    assert harness._backend is not None
    assert len(harness._backend.event_timers._store._changes) <= 2  # type: ignore[attr-defined]


class Later(KeyedOperator):
    n = ValueState(default=0)

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.emit_at(99)
        yield value
        raise Boom


def test_a_letter_has_the_timestamp_of_its_record_whatever_was_emitted() -> None:
    harness = OperatorHarness(Later(), on_error="skip")
    harness.process("x", key="a", timestamp=7)
    assert [letter["timestamp"] for letter in harness.errors] == [7]


def test_without_the_option_nothing_is_in_the_way() -> None:
    """A step runs the code that it runs in a job where no step has the option."""
    strict, lenient = OperatorHarness(Halfway()), OperatorHarness(Halfway(), on_error="skip")
    pushes = [harness._chain.push.__qualname__ for harness in (strict, lenient)]
    assert pushes == ["_method.<locals>.push", "guarded_method.<locals>.push"]
    kinds = [type(harness.operator.n.store).__name__ for harness in (strict, lenient)]  # type: ignore[attr-defined]
    assert kinds == ["HeapValues", "UndoPaged"]
    for kind, name in ((StepKind.MAP, "map"), (StepKind.FILTER, "filter"), (StepKind.FLAT_MAP, "flat_map")):
        chains = [chain_of((kind, half, option), emit=[])[0] for option in (False, True)]
        assert [chain.push.__qualname__ for chain in chains] == [
            f"compile_{name}.<locals>.push",
            f"guarded_{name}.<locals>.push",
        ]


def test_what_a_step_keeps_of_what_it_emits_is_its_own() -> None:
    """Whoever gets it takes it for a copy, and changes it."""
    kept: list[Any] = []

    def passes(value: list[Any]) -> bool:
        kept.append(value)
        return True

    def spoil(value: list[Any]) -> list[Any]:
        value.append("spoilt")
        return value

    out: list[Any] = []
    chain, _, _ = chain_of((StepKind.FILTER, passes, True), (StepKind.MAP, spoil, False), emit=out)
    chain.push([1])
    assert (out, kept) == ([[1, "spoilt"]], [[1]])


def test_a_side_output_is_what_it_was_when_it_was_emitted() -> None:
    context = Context(RecordInProgress(), 0, 1)
    out: list[Any] = []
    emit = holding(context, out.append)
    held: list[Any] = []
    context.held = held
    value = [1]
    emit(value)
    context.held = None
    emit(value)
    value.append(2)
    assert [one for _, one, _ in held] == [[1]]
    assert out == [[1]]
