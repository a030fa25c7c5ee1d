"""From what a user writes to vertices, edges and numbered subtasks; and what is refused, with what to do."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline import KeyedOperator, ListState, Operator, Pipeline, PipelineError, ValueState
from pipeline.graph import Plan
from pipeline.partitioners import Distribution
from pipeline.testing import TestingSink, TestingSource


class Same(Operator):
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
        (lambda p, s: s.map(str, id="in"), "two steps have the id 'in'", "must be unique"),
        (lambda p, s: s.map(str).with_id("in"), "two steps have the id 'in'", "must be unique"),
        (lambda p, s: s.sink("", TestingSink()), "id of a sink step", "non-empty string"),
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


def test_state_made_in_the_constructor_is_refused_since_it_would_belong_to_no_key() -> None:
    class Mistaken(KeyedOperator):
        def __init__(self) -> None:
            self.items = ListState()

    message = refused(lambda p, s: s.key_by("id").process("mistaken", Mistaken()))
    assert "Mistaken.items is a ListState" in message
    assert "class body" in message
