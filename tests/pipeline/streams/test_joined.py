"""Joins as steps of a pipeline, over subtasks and channels."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pipeline import Pipeline, PipelineError, Tumbling, WatermarkStrategy
from pipeline.event_time_inputs import check_event_time
from pipeline.joins import AsOfJoin, IntervalJoin, WindowJoin
from pipeline.plan import plan
from pipeline.runtime.packing import pack_plan, unpack_plan
from pipeline.testing import OperatorHarness, PipelineHarness, TestingSource
from sources import SequenceSource

TIMES = WatermarkStrategy.bounded("at", 0.005)


def source(p: Pipeline, id: str) -> Any:
    return p.source(id, TestingSource()).assign_timestamps(TIMES)


def numbers(p: Pipeline, id: str = "numbers", endless: bool = False) -> Any:
    return p.source(id, SequenceSource(None, rate=1) if endless else SequenceSource(9))


def keyed(p: Pipeline, id: str = "numbers") -> Any:
    return numbers(p, id).key_by(lambda n: n)


def pipeline(parallelism: int) -> Pipeline:
    """A left join, and an as-of join of what comes of it."""
    p = Pipeline("joins", parallelism)
    orders, payments, rates = (source(p, id) for id in ("orders", "payments", "rates"))
    paid = orders.key_by("id").join(payments.key_by("id"), within=(0, 0.010), how="left", id="paid")
    paid.late().map(lambda one: one, id="late")
    paid.key_by(lambda one: one["key"] % 2).join_as_of(rates.key_by("parity"), how="left", id="rated")
    return p


def record(id: int, at: int) -> dict[str, int]:
    return {"id": id, "at": at}


def rate(parity: int, at: int) -> dict[str, int]:
    return {"parity": parity, "at": at}


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (4, 2), (7, 3)])
@pytest.mark.parametrize("seed", range(4))
def test_results_depend_neither_on_the_order_of_the_inputs_nor_on_rescaling(before: int, after: int, seed: int) -> None:
    """The snapshot has records in flight."""
    job = PipelineHarness(pipeline(before), seed=seed)
    for i in range(20):
        job.send("orders", record(i, 10 * i))
        if i % 3:
            job.send("payments", record(i, 10 * i + i % 11))
        if i % 4 == 0:
            job.send("rates", rate(i // 4 % 2, 10 * i + 5))
    snapshot, done = job.snapshot(), job.outputs("rated")
    job = PipelineHarness.restore(pipeline(after), snapshot, seed=seed)
    for i in range(20, 40):
        job.send("rates", rate(i % 2, 10 * i + 1))
        job.send("payments", record(i, 10 * i + i % 12))
        job.send("orders", record(i, 10 * i))
    job.end_of_input()
    job.deliver()
    assert Counter(map(repr, [*done, *job.outputs("rated")])) == Counter(map(repr, expected()))
    assert job.outputs("late") == []


def expected() -> list[Any]:
    """A payment comes within 10 ms, or not at all."""
    rates = [rate(i // 4 % 2, 10 * i + 5) for i in range(0, 20, 4)] + [rate(i % 2, 10 * i + 1) for i in range(20, 40)]
    found = []
    for i in range(40):
        at = 10 * i + (i % 11 if i < 20 else i % 12)
        paid = (i % 3 or i >= 20) and at <= 10 * i + 10
        pair = {"key": i, "left": record(i, 10 * i), "right": record(i, at) if paid else None}
        known = at if paid else 10 * i + 10
        versions = [one for one in rates if one["parity"] == i % 2 and one["at"] <= known]
        newest = max(versions, key=lambda one: one["at"], default=None)
        found.append({"key": i % 2, "left": pair, "right": newest})
    return found


@pytest.mark.parametrize("same", [True, False])
def test_a_stream_joins_itself(same: bool) -> None:
    p = Pipeline("self", 2)
    clicks = source(p, "clicks")
    keyed = clicks.key_by("id")
    keyed.join(keyed if same else clicks.key_by("id"), within=(0, 0.005), id="pairs")
    job = PipelineHarness(p)
    for at in (1, 4, 9):
        job.send("clicks", record(1, at))
    job.end_of_input()
    times = sorted((pair["left"]["at"], pair["right"]["at"]) for pair in job.outputs("pairs"))
    assert times == [(1, 1), (1, 4), (4, 4), (4, 9), (9, 9)]


@pytest.mark.parametrize("seed", range(3))
def test_a_window_joins_what_several_subtasks_send(seed: int) -> None:
    def windows(parallelism: int) -> Pipeline:
        p = Pipeline("windows", parallelism)
        left, right = source(p, "left").key_by("id"), source(p, "right").key_by("id")
        left.join(
            right,
            window=Tumbling(0.020),
            how="full",
            select=lambda one, other: [one and one["at"], other and other["at"]],
        )
        return p

    job = PipelineHarness(windows(3), seed=seed)
    for i in range(30):
        job.send("left", record(i % 3, i))
        job.send("right", record(i % 4, i))
    snapshot, done = job.snapshot(), job.outputs("join-1")
    job = PipelineHarness.restore(windows(2), snapshot, seed=seed)
    job.end_of_input()
    job.deliver()
    expected = [[i, j] for i in range(30) for j in range(30) if i % 3 == j % 4 and i // 20 == j // 20] + [
        [None, j] for j in range(30) if j % 4 == 3
    ]
    assert sorted(map(repr, [*done, *job.outputs("join-1")])) == sorted(map(repr, expected))


def test_a_join_that_waits_says_for_which_stream() -> None:
    operators = [IntervalJoin((0, 1)), AsOfJoin(), WindowJoin(Tumbling(1))]
    assert [one._inputs for one in operators] == [("left", "right")] * 3
    p = Pipeline("p")
    source(p, "a").key_by("id").join(source(p, "b").key_by("id"), within=(0, 1), id="pairs")
    vertex = next(one for one in p.plan().vertices if one.head.id == "pairs")
    edges = p.plan().inputs_of(vertex.index)
    assert [(edge.upstream_step, edge.name.input) for edge in edges] == [
        (edge.upstream_step, edge.input) for edge in edges
    ]


def test_late_records_come_out_with_their_side() -> None:
    job = PipelineHarness(pipeline(2))
    for id in ("orders", "payments"):
        job.send(id, record(1, 100))
    job.send("payments", record(1, 50))
    assert job.outputs("late") == [{"key": 1, "side": "right", "record": record(1, 50)}]


def test_a_record_that_a_result_fails_on_is_as_if_it_had_not_come() -> None:
    def select(left: Any, right: Any) -> Any:
        return [left["at"], 12 // right["n"]]

    p = Pipeline("skip")
    left, right = source(p, "left").key_by("id"), source(p, "right").key_by("id")
    left.join(right, within=(-0.005, 0.005), select=select, id="pairs", on_error="skip")
    job = PipelineHarness(p)
    job.send("left", record(1, 100))
    job.send("right", {"id": 1, "at": 101, "n": 0})
    job.send("left", record(1, 102))
    job.send("right", {"id": 1, "at": 101, "n": 3})
    job.end_of_input()
    assert sorted(job.outputs("pairs")) == [[100, 4], [102, 4]]


def test_steps_are_named_by_their_kind_and_can_be_packed() -> None:
    p = Pipeline("p")
    left, right = keyed(p), keyed(p, "others")
    left.join(right, within=(0, 1))
    left.join_as_of(right)
    left.join(right, within=(0, 1), id="again", parallelism=2, state_backend="rocksdb", select=lambda a, b: a)
    steps = p._graph.steps
    assert [step.id for step in steps[2:]] == ["join-1", "join_as_of-1", "again"]
    assert (steps[-1].parallelism, steps[-1].state_backend) == (2, "rocksdb")
    packed = unpack_plan(pack_plan(plan(p._graph, 128)))
    one = OperatorHarness(packed.vertices[-1].head.payload)
    one.process(5, key=1, timestamp=1)
    assert one.process_connected(6, key=1, timestamp=1) == [5]


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda p, left: left.join(numbers(p, "others"), within=(0, 1)), "the right one is a stream without keys"),
        (lambda p, left: left.join(5, within=(0, 1)), "the right one is 5"),
        (lambda p, left: left.join(keyed(Pipeline("other")), within=(0, 1)), "of the same pipeline"),
        (lambda p, left: left.join(left, within=(1, 0)), "lower bound first"),
        (lambda p, left: left.join(left), "give either within"),
        (lambda p, left: left.join(left, within=(0, 1), window=Tumbling(5)), "give either within"),
        (lambda p, left: left.join(left, window=5), "window is Tumbling"),
        (lambda p, left: left.join(left, within=(0, 1), id=5), "an id is a text"),
        (lambda p, left: left.join(left, within=(0, 1), state_backend="disk"), "disk"),
        (lambda p, left: left.join_as_of(left, "full"), "how must be one of inner, left"),
        (lambda p, left: left.join_as_of(left, id=5), "an id is a text"),
    ],
)
def test_what_can_not_run_is_refused(add: Any, message: str) -> None:
    p = Pipeline("p")
    with pytest.raises(PipelineError, match=message):
        add(p, keyed(p))


@pytest.mark.parametrize("how", ["join", "window", "join_as_of", "at once"])
def test_an_input_without_watermarks_is_refused_by_name(how: str) -> None:
    p = Pipeline("p")
    left = numbers(p, endless=True).assign_timestamps(WatermarkStrategy.bounded(lambda n: n, 0)).key_by(lambda n: n)
    right = numbers(p, "others", endless=True).key_by(lambda n: n)
    if how == "join":
        left.join(right, within=(0, 1), id="both")
    elif how == "window":
        left.join(right, window=Tumbling(1), id="both")
    else:
        left.join_as_of(right, wait=how == "join_as_of", id="both")
    with pytest.raises(
        PipelineError, match=r"step 'both' joins .* from 'others' \(source 'others'\) makes no watermarks"
    ):
        check_event_time(plan(p._graph, 128))
