"""One checkpoint that is triggered and not resolved (pure; part of the coordinator)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination.coordinator_events import (
    BarrierPassed,
    FailureReason,
    FinaliseCheckpoint,
    NotifyAborted,
)
from checkpoint.coordination.passage import Passage


@dataclass(frozen=True, slots=True)
class CheckpointInProgress:
    """A pending checkpoint, for tests and debugging."""

    checkpoint_id: int
    kind: CheckpointKind
    triggered_at: float
    """Clock value."""
    missing: tuple[int, ...]
    """Subtasks that have not acknowledged, ascending. Empty: `_metadata` is being written."""


class PendingCheckpoint:
    """Who has taken a snapshot for it, who has acknowledged it, and until when it may take."""

    def __init__(
        self,
        checkpoint_id: int,
        kind: CheckpointKind,
        now: float,
        timeout: float,
        subtasks: Collection[int],
        reach: Mapping[int, frozenset[int]],
        held_up: bool,
    ) -> None:
        """
        Args:
            now: when it is triggered, a clock value.
            timeout: seconds.
            subtasks: those that have to acknowledge.
            reach: see `Passage`.
            held_up: a subtask waits for what lies outside of the job.
        """
        self.checkpoint_id = checkpoint_id
        self.kind = kind
        self.triggered_at = now
        self.timeout = timeout
        self.passage = Passage(reach)
        self.held_up = held_up
        """Whether a subtask has waited meanwhile for what lies outside of the job."""
        self._subtasks = subtasks
        self._missing = set(subtasks)

    @property
    def ordinary(self) -> bool:
        return self.kind is not CheckpointKind.SAVEPOINT

    @property
    def expires_at(self) -> float:
        """Clock value."""
        return self.triggered_at + self.timeout

    @property
    def missing(self) -> tuple[int, ...]:
        """Subtasks that have not acknowledged, ascending. Empty exactly while `_metadata` is being written."""
        return tuple(sorted(self._missing))

    def statistics(self) -> CheckpointInProgress:
        return CheckpointInProgress(self.checkpoint_id, self.kind, self.triggered_at, self.missing)

    def snapshot_taken(self, subtask: int, span: int | None, busy: bool, now: float) -> list[BarrierPassed]:
        """What its barrier has passed with that; of a savepoint nothing is told."""
        if not self.ordinary:
            return []
        return [
            BarrierPassed(self.checkpoint_id, one.sources, one.start_delay, one.mean_span, one.busy_span)
            for one in self.passage.snapshot_taken(subtask, now - self.triggered_at, span, busy)
        ]

    def acknowledges(self, subtask: int) -> bool:
        """Whether it is one of those that have to."""
        return subtask in self._subtasks

    def acknowledged(self, subtask: int) -> FinaliseCheckpoint | None:
        """What is to be done with that. A repetition changes nothing: its files are part of the checkpoint."""
        if subtask not in self._missing:
            return None
        self._missing.remove(subtask)
        return None if self._missing else FinaliseCheckpoint(self.checkpoint_id, self.kind)

    def require_acknowledged(self, what: str) -> None:
        """
        Raises:
            ValueError: `what` is reported of its `_metadata`, which was never to be written.
        """
        if self._missing:
            raise ValueError(f"checkpoint {self.checkpoint_id} {what}: subtasks {self._missing} are missing")

    def expiry(self, now: float) -> str | None:
        """Why it has to be given up at `now`, in words; `None` = it has time."""
        if now < self.expires_at:
            return None
        what = "not acknowledged by every subtask" if self._missing else "_metadata not written"
        return f"{what} {self.timeout:g} s after the trigger"

    def aborted(self, reason: FailureReason, message: str) -> NotifyAborted:
        return NotifyAborted(self.checkpoint_id, self.kind, reason, message, self.missing)
