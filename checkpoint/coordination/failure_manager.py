"""How many checkpoints have failed in a row, and what follows from it (pure; part of the coordinator)."""

from __future__ import annotations

from checkpoint.coordination.coordinator_events import FailureReason
from checkpoint.coordination.pending_checkpoint import PendingCheckpoint

MIN_SPAN_SCALE = 1 / 128
"""Expiries shorten spans no further. A span is one fetch at least in any case; this bounds how many completions it
takes to come back to full spans."""


class CheckpointFailureManager:
    """Told of ordinary checkpoints only."""

    def __init__(self, tolerable: int) -> None:
        """`tolerable`: how many may fail in a row."""
        self._tolerable = tolerable
        self._in_a_row = 0
        self._span_scale = 1.0

    @property
    def in_a_row(self) -> int:
        """How many have failed since the last one that completed."""
        return self._in_a_row

    @property
    def span_scale(self) -> float:
        """See `Heartbeat`. Each that expires halves it, each that completes doubles it."""
        return self._span_scale

    def completed(self) -> None:
        self._in_a_row = 0
        self._span_scale = min(1.0, 2 * self._span_scale)

    def failed(self, checkpoint: PendingCheckpoint, reason: FailureReason, message: str) -> str | None:
        """Why the job has to fail with that, in words; `None` = it goes on."""
        if reason is FailureReason.EXPIRED:
            self._span_scale = max(MIN_SPAN_SCALE, self._span_scale / 2)
            if checkpoint.missing and checkpoint.held_up:
                return None  # an outage is no failure of the job
        self._in_a_row += 1
        if self._in_a_row <= self._tolerable:
            return None
        return (
            f"checkpoint {checkpoint.checkpoint_id} failed ({reason}): {message}. {self._in_a_row} failed in a row, "
            f"tolerable_failures is {self._tolerable}"
        )
