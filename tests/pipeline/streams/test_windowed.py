"""`key_by(…).window(…)` as steps of a pipeline."""

from __future__ import annotations

import pytest

from pipeline import Count, CountWindow, Pipeline, PipelineError, Session, Sliding, Sum, Tumbling, WatermarkStrategy
from pipeline.dead_ends import dead_ends, unused_streams
from pipeline.plan import plan
from pipeline.runtime.packing import pack_plan, unpack_plan
from pipeline.testing import OperatorHarness
from sinks import PrintSink
from sources import KafkaSource, SequenceSource


def numbers():
    return Pipeline("p").source("numbers", SequenceSource(9))


def keyed():
    return numbers().assign_timestamps(WatermarkStrategy.bounded(lambda n: n, 0)).key_by(lambda n: n % 3)


def test_steps_are_named_by_window_and_can_be_packed():
    stream = keyed()
    stream.window(Tumbling(60), lateness=5).aggregate(n=Count(), total=Sum(lambda n: n))
    stream.window(Sliding(60, 20), early="update").aggregate("totals", id=Count(), parallelism=2)
    stream.window(Session(60), early=10).reduce(max, state_backend="rocksdb")
    graph = stream._pipeline._graph
    assert [step.id for step in graph.steps[2:]] == ["window-1", "totals", "window-3"]
    packed = unpack_plan(pack_plan(plan(graph, 128)))
    for vertex, fields in zip(packed.vertices[1:], ({"n": 1, "total": 4}, {"id": 1}, {"value": 4}), strict=True):
        harness = OperatorHarness(vertex.head.payload)
        harness.process(4, key=1, timestamp=5)
        final = [one for one in harness.end_of_input() if one["final"]]
        assert [{**one, **fields} for one in final] == final
        assert list(final[0])[:4] == ["key", "start", "end", "final"]


def test_what_is_late_is_a_stream_of_the_results_and_of_the_windows():
    windows = keyed().window(Tumbling(60))
    with pytest.raises(PipelineError, match="call aggregate"):
        windows.late()
    results = windows.aggregate(n=Count())
    for late in (results.late(), windows.late()):
        assert (late._step, late._tag) == (results._step, "late")


def test_windows_without_results_and_streams_without_late_records_say_what_to_do():
    windows = keyed().window(Tumbling(60))
    with pytest.raises(AttributeError, match=r"no sink before it has results: put aggregate\(…\) or reduce"):
        windows.sink("out", PrintSink())
    with pytest.raises(AttributeError, match="windows have no 'count'; say what becomes of their records"):
        windows.count()
    results = windows.aggregate(n=Count())
    for stream in (numbers(), keyed(), results.map(str), results.late()):
        with pytest.raises(AttributeError, match=r"late\(\) follows directly a step that tells late records"):
            stream.late()


def test_windows_of_a_source_without_watermarks_are_refused_in_words_of_windows():
    p = Pipeline("p")
    source = KafkaSource("localhost:9092", topics=["orders"], group_id="p")
    p.source("orders", source).key_by("user").window(Tumbling(60)).aggregate(n=Count())
    with pytest.raises(PipelineError, match="step 'window-1' closes windows by event time, but the input of"):
        p.plan()


def test_windows_that_nobody_aggregates_are_told():
    stream = keyed()
    stream.window(Tumbling(60))
    graph = stream._pipeline._graph
    assert any("what window behind" in one for one in unused_streams(graph))
    stream.window(Tumbling(60)).aggregate(n=Count()).sink("out", PrintSink())
    assert list(dead_ends(graph)) == []


def test_reduce_begins_with_the_first_record():
    stream = keyed()
    operator = stream.window(Sliding(0.01, 0.005)).reduce(max)._step.payload
    harness = OperatorHarness(operator)
    for value, at in ((3, 1), (1, 2), (2, 7)):
        harness.process(value, key=0, timestamp=at)
    assert [one["value"] for one in harness.end_of_input()] == [3, 3, 2]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda s: s.window(60), "a kind of windows"),
        (lambda s: s.window(Tumbling), "give an instance"),
        (lambda s: s.window(Tumbling(60), lateness=-1), "lateness"),
        (lambda s: s.window(Tumbling(60), early="often"), "early must be"),
        (lambda s: s.window(Tumbling(60), early=0), "early must be at least"),
        (lambda s: s.window(Tumbling(60)).aggregate(), "needs an aggregate"),
        (lambda s: s.window(Tumbling(60)).aggregate(start=Count()), "can't be called 'start'"),
        (lambda s: s.window(Tumbling(60)).aggregate(5, n=Count()), "an id is a text"),
        (lambda s: s.window(Tumbling(60)).reduce("max"), "reduce takes a function"),
        (lambda s: s.window(Tumbling(60)).reduce(lambda a: a), "must take two records"),
        (lambda s: s.reduce(lambda a: a), "must take two records"),
        (lambda s: s.window(CountWindow(3)).aggregate(n=Count()).late(), "no record is ever late"),
    ],
)
def test_what_can_not_run_is_refused(use, message):
    with pytest.raises(PipelineError, match=message):
        use(keyed())
