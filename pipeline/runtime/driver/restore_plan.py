"""Which subtask gets what of a restored checkpoint (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from checkpoint.key_groups import range_of
from checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot
from pipeline.errors import PipelineError
from pipeline.graph import Plan, PlannedStep, StepKind, Vertex
from pipeline.operators import KeyedOperator
from pipeline.runtime.deployment import Restored
from pipeline.runtime.in_flight import check_in_flight


def check_restorable(metadata: CheckpointMetadata, plan: Plan, max_parallelism: int, allow_unclaimed: bool) -> None:
    """
    Raises:
        PipelineError: the checkpoint doesn't fit the pipeline; the message says what to change.
    """
    if metadata.max_parallelism != max_parallelism:
        raise PipelineError(
            f"checkpoint {metadata.id} was taken with max_parallelism {metadata.max_parallelism}, which its key groups "
            f"depend on; the pipeline has {max_parallelism}. Set it back, or start with restore='none'"
        )
    known = {step.id for vertex in plan.vertices for step in vertex.steps}
    unclaimed = sorted(id for id in metadata.step_ids - known if any(map(_has_state, metadata.operator(id))))
    if unclaimed and not allow_unclaimed:
        raise PipelineError(
            f"checkpoint {metadata.id} has state of steps that the pipeline doesn't have: {', '.join(unclaimed)}. "
            "A renamed step loses its state: give it its old id back; or drop that state with allow_unclaimed=True"
        )
    keyed = {step.id for vertex in plan.vertices for step in vertex.steps if isinstance(step.payload, KeyedOperator)}
    for id in sorted(metadata.step_ids & known - keyed):
        if not allow_unclaimed and any(snapshot.keyed_state for snapshot in metadata.operator(id)):
            raise PipelineError(
                f"checkpoint {metadata.id} has keyed state of step {id!r}, which isn't a KeyedOperator any more: make "
                "it one again, give the new step another id, or drop that state with allow_unclaimed=True"
            )
    check_in_flight(metadata, plan)


def _has_state(snapshot: OperatorSnapshot) -> bool:
    """Whether a user would miss it: watermarks are made anew."""
    return bool(set(snapshot.state) - {"event_time", "watermarks"} or any(snapshot.all_files()))


def restored_for(
    vertex: Vertex,
    index: int,
    metadata: CheckpointMetadata,
    max_parallelism: int,
    load_state: Callable[[OperatorSnapshot], Mapping[str, Any]],
    allow_unclaimed: bool = False,
) -> Restored:
    """What comes to subtask `index` (from 0) of `vertex`.

    Keyed state goes by key group; an operator's own state from old subtask i to i mod parallelism; broadcast state of
    one old subtask, which equals that of all, to every new one; every source subtask sees all positions and takes its
    own; a sink's owners stay where they were, and those beyond the new parallelism go to owner mod parallelism.

    Raises:
        PipelineError: a step has state of another kind of step.
    """
    restored = Restored()
    for step in vertex.steps:
        old = _Old.of(metadata, step.id)
        if old is not None:
            states = {i: load_state(snapshot) for i, snapshot in old.snapshots.items()}
            if not allow_unclaimed:
                _refuse_unclaimed(step, metadata.id, states.values())
            _add_step(restored, step, vertex.parallelism, index, old, states, max_parallelism)
    return restored


@dataclass(frozen=True)
class _Old:
    """A step in the checkpoint."""

    parallelism: int
    snapshots: Mapping[int, OperatorSnapshot]
    """By subtask index of then; subtasks in which it had no state are missing."""

    @classmethod
    def of(cls, metadata: CheckpointMetadata, id: str) -> _Old | None:
        for vertex in metadata.vertices.values():
            snapshots = {i: s.operators[id] for i, s in enumerate(vertex.subtasks) if id in s.operators}
            if snapshots:
                return cls(vertex.parallelism, snapshots)
        return None


_CLAIMS = {StepKind.PROCESS: {"operator", "broadcast"}, StepKind.SOURCE: {"source"}, StepKind.SINK: {"sink"}}
"""The parts of a snapshot's state that a kind of step takes."""
_RUNTIMES_OWN = {"event_time", "watermarks"}
"""Parts that belong to no user: where no step takes them any more, they mean nothing."""


def _refuse_unclaimed(step: PlannedStep, checkpoint_id: int, states: Iterable[Mapping[str, Any]]) -> None:
    unclaimed = {part for state in states for part in state} - _CLAIMS.get(step.kind, set()) - _RUNTIMES_OWN
    if unclaimed:
        raise PipelineError(
            f"checkpoint {checkpoint_id} has state of a {min(unclaimed)} under the id {step.id!r}, which is a "
            f"{step.kind.value} step now: give each its own id, or drop that state with allow_unclaimed=True"
        )


def _add_step(
    restored: Restored,
    step: PlannedStep,
    parallelism: int,
    index: int,
    old: _Old,
    states: Mapping[int, Mapping[str, Any]],
    max_parallelism: int,
) -> None:
    if isinstance(step.payload, KeyedOperator):
        mine = range_of(index, parallelism, max_parallelism)
        for i, snapshot in old.snapshots.items():
            theirs = range_of(i, old.parallelism, max_parallelism)
            if snapshot.keyed_state and mine.start < theirs.stop and theirs.start < mine.stop:
                restored.keyed_state.setdefault(step.id, []).extend(snapshot.keyed_state)
    if step.kind is StepKind.PROCESS:
        own = [state["operator"] for i, state in states.items() if "operator" in state and i % parallelism == index]
        if own:
            restored.operators[step.id] = own
        # Its own, if there is one: subtasks can differ in what several upstream subtasks wrote under one key.
        source = index % old.parallelism
        with_broadcast = {i: state["broadcast"] for i, state in states.items() if "broadcast" in state}
        if with_broadcast:
            restored.broadcast[step.id] = with_broadcast.get(source) or with_broadcast[min(with_broadcast)]
    event_time = [state["event_time"] for state in states.values() if "event_time" in state]
    if event_time and step.chained_to is None:
        restored.event_time[step.id] = event_time
    watermarks = [state["watermarks"] for state in states.values() if "watermarks" in state]
    if watermarks:
        restored.watermarks[step.id] = watermarks
    if step.kind is StepKind.SOURCE:
        restored.sources[step.id] = [state["source"] for state in states.values() if "source" in state]
    if step.kind is StepKind.SINK:
        hosted: dict[str, list[Any]] = {"pending": [], "committers": []}
        for state in states.values():
            for part, rows in state.get("sink", {}).items():
                hosted[part] += [row for row in rows if row[0] % parallelism == index]
        restored.sinks[step.id] = hosted
