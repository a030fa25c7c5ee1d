"""Gives a step the option `on_error`, and what comes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.errors import PipelineError
from pipeline.graph import Graph, Input, Step, StepKind, errors_id
from pipeline.on_error import ERRORS, DeadLetter, Skip
from sinks.kafka.letters import LetterSink
from sources.kafka import KafkaSource

if TYPE_CHECKING:
    from pipeline.job import Pipeline


def guard(pipeline: Pipeline, step: Step, on_error: Skip | DeadLetter | None) -> None:
    """Set what becomes of records that the step fails on; for dead letters, add the sink that writes them. It is
    chained to the step, so a letter is part of the same epoch as all else that the record did.

    Raises:
        PipelineError: it isn't known where the topic is, or the sink doesn't take the settings.
    """
    step.on_error = on_error
    if not isinstance(on_error, DeadLetter):
        return
    graph = pipeline._graph
    servers, config = _cluster(graph, step, on_error)
    try:
        sink = LetterSink(servers, on_error.topic, pipeline.name, config)
    except (ValueError, TypeError) as error:
        raise PipelineError(f"{step}: on_error={on_error!r}: {error}") from error
    letters = graph.add(
        StepKind.SINK,
        errors_id(step.id),
        sink,
        step.parallelism,
        [Input(step.index, tag=ERRORS)],
        follows=(step.index,),
    )
    letters.named, letters.comes_with = step.named, step.index


def _cluster(graph: Graph, step: Step, letter: DeadLetter) -> tuple[str, dict[str, Any]]:
    """Addresses and settings."""
    if letter.servers is not None:
        return letter.servers, dict(letter.config)
    sources = list(_sources(graph, step))
    for source in sources:
        if source.options.reads(letter.topic):
            raise PipelineError(
                f"{step}: the topic for its dead letters, {letter.topic!r}, is one that the job reads: every failed "
                "record would come back without end. Name another topic"
            )
    found = {source.options.servers: source.options.shared_config() for source in sources}
    if len(found) != 1:
        raise PipelineError(
            f"{step}: its records come from {len(found) or 'no'} Kafka clusters, so it isn't known where the topic "
            f"{letter.topic!r} is: give on_error=DeadLetter({letter.topic!r}, servers=…)"
        )
    [(servers, config)] = found.items()
    return servers, {**config, **letter.config}


def _sources(graph: Graph, step: Step) -> list[KafkaSource]:
    """The Kafka sources that the step's records come from."""
    left, seen = [step.index], {step.index}
    found = []
    while left:
        one = graph.steps[left.pop()]
        if isinstance(one.payload, KafkaSource):
            found.append(one.payload)
        for upstream in one.inputs:
            if upstream.step not in seen:
                seen.add(upstream.step)
                left.append(upstream.step)
    return found
