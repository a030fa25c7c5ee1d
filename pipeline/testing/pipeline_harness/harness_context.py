"""What a subtask in a harness is told: of the pipeline around it, and of what it is restored from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from checkpoint.elements import ChannelName, EdgeName
from checkpoint.in_flight.edges import EdgeShape
from checkpoint.state_backends import StateBackend
from checkpoint.storage.storage import CheckpointStorage
from pipeline.plan import Plan
from pipeline.runtime.deployment import Restored
from pipeline.testing.clock import ManualClock
from pipeline.testing.pipeline_harness.channel import MemoryChannel


@dataclass(frozen=True)
class HarnessContext:
    """What the subtasks of a harness share."""

    plan: Plan
    shapes: Mapping[EdgeName, EdgeShape]
    """Of all edges, those inside vertices included."""
    code: Mapping[str, bytes]
    """By step, from `pickled_code`."""
    max_parallelism: int
    clock: ManualClock
    state_backend: StateBackend
    log_folder: CheckpointStorage | None
    """Where state as a log of changes lies; `None` = checkpoints are whole."""
    partitions: Mapping[str, int]
    """Of each source."""
    channels: dict[ChannelName, MemoryChannel] = field(default_factory=dict)
    outputs: dict[str, list[Any]] = field(default_factory=dict)
    """By step: what came to a sink, or out of a step that nobody reads."""


@dataclass(frozen=True)
class RestoredPart:
    """What of a snapshot comes to one subtask."""

    restore: Restored
    storage: CheckpointStorage
    replay: bool
    same_topology: bool
