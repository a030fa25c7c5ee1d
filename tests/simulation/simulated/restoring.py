"""What a new subtask gets of a checkpoint: state by key group, writers by index, in-flight data by the edge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from checkpoint.elements import EdgeName
from checkpoint.in_flight.edges import EdgeShape
from checkpoint.in_flight.redistribute import EdgeRedistribution, Rule, assign, redistribute
from checkpoint.in_flight.restored_input import Entry
from checkpoint.in_flight.runs import Run, runs_of
from checkpoint.key_groups import subtask_of
from checkpoint.row_format import row_format
from pipeline.partitioners import Distribution
from simulated.frames import with_frames
from simulated.graph import MAX_PARALLELISM, Edge, Graph, Row, Step, group_of
from simulated.options import Options
from simulated.storage import Checkpoint, SubtaskState
from simulated.subtask import custom, shares


class BroadcastStatesDiffer(AssertionError):
    """Subtasks that must have seen the same have not."""


def shape(edge: Edge, parallelism: Mapping[str, int]) -> EdgeShape:
    up, down = parallelism[edge.name.upstream], parallelism[edge.name.downstream]
    return EdgeShape(str(edge.distribution), str(edge.key), edge.carries_groups, up, down)


def needs_drain(graph: Graph, checkpoint: Checkpoint, parallelism: dict[str, int]) -> bool:
    return checkpoint.draining or checkpoint.parallelism != parallelism


class Restoring:
    """A checkpoint on its way into the subtasks of the next attempt."""

    def __init__(
        self, graph: Graph, checkpoint: Checkpoint | None, parallelism: dict[str, int], options: Options
    ) -> None:
        self._graph = graph
        self._checkpoint = checkpoint
        self._parallelism = parallelism
        self._exactly_once = options.exactly_once
        self._faults = options.faults
        self._edges = {edge.name: edge for edge in graph.edges}
        self._runs: list[Run] = []
        if checkpoint is not None:
            for subtasks in checkpoint.states.values():
                for index, state in enumerate(subtasks):
                    captured = with_frames(state.captured, self._edges)
                    self._runs += runs_of(captured, index, lambda name: row_format(self._edges[name].carries_groups))

    def offsets(self, step: Step) -> dict[int, int]:
        return {split: offset for state in self._states(step) for split, offset in state.offsets.items()}

    def state(self, step: Step, index: int) -> SubtaskState:
        parallelism = self._parallelism[step.id]
        restored = SubtaskState()
        states = self._states(step)
        for state in states:
            for key, rows in state.keyed.items():
                if subtask_of(group_of(key), parallelism, MAX_PARALLELISM) == index:
                    restored.keyed[key] = rows
            for writer, committables in state.pending.items():
                if writer % parallelism == index:
                    restored.pending.setdefault(writer, []).extend(committables)
            restored.markers |= {writer: m for writer, m in state.markers.items() if writer % parallelism == index}
        restored.broadcast = self._broadcast(step, states, index)
        return restored

    def _broadcast(self, step: Step, states: list[SubtaskState], index: int) -> tuple[Row, ...]:
        seen = [state.broadcast for state in states]
        if self._exactly_once and len({frozenset(rows) for rows in seen}) > 1:
            raise BroadcastStatesDiffer(f"subtasks of {step.id} have seen different broadcast elements: {seen}")
        return seen[index % len(seen)] if seen else ()

    def entries(self, step: Step, index: int) -> list[Entry]:
        if self._checkpoint is None:
            return []
        redistributed: dict[EdgeName, EdgeRedistribution] = {}
        for edge in self._graph.inputs(step):
            redistributed[edge.name] = self._redistribution(edge, self._checkpoint)
        return redistribute(self._runs, redistributed, index)

    def holders(self, step: Step, index: int) -> dict[EdgeName, set[int]]:
        """By input edge: the old subtasks whose rows in flight may come to this one."""
        if self._checkpoint is None:
            return {}
        found = {}
        for edge in self._graph.inputs(step):
            redistribution = self._redistribution(edge, self._checkpoint)
            if redistribution.rule is not Rule.NOTHING:
                found[edge.name] = set(redistribution.holders(index))
        return found

    def watermarks(self, step: Step) -> list[dict[str, Any]]:
        """What all old subtasks knew of event time."""
        return [state.watermarks for state in self._states(step) if state.watermarks is not None]

    def _redistribution(self, edge: Edge, checkpoint: Checkpoint) -> EdgeRedistribution:
        old, new = shape(edge, checkpoint.parallelism), shape(edge, self._parallelism)
        if edge.distribution is Distribution.FORWARD and "forward_edges_carry_no_key_groups" in self._faults:
            old = replace(old, fingerprint="another")  # so an old channel moves whole
        key = edge.key
        found = EdgeRedistribution(
            old,
            new,
            MAX_PARALLELISM,
            shares=lambda upstream: shares(edge, upstream, new.upstreams, new.downstreams),
            key_of=None if key is None else (lambda value: key.of(value[0], value[1])),
        )
        if found.rule is not Rule.ASSIGNED:
            return found
        runs = [run for run in self._runs if run.origin.channel.edge == edge.name]
        assigned = assign(runs, old.format, lambda value: custom(edge, Row(value[0], value[1]), new.downstreams))
        return EdgeRedistribution(old, new, MAX_PARALLELISM, found.shares, found.key_of, assigned)

    def _states(self, step: Step) -> list[SubtaskState]:
        return [] if self._checkpoint is None else self._checkpoint.states[step.id]
