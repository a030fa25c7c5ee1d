"""Output that a start must not leave behind unnoticed: what a checkpoint holds and that is not committed."""

from __future__ import annotations

from collections.abc import Iterator

from checkpoint.counted import counted
from checkpoint.storage.errors import DamagedFile
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.restore import newest, sink_state
from checkpoint.storage.storage import CheckpointStorage
from pipeline.errors import PipelineError
from pipeline.graph import StepKind
from pipeline.plan import Plan


def refuse_to_skip(plan: Plan, pipeline: str, storage: CheckpointStorage) -> None:
    """A source that goes on behind what an earlier run has read must not skip what that run has not delivered.

    Raises:
        PipelineError: the newest checkpoint holds output that is not committed, or can't be read.
    """
    ahead = [vertex.head.id for vertex in plan.vertices if vertex.is_source and vertex.head.payload.skips_ahead]
    if not ahead:
        return
    advice = (
        f"Source {ahead[0]!r} would begin behind it, as its group's offsets say, and it would be lost. "
        'Restore (restore="latest"), or begin at "earliest" or at explicit offsets'
    )
    try:
        point = newest(storage)
    except DamagedFile as error:
        raise PipelineError(
            f"whether the newest checkpoint holds output that is not committed can't be told: {error}. {advice}"
        ) from error
    if point is None:
        return
    left = uncommitted_output(plan, pipeline, point.metadata, storage)
    if left is not None:
        raise PipelineError(f"{left}. {advice}")


def uncommitted_output(
    plan: Plan, pipeline: str, metadata: CheckpointMetadata, storage: CheckpointStorage
) -> str | None:
    """What output of a checkpoint is not known to be committed, in words; `None` if all of it is."""
    for step_id, left in uncommitted_parts(plan, pipeline, metadata, storage):
        return (
            f"checkpoint {metadata.id} holds output of sink {step_id!r} that is not committed, or may not be "
            f"({counted(left, 'part')})"
        )
    return None


def uncommitted_parts(
    plan: Plan, pipeline: str, metadata: CheckpointMetadata, storage: CheckpointStorage
) -> Iterator[tuple[str, int]]:
    """Sinks with output in a checkpoint that is not known to be committed, and how many committables it is in. The
    plan's sinks may ask their brokers; without its sink all of a step's counts."""
    for step_id in sorted(metadata.step_ids):
        left = _uncommitted(plan, pipeline, step_id, metadata, storage)
        if left:
            yield step_id, left


def _uncommitted(
    plan: Plan, pipeline: str, step_id: str, metadata: CheckpointMetadata, storage: CheckpointStorage
) -> int:
    """How many committables of the sink are not known to be committed."""
    sinks = {step.id: step.payload for vertex in plan.vertices for step in vertex.steps if step.kind is StepKind.SINK}
    left = 0
    held = sink_state(storage, metadata, step_id)
    for writer, committables in held.pending.items():
        if step_id in sinks:
            sink = sinks[step_id]
            left += len(sink.uncommitted(pipeline, step_id, writer, held.committers.get(writer), committables))
        else:
            left += len(committables)
    return left
