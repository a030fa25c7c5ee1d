"""The option `on_error` of steps: what it may be, and what comes with it in the plan."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from pipeline import AtMost, Count, DeadLetter, Operator, Pipeline, PipelineError, Skip, WatermarkStrategy
from pipeline.dead_ends import dead_ends
from pipeline.graph import StepKind
from pipeline.streams import Stream
from pipeline.streams.connected import ConnectedStreams
from pipeline.streams.joined import JoinedStream
from pipeline.streams.keyed import KeyedStream
from pipeline.streams.windowed import WindowedStream, WindowResults
from pipeline.testing import PipelineHarness, TestingSink, TestingSource
from sinks.kafka.letters import LetterSink
from sources import KafkaSource, SequenceSource


class Same(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        yield value

    process_connected = process


async def ask(value: Any) -> Any:
    return value


def records(source: Any = None) -> tuple[Pipeline, Stream]:
    pipeline = Pipeline("p")
    return pipeline, pipeline.source("in", source or SequenceSource(3))


def letter_sink(pipeline: Pipeline, id: str) -> LetterSink:
    [step] = [step for vertex in pipeline.plan().vertices for step in vertex.steps if step.id == id]
    assert step.kind is StepKind.SINK
    assert isinstance(step.payload, LetterSink)
    return step.payload


@pytest.mark.parametrize("given", ["ignore", None, True, Skip, "fail "])
def test_what_is_no_policy_is_refused(given: Any) -> None:
    _, stream = records()
    with pytest.raises(PipelineError, match="on_error must be"):
        stream.map(str, on_error=given)
    with pytest.raises(PipelineError, match=r"process\('same'\): on_error must be"):
        stream.process("same", Same(), on_error=given)


def test_every_step_that_runs_users_code_record_by_record_has_it() -> None:
    pipeline, stream = records()
    policy = Skip(at_most=(0.01, 60))
    one = stream.map(str, id="map", on_error=policy).filter(bool, id="filter", on_error=policy)
    one = one.filter_not(callable, id="filter_not", on_error=policy).map_async(ask, id="map_async", on_error=policy)
    one = one.peek(print, id="peek", on_error=policy).split("split", on_error=policy, large=bool).large
    one = one.assign_timestamps(WatermarkStrategy.bounded("at", 1), id="time", on_error=policy)
    one = one.flat_map(list, id="flat_map", on_error=policy).process("process", Same(), on_error=policy)
    one = one.connect(stream.broadcast()).process("connected", Same(), on_error=policy)
    one = one.key_by(len).aggregate("aggregate", n=Count(), on_error=policy)
    one.key_by("key").reduce(max, id="reduce", on_error=policy).sink("out", TestingSink())
    steps = {step.id: step.on_error for vertex in pipeline.plan().vertices for step in vertex.steps}
    assert steps.pop("in") is None
    assert steps.pop("out") is None
    assert steps == dict.fromkeys(
        [
            *("map", "filter", "filter_not", "map_async", "peek", "split", "time", "flat_map", "process"),
            *("connected", "aggregate", "reduce"),
        ],
        Skip(AtMost(0.01, 60)),
    )


WITHOUT = {
    "map_batches": "its function gets no record of its own",
    "sink": "what a writer refuses is the sink's to say",
    **dict.fromkeys(("key_by", "partition_custom"), "they are between steps, and add none"),
    **dict.fromkeys(("limit_rate", "rebalance", "rescale", "broadcast", "forward", "union"), "no code of the user's"),
    **dict.fromkeys(("connect", "window", "side_output", "errors", "late", "with_id"), "they add no step"),
}


@pytest.mark.parametrize("kind", [Stream, KeyedStream, JoinedStream, ConnectedStreams, WindowedStream, WindowResults])
def test_every_method_that_adds_a_step_with_users_code_takes_it(kind: type) -> None:
    methods = {name: one for name, one in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
    assert methods
    without = {name for name, one in methods.items() if "on_error" not in inspect.signature(one).parameters}
    assert without <= WITHOUT.keys()
    assert not (methods.keys() - without) & WITHOUT.keys()


def test_dead_letters_go_to_the_cluster_of_the_source_with_its_settings() -> None:
    config = {"security.protocol": "SSL", "fetch.min.bytes": 7}
    pipeline, stream = records(KafkaSource("kafka:9092", topics=["orders"], config=config))
    stream.map(str, id="text", on_error=DeadLetter("dead", config={"linger.ms": 3})).sink("out", TestingSink())
    sink = letter_sink(pipeline, "text-errors")
    assert (sink.servers, sink.topic, sink.delivery) == ("kafka:9092", "dead", "exactly_once")
    assert sink.config == {"security.protocol": "SSL", "linger.ms": 3}
    assert [[step.id for step in vertex.steps] for vertex in pipeline.plan().vertices] == [
        ["in", "text", "text-errors", "out"]
    ]


def test_or_to_the_servers_that_are_given() -> None:
    pipeline, stream = records()
    stream.map(str, on_error=DeadLetter("dead", servers="other:9092")).with_id("text").sink("out", TestingSink())
    assert letter_sink(pipeline, "text-errors").servers == "other:9092"


def test_without_one_kafka_source_servers_are_needed() -> None:
    _, stream = records()
    with pytest.raises(PipelineError, match=r"no Kafka clusters.*servers=…"):
        stream.map(str, on_error=DeadLetter("dead"))


def test_the_topic_is_none_that_the_job_reads() -> None:
    _, stream = records(KafkaSource("kafka:9092", topics=["orders"]))
    with pytest.raises(PipelineError, match="come back without end"):
        stream.map(str, on_error=DeadLetter("orders"))


@pytest.mark.parametrize("option", [{"servers": "other:9092"}, {"at_most": (0.1, 60)}])
def test_a_source_takes_no_options_of_steps(option: Any) -> None:
    with pytest.raises(ValueError, match="is for steps"):
        KafkaSource("kafka:9092", topics=["orders"], on_bad_record=DeadLetter("dead", **option))


def test_errors_need_a_step_that_leaves_records_out() -> None:
    _, stream = records()
    with pytest.raises(PipelineError, match="errors"):
        stream.map(str).errors()
    with pytest.raises(PipelineError, match="errors"):
        stream.map(str, on_error="skip").rebalance().errors()


def test_a_stream_of_errors_alone_leads_nowhere() -> None:
    pipeline, stream = records()
    stream.map(str, id="text", on_error="skip").errors().sink("failed", TestingSink())
    assert any("'text'" in problem and "read by no step" in problem for problem in dead_ends(pipeline._graph))


class Refused(Exception):
    pass


def refusing(value: Any) -> Any:
    if value["at"] % 3 == 0:
        raise Refused("no threes")
    return True


STEPS: dict[str, Callable[[Stream], tuple[Stream, Stream]]] = {
    "peek": lambda s: (one := s.peek(lambda v: refusing(v) and None, on_error="skip"), one.errors()),
    "split": lambda s: ((b := s.split(on_error="skip", all=refusing)).all, b.errors()),
    "assign_timestamps": lambda s: (
        one := s.assign_timestamps(
            WatermarkStrategy.bounded(lambda v: refusing(v) and v["at"], lateness=0), on_error="skip"
        ),
        one.errors(),
    ),
    "assign_timestamps of a field": lambda s: (
        one := s.map(lambda v: v if v["at"] % 3 else {"no": v["at"]}).assign_timestamps(
            WatermarkStrategy.bounded("at", lateness=0), on_error="skip"
        ),
        one.errors(),
    ),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_record_that_such_a_step_fails_on_is_left_out(step: str) -> None:
    pipeline, stream = records(TestingSource())
    passed, errors = STEPS[step](stream)
    passed.map(lambda v: v["at"], id="first").sink("out", TestingSink())
    passed.map(lambda v: v.pop("at"), id="second").sink("again", TestingSink())
    errors.map(lambda e: e["reason"] and next(iter(e["record"].values()))).sink("failed", TestingSink())
    job = PipelineHarness(pipeline)
    for at in range(1, 10):
        job.send("in", {"at": at})
    job.end_of_input()
    passing = [at for at in range(1, 10) if at % 3]
    assert sorted(job.outputs("out")) == sorted(job.outputs("again")) == passing
    assert sorted(job.outputs("failed")) == [3, 6, 9]
