"""What a step hands to the next is the same chained, over channels and in the harness, whoever keeps or changes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.codec import EncodingError, decode, encode
from pipeline import Operator, Pipeline, WatermarkStrategy
from pipeline.graph import StepKind
from pipeline.runtime.subtask.chain import Chain
from pipeline.runtime.subtask.context import contexts_of
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.streams import Stream
from pipeline.testing import OperatorHarness, TestingSink, TestingSource

# -- steps that keep, change and yield again what they were given ------------------------------------------------------


class Keeps:
    """Base of functions and operators here; none of them knows what others do with its records."""

    def __init__(self) -> None:
        self.kept: Any = {"count": 0, "all": []}


class OneDict(Keeps):
    """Returns one dict again and again."""

    def __call__(self, value: Any) -> Any:
        self.kept["count"] += 1
        self.kept["last"] = value
        return [self.kept]


class Changes(Keeps):
    """Changes what it was given, and hands it on."""

    def __call__(self, value: Any) -> Any:
        value["changed"] = value.get("changed", 0) + 1
        value.setdefault("all", []).append(value["changed"])
        return [value]


class ChangesLater(Keeps):
    """Keeps what it was given, and changes it at the next record."""

    def __call__(self, value: Any) -> Any:
        for old in self.kept["all"]:
            old["late"] = old.get("late", 0) + 1
        self.kept["all"].append(value)
        return [value]


class Again(Keeps):
    """Yields a record over and over, changed in between."""

    def __call__(self, value: Any) -> Any:
        for i in range(2):
            value["i"] = i
            yield value
        self.kept["last"] = value
        yield self.kept


class Inside(Keeps):
    """Yields a part of what it keeps, and what holds it."""

    def __call__(self, value: Any) -> Any:
        self.kept["all"].append(value)
        yield {"part": self.kept["all"]}
        yield {"pair": (value, [value])}


KINDS: list[Callable[[], Any]] = [OneDict, Changes, ChangesLater, Again, Inside]


class Runs(Operator):
    """A function as an operator; what it emits goes to the side, too."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def process(self, value: Any, ctx: Any) -> Any:
        for output in self.function(value):
            ctx.side_output("side", output)
            yield output


@dataclass
class Node:
    kind: int
    parent: int
    """Index of the step it reads, -1: the source."""
    way: str
    """What kind of step it becomes."""
    side: bool
    """It reads the parent's side output, if that has one."""


def add(stream: Stream, node: Node, id: str) -> Stream:
    function = KINDS[node.kind]()
    match node.way:
        case "flat_map":
            return stream.flat_map(function, id=id)
        case "map":
            return stream.map(lambda value: next(iter(function(value))), id=id)
        case "filter":
            return stream.filter(lambda value: [list(function(value))], id=id)
    return stream.process(id, Runs(function))


def build(nodes: list[Node], over_channels: bool) -> Pipeline:
    p = Pipeline("job", parallelism=1)
    root = p.source("in", TestingSource())
    streams: list[Stream] = []
    for i, node in enumerate(nodes):
        stream = root if node.parent < 0 else streams[node.parent]
        if node.side and node.parent >= 0 and nodes[node.parent].way == "process":
            stream = stream.side_output("side")
        streams.append(add(stream.rebalance() if over_channels else stream, node, f"step-{i}"))
    for i, stream in enumerate(streams):
        (stream.rebalance() if over_channels else stream).sink(f"sink-{i}", TestingSink())
    return p


class Keeper:
    """A sink that keeps what it was given."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def push(self, value: Any) -> None:
        self.kept.append(value)


def run(p: Pipeline, values: list[Any]) -> dict[str, list[Any]]:
    """What each sink was given, as it is at the end."""
    plan = p.plan()
    sinks = {step.id: Keeper() for vertex in plan.vertices for step in vertex.steps if step.kind is StepKind.SINK}
    chains: dict[int, Chain] = {}
    for vertex in reversed(plan.vertices):
        outputs: dict[Any, list[Any]] = {}
        for edge in plan.outputs_of(vertex.index):
            push = chains[edge.downstream].push
            outputs.setdefault((edge.upstream_step, edge.tag), []).append(
                lambda value, push=push: push(decode(encode(value)))
            )
        record = RecordInProgress()
        chains[vertex.index] = Chain(vertex, record, contexts_of(vertex, record, 0), sinks, outputs, None)  # type: ignore[arg-type]
    for value in values:
        chains[0].push(value)
    return {id: sink.kept for id, sink in sinks.items()}


def run_in_harnesses(nodes: list[Node], values: list[Any]) -> dict[str, list[Any]]:
    harnesses = [
        OperatorHarness(Runs(KINDS[node.kind]() if node.way == "process" else _as_flat_map(node))) for node in nodes
    ]
    found: dict[str, list[Any]] = {f"sink-{i}": [] for i in range(len(nodes))}

    def push(value: Any, parent: int, side: bool) -> None:
        for i, node in enumerate(nodes):
            reads_side = node.side and parent >= 0 and nodes[parent].way == "process"
            if node.parent == parent and reads_side is side:
                send(i, value)

    def send(i: int, value: Any) -> None:
        harness = harnesses[i]
        sides = harness.side_outputs.setdefault("side", [])
        before = len(sides)
        outputs = harness.process(value)
        for output, aside in zip(outputs, sides[before:], strict=True):
            found[f"sink-{i}"].append(output)
            push(output, i, False)
            push(aside, i, True)

    for value in values:
        push(value, -1, False)
    return found


def _as_flat_map(node: Node) -> Callable[[Any], Any]:
    function = KINDS[node.kind]()
    match node.way:
        case "map":
            return lambda value: [next(iter(function(value)))]
        case "filter":
            return lambda value: [value] if [list(function(value))] else []
    return function  # type: ignore[no-any-return]


def plain(found: dict[str, list[Any]]) -> dict[str, str]:
    """Types count, too."""
    return {id: "\n".join(map(repr, kept)) for id, kept in found.items()}


@st.composite
def graphs(draw: st.DrawFn) -> list[Node]:
    count = draw(st.integers(1, 5))
    return [
        Node(
            draw(st.integers(0, len(KINDS) - 1)),
            draw(st.integers(-1, i - 1)),
            draw(st.sampled_from(["flat_map", "map", "filter", "process"])),
            draw(st.booleans()),
        )
        for i in range(count)
    ]


@given(graphs(), st.lists(st.integers(-(2**63), 2**63), min_size=1, max_size=3))
def test_chained_over_channels_and_in_the_harness_the_same_comes_out(nodes: list[Node], numbers: list[int]) -> None:
    def values() -> list[Any]:
        shared = {"in": [0]}
        return [{"n": n, "shared": shared, "pair": (n, [shared])} for n in numbers]

    chained = plain(run(build(nodes, over_channels=False), values()))
    assert chained == plain(run(build(nodes, over_channels=True), values()))
    assert chained == plain(run_in_harnesses(nodes, values()))


def test_a_source_may_hand_out_one_record_again_and_again() -> None:
    record = {"n": 0}
    p = build([Node(1, -1, "map", False), Node(2, -1, "process", False)], over_channels=False)
    found = run(p, [record, record])
    assert record == {"n": 0}
    assert found["sink-0"] == [{"n": 0, "changed": 1, "all": [1]}] * 2


@pytest.mark.parametrize("timestamp", ["n", lambda record: record["n"]])
def test_a_record_is_copied_behind_its_timestamp_only_if_a_function_saw_it(timestamp: Any) -> None:
    seen: list[Any] = []
    source = TestingSource()
    source.fresh_records = True
    p = Pipeline("job", parallelism=1)
    stream = p.source("in", source).assign_timestamps(WatermarkStrategy.bounded(timestamp, lateness=0))

    def changes(record: Any) -> Any:
        seen.append(record)
        return Changes()(record)

    for name in ("first", "last"):
        stream.flat_map(changes, id=f"at-{name}").sink(name, TestingSink())
    record = {"n": 5}
    found = run(p, [record])
    assert plain(found) == plain({name: [{"n": 5, "changed": 1, "all": [1]}] for name in ("first", "last")})
    assert len({id(one) for one in (*seen, *found["first"], *found["last"])}) == 4
    assert [one is record for one in seen] == [False, not callable(timestamp)]


@pytest.mark.parametrize("over_channels", [False, True])
def test_what_a_channel_refuses_is_refused_between_chained_steps(over_channels: bool) -> None:
    p = Pipeline("job", parallelism=1)
    stream = p.source("in", TestingSource()).map(lambda value: {"what": object()}, id="makes")
    (stream.rebalance() if over_channels else stream).sink("out", TestingSink())
    with pytest.raises(EncodingError, match=r"can't encode object at value\['what'\]"):
        run(p, [1])
