"""A graph as a user would write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpoint.config import CheckpointConfig
from jobs.graph import MAX_PARALLELISM, Edge, Graph, Kind, Step
from jobs.sink import Staged
from jobs.steps import Choose, Keyed, KeyedWithRules, KeyOf, Numbered, Plain, PlainWithRules, event_time
from pipeline.buffers import BufferConfig
from pipeline.job import Pipeline
from pipeline.partitioners import Distribution
from pipeline.runtime.driver.restart import RestartStrategy
from pipeline.streams import Stream
from pipeline.watermarks import WatermarkStrategy


def pipeline_of(
    graph: Graph,
    world: str,
    parallelism: Mapping[str, int],
    checkpoints: CheckpointConfig,
    restart: RestartStrategy,
    buffers: BufferConfig,
    span: int | None,
    idle_after: float | None,
) -> Pipeline:
    p = Pipeline("job", max_parallelism=MAX_PARALLELISM, checkpoints=checkpoints, restart=restart, buffers=buffers)
    streams: dict[str, Stream] = {}
    strategy = WatermarkStrategy.bounded(event_time, 0, idle_after)
    for step in sorted(graph.steps.values(), key=lambda step: step.kind is not Kind.SOURCE):
        subtasks = parallelism[step.id]
        if step.kind is Kind.SOURCE:
            stream = p.source(step.id, Numbered(world, step, span), parallelism=subtasks)
            streams[step.id] = stream.assign_timestamps(strategy, id=f"{step.id} time")
            continue
        edges = graph.inputs(step)
        data = [edge for edge in edges if edge.distribution is not Distribution.BROADCAST]
        rules = [edge for edge in edges if edge.distribution is Distribution.BROADCAST]
        into = _united([_spread(streams[edge.name.upstream], edge) for edge in data])
        if step.key is not None:
            into = into.key_by(KeyOf(step.key.factor, step.key.keys))
        if step.kind is Kind.SINK:
            into.sink(step.id, Staged(world, step), parallelism=subtasks)
        elif rules:
            elements = _united([streams[edge.name.upstream] for edge in rules]).broadcast()
            streams[step.id] = into.connect(elements).process(step.id, _operator(world, step, True), subtasks)
        else:
            streams[step.id] = into.process(step.id, _operator(world, step, False), subtasks)
    return p


def _united(streams: list[Stream]) -> Stream:
    first, *others = streams
    return first.union(*others) if others else first


def _spread(stream: Stream, edge: Edge) -> Stream:
    match edge.distribution:
        case Distribution.REBALANCE:
            return stream.rebalance()
        case Distribution.RESCALE:
            return stream.rescale()
        case Distribution.FORWARD:
            return stream.forward()
        case Distribution.CUSTOM:
            assert edge.key is not None
            return stream.partition_custom(Choose(edge.key.factor, edge.key.keys))
    return stream  # keyed: behind the union


def _operator(world: str, step: Step, rules: bool) -> Any:
    if step.key is not None:
        return (KeyedWithRules if rules else Keyed)(world, step)
    return (PlainWithRules if rules else Plain)(world, step)
