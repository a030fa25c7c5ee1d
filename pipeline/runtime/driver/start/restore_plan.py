"""Which subtask gets what of a restored checkpoint (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from checkpoint.committables import SinkState
from checkpoint.key_groups import range_of
from checkpoint.state.binding import descriptors_of
from checkpoint.state.operator_lists import KINDS, shared_out
from checkpoint.state.timers import EVENT_TIMERS, PROCESSING_TIMERS
from checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot
from pipeline.errors import PipelineError
from pipeline.graph import StepKind
from pipeline.operators import KeyedOperator
from pipeline.plan import Plan, PlannedStep, Vertex
from pipeline.runtime.deployment import Restored
from pipeline.runtime.topology_changes import in_flight_misfits


@dataclass(frozen=True)
class Misfit:
    """Something in a checkpoint that the pipeline has no place for."""

    message: str
    """Says what to do."""
    steps: tuple[str, ...] = ()
    """Ids of the steps whose state it is."""
    droppable: bool = False
    """`allow_unclaimed=True` drops it."""


def misfits(metadata: CheckpointMetadata, plan: Plan, max_parallelism: int) -> Iterator[Misfit]:
    """What in the checkpoint doesn't fit the pipeline, as far as its metadata tells (see `wrong_kind`)."""
    if metadata.max_parallelism != max_parallelism:
        yield Misfit(
            f"checkpoint {metadata.id} was taken with max_parallelism {metadata.max_parallelism}, which its key groups "
            f"depend on; the pipeline has {max_parallelism}. Set it back, or start with restore='none'"
        )
    unclaimed = unclaimed_steps(metadata, plan)
    if unclaimed:
        yield Misfit(
            f"checkpoint {metadata.id} has state of steps that the pipeline doesn't have: {', '.join(unclaimed)}. "
            "A renamed step loses its state: give it its old id back; or drop that state with allow_unclaimed=True",
            tuple(unclaimed),
            droppable=True,
        )
    keyed = {step.id for vertex in plan.vertices for step in vertex.steps if isinstance(step.payload, KeyedOperator)}
    for id in sorted(metadata.step_ids & _ids(plan) - keyed):
        if any(snapshot.keyed_state for snapshot in metadata.operator(id)):
            yield Misfit(
                f"checkpoint {metadata.id} has keyed state of step {id!r}, which isn't a KeyedOperator any more: make "
                "it one again, give the new step another id, or drop that state with allow_unclaimed=True",
                (id,),
                droppable=True,
            )
    for _, message in in_flight_misfits(metadata, plan):
        yield Misfit(message)


def check_restorable(metadata: CheckpointMetadata, plan: Plan, max_parallelism: int, allow_unclaimed: bool) -> None:
    """
    Raises:
        PipelineError: the checkpoint doesn't fit the pipeline; the message says what to change.
    """
    for misfit in misfits(metadata, plan, max_parallelism):
        if not (misfit.droppable and allow_unclaimed):
            raise PipelineError(misfit.message)


def unclaimed_steps(metadata: CheckpointMetadata, plan: Plan) -> list[str]:
    """Ids of steps with state that the pipeline doesn't have."""
    return sorted(id for id in metadata.step_ids - _ids(plan) if any(map(_has_state, metadata.operator(id))))


def _ids(plan: Plan) -> set[str]:
    return {step.id for vertex in plan.vertices for step in vertex.steps}


def _has_state(snapshot: OperatorSnapshot) -> bool:
    """Whether a user would miss it: watermarks are made anew."""
    return bool(set(snapshot.state) - {"event_time", "watermarks"} or any(snapshot.all_files()))


def restored_for(
    vertex: Vertex,
    index: int,
    metadata: CheckpointMetadata,
    max_parallelism: int,
    load_state: Callable[[OperatorSnapshot], Mapping[str, Any]],
    allow_unclaimed: bool,
) -> Restored:
    """What comes to subtask `index` (from 0) of `vertex`.

    Keyed state goes by key group; an operator's own state from old subtask i to i mod parallelism; broadcast state of
    one old subtask, which equals that of all, to every new one; operator list and union state as
    `checkpoint.state.operator_lists.shared_out` says; every source subtask sees all positions and takes its
    own; a sink's writers stay where they were, and those beyond the new parallelism go to writer mod parallelism.

    Raises:
        PipelineError: a step has state of another kind of step.
    """
    restored = Restored()
    for step in vertex.steps:
        old = _Old.of(metadata, step.id)
        if old is not None:
            states = {i: load_state(snapshot) for i, snapshot in old.snapshots.items()}
            misfit = None if allow_unclaimed else wrong_kind(step, metadata.id, states.values())
            if misfit is not None:
                raise PipelineError(misfit.message)
            _add_step(restored, step, vertex.parallelism, index, old, states, max_parallelism)
    if metadata.ended:
        restored.event_time.clear()
        restored.watermarks.clear()
    return restored


def without_pending(restored: Restored, markers: bool) -> Restored:
    """`restored` of a start that doesn't claim output: what was pending is another pipeline's, or given up.

    Args:
        markers: committers know what they had committed, since the pipeline has the same name.
    """
    sinks = {id: SinkState({}, hosted.committers if markers else {}) for id, hosted in restored.sinks.items()}
    return replace(restored, sinks=sinks)


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


_CLAIMS = {StepKind.PROCESS: {"operator", "broadcast", *KINDS}, StepKind.SOURCE: {"source"}, StepKind.SINK: {"sink"}}
"""The parts of a snapshot's state that a kind of step takes."""
_RUNTIMES_OWN = {"event_time", "watermarks", "broadcast_contents"}
"""Parts that belong to no user: where no step takes them any more, they mean nothing."""


def wrong_kind(step: PlannedStep, checkpoint_id: int, states: Iterable[Mapping[str, Any]]) -> Misfit | None:
    """Whether a step finds state of another kind of step under its id.

    Args:
        states: of all old subtasks, whole (see `CheckpointStorage.unspill`).
    """
    unclaimed = {part for state in states for part in state} - _CLAIMS.get(step.kind, set()) - _RUNTIMES_OWN
    if not unclaimed:
        return None
    return Misfit(
        f"checkpoint {checkpoint_id} has {min(unclaimed)} state under the id {step.id!r}, which is a "
        f"{step.kind.value} step now: give each its own id, or drop that state with allow_unclaimed=True",
        (step.id,),
        droppable=True,
    )


def undeclared(
    step: PlannedStep, checkpoint_id: int, keyed: Iterable[str], states: Iterable[Mapping[str, Any]]
) -> Misfit | None:
    """Whether a step finds states under its id that its operator doesn't declare.

    Args:
        keyed: names of the states of keys (see `checkpoint.state.files.state_names`).
        states: of all old subtasks, whole.
    """
    if step.kind is not StepKind.PROCESS:
        return None
    found = {name for name in keyed if name not in (EVENT_TIMERS, PROCESSING_TIMERS)}
    for state in states:
        found.update(name for part in ("broadcast", *KINDS) for name in state.get(part, ()))
    declared = descriptors_of(type(step.payload))
    missing = sorted(found - declared.keys())
    if not missing:
        return None
    return Misfit(
        f"checkpoint {checkpoint_id} holds state {', '.join(map(repr, missing))} for step {step.id!r}, whose "
        f"{type(step.payload).__qualname__} declares {', '.join(map(repr, declared)) or 'none'}: declare it again "
        "under its old name, or drop it with allow_unclaimed=True",
        (step.id,),
        droppable=True,
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
            common = range(max(mine.start, theirs.start), min(mine.stop, theirs.stop))
            listed = [of_mine for file in snapshot.keyed_state if (of_mine := file.within(common)) is not None]
            if listed:
                restored.keyed_state.setdefault(step.id, []).extend(listed)
    if step.kind is StepKind.PROCESS:
        own = [state["operator"] for i, state in states.items() if "operator" in state and i % parallelism == index]
        if own:
            restored.operators[step.id] = own
        # Its own, if there is one: subtasks can differ in what several upstream subtasks wrote under one key.
        source = index % old.parallelism
        with_broadcast = {i: state["broadcast"] for i, state in states.items() if "broadcast" in state}
        if with_broadcast:
            chosen = source if with_broadcast.get(source) else min(with_broadcast)
            restored.broadcast[step.id] = with_broadcast[chosen]
            restored.broadcast_contents[step.id] = dict(states[chosen].get("broadcast_contents", {}))
        lists = shared_out(states, old.parallelism, index, parallelism)
        if lists:
            restored.lists[step.id] = lists
    event_time = [state["event_time"] for state in states.values() if "event_time" in state]
    if event_time and step.chained_to is None:
        restored.event_time[step.id] = event_time
    watermarks = [state["watermarks"] for state in states.values() if "watermarks" in state]
    if watermarks:
        restored.watermarks[step.id] = watermarks
    if step.kind is StepKind.SOURCE:
        restored.sources[step.id] = [state["source"] for state in states.values() if "source" in state]
    if step.kind is StepKind.SINK:
        held = SinkState.from_wire(*(state["sink"] for state in states.values() if "sink" in state))
        restored.sinks[step.id] = held.of_writers(lambda writer: writer % parallelism == index)
