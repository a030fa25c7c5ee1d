"""The option `on_error` of steps: what it may be, and what comes with it in the plan."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline import AtMost, Count, DeadLetter, Operator, Pipeline, PipelineError, Skip
from pipeline.dead_ends import dead_ends
from pipeline.graph import StepKind
from pipeline.streams import Stream
from pipeline.testing import TestingSink
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
    one = one.flat_map(list, id="flat_map", on_error=policy).process("process", Same(), on_error=policy)
    one = one.connect(stream.broadcast()).process("connected", Same(), on_error=policy)
    one = one.key_by(len).aggregate("aggregate", n=Count(), on_error=policy)
    one.key_by("key").reduce(max, id="reduce", on_error=policy).sink("out", TestingSink())
    steps = {step.id: step.on_error for vertex in pipeline.plan().vertices for step in vertex.steps}
    assert steps.pop("in") is None
    assert steps.pop("out") is None
    assert steps == dict.fromkeys(
        ["map", "filter", "filter_not", "map_async", "flat_map", "process", "connected", "aggregate", "reduce"],
        Skip(AtMost(0.01, 60)),
    )


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
