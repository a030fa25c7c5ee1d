"""Running results, as steps of a pipeline and in the harness."""

import pytest

from pipeline import Count, Pipeline, PipelineError, Sum
from pipeline.aggregates.running import running_aggregate, running_reduce
from pipeline.plan import plan
from pipeline.runtime.packing import pack_plan, unpack_plan
from pipeline.testing import OperatorHarness
from sources import SequenceSource


def keyed():
    return Pipeline("p").source("numbers", SequenceSource(9)).key_by(lambda n: n % 3)


def test_each_record_gives_what_its_key_has_come_to():
    harness = OperatorHarness(running_aggregate({"total": Sum("amount"), "n": Count()}, None))
    for key, amount in (("ann", 2), ("bob", 5), ("ann", 3)):
        harness.process({"amount": amount}, key=key)
    assert harness.outputs == [
        {"key": "ann", "total": 2, "n": 1},
        {"key": "bob", "total": 5, "n": 1},
        {"key": "ann", "total": 5, "n": 2},
    ]


def test_it_goes_on_after_a_restore_and_refuses_other_aggregates():
    harness = OperatorHarness(running_aggregate({"n": Count()}, None))
    harness.process({}, key="ann")
    restored = OperatorHarness.restore(running_aggregate({"n": Count()}, None), harness.snapshot())
    assert restored.process({}, key="ann") == [{"key": "ann", "n": 2}]
    with pytest.raises(PipelineError, match="the checkpoint has the aggregates n=Count"):
        OperatorHarness.restore(running_aggregate({"m": Count()}, None), harness.snapshot())


def test_a_key_begins_anew_when_its_time_to_live_is_over():
    harness = OperatorHarness(running_aggregate({"n": Count()}, 60))
    harness.process({}, key="ann")
    harness.advance_time(59)
    assert harness.process({}, key="ann") == [{"key": "ann", "n": 2}]
    harness.advance_time(60)
    assert harness.process({}, key="ann") == [{"key": "ann", "n": 1}]


def test_reduce_begins_with_a_keys_first_record():
    harness = OperatorHarness(running_reduce(max, None))
    for key, value in (("a", 3), ("a", 1), ("b", -1), ("a", 4)):
        harness.process(value, key=key)
    assert harness.outputs == [3, 3, -1, 4]


def test_steps_are_named_by_their_kind_and_can_be_packed():
    stream = keyed()
    stream.aggregate(n=Count())
    stream.aggregate("totals", total=Sum(lambda n: n))
    stream.reduce(max, ttl=60)
    stream.aggregate(id="again", n=Count(), parallelism=2, state_backend="rocksdb")
    graph = stream._pipeline._graph
    assert [step.id for step in graph.steps[1:]] == ["aggregate-1", "totals", "reduce-1", "again"]
    assert (graph.steps[-1].parallelism, graph.steps[-1].state_backend) == (2, "rocksdb")
    packed = unpack_plan(pack_plan(plan(graph, 128)))
    operator = packed.vertices[1].head.payload
    assert OperatorHarness(operator).process(4, key=1) == [{"key": 1, "n": 1}]


@pytest.mark.parametrize(
    "add",
    [
        lambda stream: stream.aggregate(),
        lambda stream: stream.aggregate(5, n=Count()),
        lambda stream: stream.aggregate(n=5),
        lambda stream: stream.aggregate(start=Count()),
        lambda stream: stream.aggregate(id=Count()),
        lambda stream: stream.reduce("max"),
        lambda stream: stream.aggregate(n=Count(), state_backend="disk"),
    ],
)
def test_what_can_not_run_is_refused(add):
    with pytest.raises(PipelineError):
        add(keyed())
