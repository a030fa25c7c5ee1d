"""From what a user writes to vertices, edges and numbered subtasks; and what is refused, with what to do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import (
    BroadcastState,
    KeyedOperator,
    ListState,
    Operator,
    OperatorListState,
    OperatorUnionState,
    Pipeline,
    PipelineError,
    RocksDb,
    ValueState,
)
from pipeline.partitioners import Distribution
from pipeline.plan import Plan, vertex_name
from pipeline.testing import TestingSink, TestingSource


class Same(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        yield value


class NotKeyed(Operator):
    count = ValueState(default=0)

    def process(self, value: Any, ctx: Any) -> Any:
        yield value


class Count(KeyedOperator):
    count = ValueState(default=0)

    def process(self, value: Any, ctx: Any) -> Any:
        self.count.value += 1
        yield self.count.value


def pipeline(parallelism: int = 2, **options: Any) -> Pipeline:
    return Pipeline("job", parallelism=parallelism, **options)


def vertices(plan: Plan) -> list[str]:
    return [vertex.name for vertex in plan.vertices]


def edges(plan: Plan) -> list[tuple[str, str, Distribution]]:
    return [(edge.upstream_step, edge.downstream_step, edge.partitioner.distribution) for edge in plan.edges]


# -- chaining -------------------------------------------------------------------------------------------------


def test_steps_of_one_parallelism_without_a_partitioner_are_one_task() -> None:
    p = pipeline()
    p.source("in", TestingSource()).map(str).filter(bool).flat_map(list).process("op", Same()).sink(
        "out", TestingSink()
    )
    plan = p.plan()
    assert vertices(plan) == ["in → map-1 → filter-1 → flat_map-1 → op → out"]
    assert edges(plan) == []
    assert plan.subtasks == 2


def test_a_step_read_by_several_becomes_a_tree_of_chained_steps() -> None:
    p = pipeline()
    source = p.source("in", TestingSource())
    doubled = source.map(str, id="text")
    doubled.sink("a", TestingSink())
    doubled.sink("b", TestingSink())
    source.sink("raw", TestingSink())
    plan = p.plan()
    assert len(plan.vertices) == 1
    assert {step.id: step.chained_to for step in plan.vertices[0].steps} == {
        "in": None,
        "text": "in",
        "a": "text",
        "b": "text",
        "raw": "in",
    }


def test_another_parallelism_breaks_the_chain_and_rebalances() -> None:
    p = pipeline()
    p.source("in", TestingSource()).map(str, id="wide", parallelism=3).sink("out", TestingSink())
    plan = p.plan()
    assert vertices(plan) == ["in", "wide → out"]
    assert edges(plan) == [("in", "wide", Distribution.REBALANCE)]


@pytest.mark.parametrize(
    ("spread", "distribution"),
    [
        (lambda s: s.rebalance(), Distribution.REBALANCE),
        (lambda s: s.rescale(), Distribution.RESCALE),
        (lambda s: s.key_by("k"), Distribution.KEYED),
        (lambda s: s.partition_custom(lambda value, n: 0), Distribution.CUSTOM),
    ],
)
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_partitioner_breaks_the_chain_also_at_parallelism_1(
    spread: Any, distribution: Distribution, parallelism: int
) -> None:
    p = pipeline(parallelism)
    spread(p.source("in", TestingSource())).process("op", Same())
    plan = p.plan()
    assert vertices(plan) == ["in", "op"]
    assert edges(plan) == [("in", "op", distribution)]


def test_an_explicit_forward_is_chained() -> None:
    p = pipeline()
    p.source("in", TestingSource()).forward().map(str, id="text")
    assert vertices(p.plan()) == ["in → text"]


def test_the_last_partitioner_counts() -> None:
    p = pipeline()
    p.source("in", TestingSource()).key_by("k").rebalance().map(str, id="text")
    assert edges(p.plan()) == [("in", "text", Distribution.REBALANCE)]


def test_a_keyed_operator_is_the_head_of_its_task() -> None:
    p = pipeline()
    p.source("in", TestingSource()).key_by("k").process("count", Count()).map(str, id="text")
    assert vertices(p.plan()) == ["in", "count → text"]


def test_a_step_without_a_parallelism_keeps_that_of_its_input_or_takes_the_pipelines() -> None:
    p = pipeline(4)
    narrow = p.source("in", TestingSource(), parallelism=1)
    narrow.map(str, id="chained")
    narrow.forward().map(str, id="forwarded")
    narrow.rebalance().map(str, id="spread")
    assert [(v.name, v.parallelism) for v in p.plan().vertices] == [("in → chained → forwarded", 1), ("spread", 4)]


# -- side outputs, unions -------------------------------------------------------------------------------------


def test_a_side_output_is_chained_under_its_tag_and_crosses_edges_under_it() -> None:
    p = pipeline()
    step = p.source("in", TestingSource()).process("split", Same())
    step.side_output("late").map(str, id="near")
    step.side_output("late").rebalance().map(str, id="far")
    plan = p.plan()
    assert {s.id: (s.chained_to, s.tag) for s in plan.vertices[0].steps} == {
        "in": (None, None),
        "split": ("in", None),
        "near": ("split", "late"),
    }
    assert [(e.upstream_step, e.tag, e.downstream_step) for e in plan.edges] == [("split", "late", "far")]


def test_a_union_is_dissolved_into_an_edge_for_each_stream() -> None:
    p = pipeline()
    a = p.source("a", TestingSource())
    b = p.source("b", TestingSource(), parallelism=3)
    c = p.source("c", TestingSource())
    a.union(b).union(c).map(str, id="text")
    plan = p.plan()
    assert vertices(plan) == ["a", "b", "c", "text"]
    assert edges(plan) == [
        ("a", "text", Distribution.REBALANCE),
        ("b", "text", Distribution.FORWARD),
        ("c", "text", Distribution.REBALANCE),
    ]
    assert plan.vertices[3].parallelism == 3


def test_a_partitioner_behind_a_union_counts_for_all_of_its_streams() -> None:
    p = pipeline()
    a, b = p.source("a", TestingSource()), p.source("b", TestingSource())
    a.rebalance().union(b).key_by("k").process("count", Count())
    assert edges(p.plan()) == [("a", "count", Distribution.KEYED), ("b", "count", Distribution.KEYED)]


def test_a_partitioner_in_front_of_a_union_counts_for_its_stream() -> None:
    p = pipeline()
    a, b = p.source("a", TestingSource()), p.source("b", TestingSource())
    a.rebalance().union(b).map(str, id="text")
    assert edges(p.plan()) == [("a", "text", Distribution.REBALANCE), ("b", "text", Distribution.FORWARD)]


def test_a_side_output_keeps_its_tag_through_a_union() -> None:
    p = pipeline()
    step = p.source("in", TestingSource()).process("split", Same())
    step.union(step.side_output("late")).sink("out", TestingSink())
    assert [(e.upstream_step, e.tag, e.downstream_step) for e in p.plan().edges] == [
        ("split", None, "out"),
        ("split", "late", "out"),
    ]


# -- connect, broadcast ---------------------------------------------------------------------------------------


class Both(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_connected(self, value: Any, ctx: Any) -> Any:
        yield value


class KeyedBoth(KeyedOperator):
    count = ValueState(default=0)

    def process(self, value: Any, ctx: Any) -> Any:
        self.count.value += 1

    def process_connected(self, value: Any, ctx: Any) -> Any:
        yield value


class WithRules(Both):
    rules = BroadcastState[str, Any]()


def inputs(plan: Plan) -> list[tuple[str, int, Distribution]]:
    return [(edge.upstream_step, edge.input, edge.partitioner.distribution) for edge in plan.edges]


def test_a_connected_step_has_two_inputs_and_is_chained_to_none_of_them() -> None:
    p = pipeline()
    a, b = p.source("a", TestingSource()), p.source("b", TestingSource())
    a.connect(b).process("both", Both()).map(str, id="text")
    plan = p.plan()
    assert vertices(plan) == ["a", "b", "both → text"]
    assert inputs(plan) == [("a", 0, Distribution.FORWARD), ("b", 1, Distribution.FORWARD)]
    assert [step.connected for step in plan.vertices[2].steps] == [True, False]


def test_a_stream_may_be_connected_with_itself() -> None:
    p = pipeline()
    a = p.source("a", TestingSource())
    a.connect(a).process("both", Both())
    assert inputs(p.plan()) == [("a", 0, Distribution.FORWARD), ("a", 1, Distribution.FORWARD)]


def test_united_streams_stay_on_their_side_of_a_connect() -> None:
    p = pipeline()
    a, b, c, d = (p.source(id, TestingSource()) for id in "abcd")
    a.union(b).connect(c.union(d).broadcast()).process("both", WithRules())
    plan = p.plan()
    assert inputs(plan) == [
        ("a", 0, Distribution.FORWARD),
        ("b", 0, Distribution.FORWARD),
        ("c", 1, Distribution.BROADCAST),
        ("d", 1, Distribution.BROADCAST),
    ]
    assert plan.vertices[4].head.broadcast_inputs == {1}


def test_an_input_is_broadcast_only_if_all_streams_united_in_it_are() -> None:
    p = pipeline()
    a, b, c = (p.source(id, TestingSource()) for id in "abc")
    a.broadcast().connect(b.broadcast().union(c)).process("both", Both())
    assert p.plan().vertices[3].head.broadcast_inputs == {0}


def test_a_broadcast_stream_is_chained_to_nothing() -> None:
    p = pipeline(1)
    p.source("a", TestingSource()).broadcast().process("rules", WithRules())
    assert edges(p.plan()) == [("a", "rules", Distribution.BROADCAST)]


def test_a_connected_step_takes_the_parallelism_of_forward_streams_and_else_the_pipelines() -> None:
    p = pipeline(4)
    narrow, one = p.source("in", TestingSource(), parallelism=2), p.source("one", TestingSource(), parallelism=1)
    narrow.connect(one).process("wider", Both())
    narrow.connect(one.broadcast()).process("forward", Both())
    narrow.key_by("k").connect(one.broadcast()).process("keyed", KeyedBoth())
    one.broadcast().connect(one.broadcast()).process("broadcast", Both())
    one.connect(one).process("given", Both(), parallelism=3)
    assert {v.name: v.parallelism for v in p.plan().vertices} == {
        "in": 2,
        "one": 1,
        "wider": 2,
        "forward": 2,
        "keyed": 4,
        "broadcast": 4,
        "given": 3,
    }


# -- names of edges, keys on edges ----------------------------------------------------------------------------


def ports(plan: Plan) -> list[tuple[str, ...]]:
    return [tuple(edge.name) for edge in plan.edges]


def test_every_edge_has_a_name_of_its_own() -> None:
    p = pipeline()
    a = p.source("a", TestingSource())
    split = a.rebalance().process("split", Same())
    late = split.side_output("late")
    split.union(split, late, late.rebalance()).connect(late).process("both", Both())
    assert ports(p.plan()) == [
        ("a", "split", "0.0"),
        ("split", "both", "0.0"),
        ("split", "both", "0.1"),
        ("split", "both", "0.0:late"),
        ("split", "both", "0.1:late"),
        ("split", "both", "1.0:late"),
    ]


def test_an_edge_keeps_its_name_when_something_else_changes() -> None:
    def name(parallelism: int, between: bool) -> list[Any]:
        p = pipeline(parallelism)
        a = p.source("a", TestingSource())
        if between:
            a.map(str, id="new")
        a.key_by("k").process("count", Count())
        return [edge.name for edge in p.plan().edges if edge.downstream_step == "count"]

    assert name(1, False) == name(3, True) == [("a", "count", "0.0")]


def carrying(plan: Plan) -> dict[str, bool]:
    """By downstream step."""
    return {edge.downstream_step: edge.carries_keys for edge in plan.edges}


def test_forward_edges_behind_a_keyed_operator_carry_its_keys() -> None:
    """What is in flight there goes by its key group when it is restored at another parallelism."""
    p = pipeline()
    keyed = p.source("in", TestingSource()).key_by("k").process("count", Count()).map(str, id="text")
    # A step with two inputs is not chained, so these edges are forward.
    next_ = keyed.union(keyed).process("far", Same()).map(str)
    next_.union(next_).process("farther", Same()).rebalance().process("spread", Same())
    assert carrying(p.plan()) == {"count": True, "far": True, "farther": True, "spread": False}


def test_forward_edges_carry_keys_where_only_some_records_have_one() -> None:
    p = pipeline()
    a, rules = p.source("in", TestingSource()), p.source("rules", TestingSource())
    both = a.key_by("k").connect(rules.broadcast()).process("both", KeyedBoth())
    both.union(both).process("behind", Same())
    mixed = a.key_by("k").union(rules).map(str, id="mixed")
    mixed.union(mixed).process("behind mixed", Same())
    a.union(rules).process("plain", Same())
    found = carrying(p.plan())
    assert (found["behind"], found["behind mixed"], found["plain"]) == (True, True, False)


def test_keys_end_at_map_batches() -> None:
    p = pipeline()
    keyed = p.source("in", TestingSource()).key_by("k").process("count", Count())
    batched = keyed.map_batches(lambda batch: batch, id="batched").map(str, id="text")
    batched.union(batched).process("behind", Same())
    keyed.union(keyed).process("beside", Same())
    assert carrying(p.plan()) == {"count": True, "behind": False, "beside": True}


def test_map_batches_is_chained_like_map() -> None:
    p = pipeline()
    p.source("in", TestingSource()).map_batches(lambda batch: batch).sink("out", TestingSink())
    assert vertices(p.plan()) == ["in → map_batches-1 → out"]


# -- numbers and ids ------------------------------------------------------------------------------------------


def test_subtasks_are_numbered_through_over_all_vertices() -> None:
    p = pipeline(2)
    p.source("in", TestingSource(), parallelism=1).map(str, id="a", parallelism=3).rebalance().map(str, id="b")
    plan = p.plan()
    assert [list(vertex.subtasks) for vertex in plan.vertices] == [[0], [1, 2, 3], [4, 5]]
    assert [plan.subtask_name(i) for i in range(plan.subtasks)] == ["in[0]", "a[0]", "a[1]", "a[2]", "b[0]", "b[1]"]
    assert [plan.vertex_of(i).name for i in range(plan.subtasks)] == ["in", "a", "a", "a", "b", "b"]


def test_steps_without_an_id_get_one_from_their_place_among_those_of_their_kind() -> None:
    p = pipeline()
    p.source("in", TestingSource()).map(str).filter(bool).map(str).map(str).with_id("last")
    assert [step.id for step in p.plan().vertices[0].steps] == ["in", "map-1", "filter-1", "map-2", "last"]


_IDS = st.lists(
    st.one_of(
        st.sampled_from(["a", "b", "a → b", "→", " → ", "'a'", '"', "a → 'b'", "'a", "b'", "ä", "a\u0308"]),
        st.text(st.sampled_from("ab→ '\"\\"), min_size=1).filter(str.strip),
    ),
    min_size=1,
)


@given(_IDS, _IDS)
def test_chains_of_different_steps_have_different_names(one: list[str], other: list[str]) -> None:
    assert (vertex_name(one) == vertex_name(other)) == (one == other)


def test_a_chain_and_a_step_with_a_joined_id_are_two_vertices() -> None:
    p = pipeline()
    keyed = p.source("in", TestingSource()).key_by("k")
    keyed.process("totals", Count()).sink("all", TestingSink())
    keyed.process("totals → all", Count()).rebalance().sink("out", TestingSink())
    plan = p.plan()
    assert vertices(plan) == ["in", "totals → all", "'totals → all'", "out"]
    names = [plan.subtask_name(i) for i in range(plan.subtasks)]
    assert len(set(names)) == len(names)


def test_planning_twice_gives_the_same() -> None:
    p = pipeline()
    p.source("in", TestingSource()).key_by("k").process("count", Count()).sink("out", TestingSink())
    assert p.plan() == p.plan()


# -- what is refused ------------------------------------------------------------------------------------------


def refused(build: Any) -> str:
    p = pipeline()
    try:
        build(p, p.source("in", TestingSource()))
        p.plan()
    except PipelineError as error:
        return str(error)
    pytest.fail("nothing was refused")


@pytest.mark.parametrize(
    ("build", "what", "to_do"),
    [
        (lambda p, s: p.source("in", TestingSource()), "two steps have the id 'in'", "must be unique"),
        (lambda p, s: s.map(str, id="in"), "two steps have the id 'in'", "a source step has it already"),
        (
            lambda p, s: [s.key_by(str).reduce(max, id="x"), s.map(str, id="x")],
            "two steps have the id 'x'",
            "a reduce step has it already",
        ),
        (lambda p, s: s.map(str).with_id("in"), "two steps have the id 'in'", "must be unique"),
        (lambda p, s: s.sink("", TestingSink()), "id of a sink step", "non-empty string"),
        (lambda p, s: s.map(str, id="\ud800"), "id of a map step is '\\ud800'", "can't be written into a checkpoint"),
        (lambda p, s: s.map(str).with_id(" "), "id of step 'map-1'", "non-empty string"),
        (lambda p, s: s.map(str, parallelism=0), "step 'map-1': parallelism", "at least 1, not 0"),
        (lambda p, s: s.map(str, parallelism=True), "step 'map-1': parallelism", "whole number"),
        (lambda p, s: s.map(str, parallelism=1.5), "step 'map-1': parallelism", "whole number"),
        (lambda p, s: p.source("x", TestingSource(), parallelism=0), "step 'x': parallelism", "at least 1, not 0"),
        (lambda p, s: s.map(str, id="wide", parallelism=129), "parallelism 129", "raise max_parallelism"),
        (lambda p, s: s.forward().map(str, id="w", parallelism=3), "needs equal parallelism", "use rebalance()"),
        (lambda p, s: None, "step 'in' is read by no step", "add operators or a sink"),
        (lambda p, s: s.union(s), "step 'in' is read by no step", "add operators or a sink"),
        (lambda p, s: s.process("count", Count()), "Count is a KeyedOperator", "put key_by(...) right before it"),
        (lambda p, s: s.key_by("k").map(str).process("count", Count()), "KeyedOperator", "put key_by(...)"),
        (lambda p, s: s.process("op", Same), "not the class", "give an instance, Same()"),
        (lambda p, s: s.process("op", str), "expected an Operator", "use map"),
        (lambda p, s: s.process(Same(), "op"), "a stable id first", "then the operator"),
        (lambda p, s: s.sink(TestingSink(), "out"), "a stable id first", "then the sink"),
        (lambda p, s: s.sink("out", TestingSource()), "expected a Sink", "not TestingSource"),
        (lambda p, s: p.source("x", TestingSink()), "expected a Source", "not TestingSink"),
        (lambda p, s: s.map("text"), "map takes the function first", "got 'text'"),
        (lambda p, s: s.filter(None), "filter takes the function first", "an id as option"),
        (lambda p, s: s.key_by(True), "key_by takes a field name", "not True"),
        (lambda p, s: s.key_by(1.5), "key_by takes a field name", "an index or a function"),
        (lambda p, s: s.partition_custom("k"), "partition_custom takes a function", "number of subtasks"),
        (lambda p, s: s.union("other"), "union takes streams", "of the same pipeline"),
        (lambda p, s: s.union(pipeline().source("x", TestingSource())), "union takes streams", "of the same pipeline"),
        (lambda p, s: s.connect("other"), "connect takes a stream", "of the same pipeline"),
        (lambda p, s: s.connect(pipeline().source("x", TestingSource())), "connect takes a stream", "same pipeline"),
        (lambda p, s: s.connect(s).process("op", Same()), "Same reads two streams", "implement process_connected"),
        (lambda p, s: s.connect(s).process("op", Both), "not the class", "give an instance"),
        (lambda p, s: s.connect(s).process("op", KeyedBoth()), "KeyedBoth is a KeyedOperator", "put key_by(...)"),
        (
            lambda p, s: s.key_by("k").connect(s.rebalance()).process("op", KeyedBoth()),
            "one stream is keyed and the other neither keyed nor broadcast",
            "put key_by(...) or broadcast() right before connect",
        ),
        (
            lambda p, s: s.key_by("k").connect(s.union(s.broadcast())).process("op", KeyedBoth()),
            "neither keyed nor broadcast",
            "or broadcast()",
        ),
        (
            lambda p, s: s.connect(s).process("op", WithRules()),
            "WithRules.rules is broadcast state",
            "connect(other.broadcast())",
        ),
        (lambda p, s: s.process("op", WithRules()), "WithRules.rules is broadcast state", "connect one"),
        (lambda p, s: s.process("op", NotKeyed()), "NotKeyed.count is a ValueState", "derive NotKeyed from KeyedOp"),
        (lambda p, s: s.map_batches("text"), "map_batches takes the function first", "got 'text'"),
        (lambda p, s: s.side_output("late"), "side_output follows process(...)", "directly"),
        (lambda p, s: s.process("op", Same()).rebalance().side_output("t"), "side_output follows", "directly"),
    ],
)
def test_a_mistake_is_refused_with_what_to_do(build: Any, what: str, to_do: str) -> None:
    message = refused(build)
    assert what in message
    assert to_do in message


def test_one_operator_instance_in_two_steps_is_refused_since_they_would_share_its_state() -> None:
    same = Same()
    message = refused(lambda p, s: s.process("first", same).process("second", same))
    assert "process('second')" in message
    assert "step 'first'" in message
    assert "an instance for each step" in message


def test_a_pipeline_without_a_source_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"begin with p\.source"):
        pipeline().plan()


def test_any_operator_may_have_lists_of_its_subtask() -> None:
    class Plain(Both):
        held = OperatorListState[int]()
        known = OperatorUnionState[int]()

    class Keyed(KeyedBoth):
        held = OperatorListState[int]()

    p = pipeline()
    stream = p.source("in", TestingSource())
    stream.process("plain", Plain()).connect(stream).process("connected", Plain()).key_by("id").process(
        "keyed", Keyed()
    )
    assert {step.id for vertex in p.plan().vertices for step in vertex.steps} >= {"plain", "connected", "keyed"}


def test_state_made_in_the_constructor_is_refused_since_it_would_belong_to_no_key() -> None:
    class Mistaken(KeyedOperator):
        def __init__(self) -> None:
            self.items = ListState()

    message = refused(lambda p, s: s.key_by("id").process("mistaken", Mistaken()))
    assert "Mistaken.items is a ListState" in message
    assert "class body" in message


# -- where state is --------------------------------------------------------------------------------------------


def test_a_step_may_have_a_state_backend_of_its_own() -> None:
    p = pipeline()
    rocksdb = RocksDb(memory=1 << 30)
    keyed = p.source("in", TestingSource()).key_by("key")
    keyed.process("one", Count(), state_backend=rocksdb).sink("out", TestingSink())
    keyed.process("other", Count()).sink("else", TestingSink())
    steps = {step.id: step for vertex in p.plan().vertices for step in vertex.steps}
    assert (steps["one"].state_backend, steps["other"].state_backend) == (rocksdb, None)


def test_a_state_backend_that_there_is_not_or_has_no_effect_is_refused() -> None:
    stream = pipeline().source("in", TestingSource())
    with pytest.raises(PipelineError, match=r"process\('a'\): state_backend must be one of heap, rocksdb, RocksDb"):
        stream.key_by("key").process("a", Count(), state_backend="rocks")  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match="would have no effect, Same is no KeyedOperator"):
        stream.process("b", Same(), state_backend="rocksdb")
