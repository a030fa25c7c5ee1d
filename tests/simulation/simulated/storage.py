"""Virtual storage: checkpoints, segment files and owner records, which outlive attempts. Writes take time and fail."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from checkpoint.committables import Committable
from checkpoint.in_flight.captured import CapturedState
from checkpoint.kinds import CheckpointKind
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.ownership import Ownership, RestoreRecord, restore_record
from simulated.graph import Row
from simulated.scheduler import Scheduler
from sinks.kafka.marker import Marker


@dataclass
class SubtaskState:
    """What one subtask writes for one checkpoint."""

    captured: CapturedState = field(default_factory=CapturedState)
    offsets: dict[int, int] = field(default_factory=dict)
    """Of a source, by split."""
    keyed: dict[int, tuple[Row, ...]] = field(default_factory=dict)
    """Of a keyed operator: what it has seen, by key."""
    broadcast: tuple[Row, ...] = ()
    """What came on broadcast edges."""
    watermarks: dict[str, Any] | None = None
    """Of a subtask with inputs."""
    pending: dict[int, list[Committable]] = field(default_factory=dict)
    """Of a sink, by writer."""
    markers: dict[int, Marker] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    ref: CheckpointRef
    kind: CheckpointKind
    parallelism: dict[str, int]
    draining: bool
    states: dict[str, list[SubtaskState]]
    """By step."""

    def files(self) -> list[FileHandle]:
        states = [state for subtasks in self.states.values() for state in subtasks]
        return [f for state in states for of_writer in state.pending.values() for one in of_writer for f in one.files]


@dataclass
class _Write:
    due: float
    done: Callable[[bool], None]
    """Gets whether it succeeded."""
    fails: float


class Storage:
    def __init__(self, scheduler: Scheduler, rng: random.Random) -> None:
        self.checkpoints: dict[CheckpointRef, Checkpoint] = {}
        """Those whose metadata is durable."""
        self.segments: dict[str, list[Row]] = {}
        self.attempt = 0
        """Of the newest owner."""
        self.record: RestoreRecord | None = None
        self._scheduler = scheduler
        self._rng = rng
        self._writes: list[_Write] = []

    # -- owners ---------------------------------------------------------------------------------------------------

    def take_ownership(self) -> Ownership:
        self.attempt += 1
        return Ownership(self.attempt, f"{self.attempt:032x}")

    def good(self) -> list[CheckpointRef]:
        """Durable and not void, oldest first."""
        return sorted(ref for ref in self.checkpoints if self.record is None or not self.record.voids(ref))

    def restore(self, ownership: Ownership, ref: CheckpointRef | None) -> None:
        self.record = restore_record(ownership, ref, self.good())

    def newest_id(self, restored: int) -> int:
        """The largest id found under the root."""
        return max([restored, *(ref.id for ref in self.checkpoints)])

    # -- writes ---------------------------------------------------------------------------------------------------

    def write(self, seconds: float, fails: float, done: Callable[[bool], None]) -> None:
        due = self._scheduler.now + self._rng.expovariate(1.0) * seconds
        self._writes.append(_Write(due, done, fails))

    def step(self) -> bool:
        """End one of the writes that have taken their time."""
        ready = [write for write in self._writes if write.due <= self._scheduler.now]
        if not ready:
            return False
        write = self._rng.choice(ready)
        self._writes.remove(write)
        write.done(self._rng.random() >= write.fails)
        return True

    def deadline(self) -> float | None:
        return min((write.due for write in self._writes), default=None)

    def crash(self, survive: float) -> None:
        """The processes that write are gone; a share of what they sent arrives all the same."""
        self._writes = [write for write in self._writes if self._rng.random() < survive]
