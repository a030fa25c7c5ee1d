"""What kinds of checkpoints there are."""

from __future__ import annotations

from enum import StrEnum


class CheckpointKind(StrEnum):
    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    FINAL = "final"
    """The job's last checkpoint: taken once all input has ended, or since the job is to stop."""

    @property
    def noun(self) -> str:
        """For a text, in front of the id."""
        return "final checkpoint" if self is CheckpointKind.FINAL else self.value
