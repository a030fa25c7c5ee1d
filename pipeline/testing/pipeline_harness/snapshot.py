"""A snapshot of a whole pipeline, and what of it comes to each subtask of another harness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot, SubtaskSnapshot, VertexSnapshot
from checkpoint.storage.storage import CheckpointStorage
from pipeline.plan import Plan
from pipeline.runtime.driver.start.restore_plan import check_restorable, restored_for
from pipeline.runtime.restored_in_flight import ask_custom_partitioners, in_flight_for
from pipeline.runtime.topology_changes import must_replay, same_topology, snapshot_edges
from pipeline.testing.pipeline_harness.harness_context import RestoredPart
from pipeline.testing.pipeline_harness.memory_files import MemoryFiles
from pipeline.version import VERSION


@dataclass(frozen=True)
class PipelineSnapshot:
    """What a checkpoint would hold of the pipeline. Taken by `PipelineHarness.snapshot`."""

    metadata: CheckpointMetadata
    storage: CheckpointStorage
    """Where its files lie, in memory."""
    files: MemoryFiles
    """What is in it."""
    time: float
    """The clock, in seconds."""
    partitions: Mapping[str, int]
    """Of each source."""
    ended: frozenset[str]
    """Sources that had ended."""

    @property
    def in_flight_records(self) -> int:
        """Records that were on their way between two steps."""
        return self.metadata.in_flight_records


def make_metadata(
    id: int,
    pipeline: str,
    plan: Plan,
    max_parallelism: int,
    subtasks: list[SubtaskSnapshot],
    now: float,
    replaying: bool,
    ended: bool,
) -> CheckpointMetadata:
    """
    Args:
        subtasks: by their global numbers.
        replaying: data of an earlier restore may still be on its way.
        ended: all input has ended.
    """
    return CheckpointMetadata(
        id=id,
        attempt=1,
        kind=CheckpointKind.CHECKPOINT,
        pipeline=pipeline,
        lineage="harness",
        lineage_parent=None,
        max_parallelism=max_parallelism,
        weir_version=VERSION,
        trigger_time=now,
        duration=0.0,
        options={},
        vertices={
            vertex.name: VertexSnapshot(tuple(subtasks[vertex.subtasks.start : vertex.subtasks.stop]))
            for vertex in plan.vertices
        },
        edges=snapshot_edges(plan),
        replaying=replaying,
        ended=ended,
    )


def restored_parts(snapshot: PipelineSnapshot, plan: Plan, max_parallelism: int) -> list[RestoredPart]:
    """What comes to each subtask of a plan, by their global numbers.

    Raises:
        PipelineError: the snapshot doesn't fit the pipeline; says what to change.
    """
    metadata, storage = snapshot.metadata, snapshot.storage
    check_restorable(metadata, plan, max_parallelism, allow_unclaimed=False)
    assigned = ask_custom_partitioners(metadata, plan, storage)
    replay, same = must_replay(metadata, plan), same_topology(metadata, plan)

    def load_state(one: OperatorSnapshot) -> Mapping[str, Any]:
        return storage.unspill(one).state

    parts = []
    for vertex in plan.vertices:
        for index in range(vertex.parallelism):
            restored = restored_for(vertex, index, metadata, max_parallelism, load_state, allow_unclaimed=False)
            in_flight = in_flight_for(vertex, index, metadata, plan, max_parallelism, assigned)
            parts.append(RestoredPart(replace(restored, in_flight=in_flight), storage, replay, same))
    return parts
