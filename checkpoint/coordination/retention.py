"""Which checkpoints are kept or may be durable, and the deletions of the others (pure; part of the coordinator)."""

from __future__ import annotations

from collections.abc import Sequence

from checkpoint.coordination.coordinator_events import DeleteCheckpoint


class Retention:
    """Keeps the newest `retained` checkpoints. Deletions run elsewhere, any number at once; each is given up after
    `timeout` seconds (what it leaves behind is garbage collection's), so that a hung one holds nothing back for good.
    """

    def __init__(self, retained: int, timeout: float, completed: Sequence[int]) -> None:
        self._retained = retained
        self._timeout = timeout
        self._kept = list(completed)
        """Oldest first."""
        self._deleting: dict[int, float] = {}
        """Id → when its deletion is given up."""
        self._savepoints: set[int] = set()
        """Completed ones."""
        self._half_written: set[int] = set()
        """Given up while `_metadata` was being written. Its writer has not reported yet, so it may become durable."""

    @property
    def kept(self) -> tuple[int, ...]:
        """Ids of the retained checkpoints, oldest first."""
        return tuple(self._kept)

    @property
    def deleting(self) -> tuple[int, ...]:
        """Ids whose deletion is asked for, not reported and not given up."""
        return tuple(self._deleting)

    @property
    def next_deadline(self) -> float | None:
        return min(self._deleting.values(), default=None)

    def add(self, checkpoint_id: int, now: float) -> list[DeleteCheckpoint]:
        """A checkpoint has completed: what to delete in exchange."""
        self._kept.append(checkpoint_id)
        surplus = self._kept[: -self._retained]
        del self._kept[: -self._retained]
        return [self.delete(old, now) for old in surplus]

    def delete(self, checkpoint_id: int, now: float) -> DeleteCheckpoint:
        self._deleting[checkpoint_id] = now + self._timeout
        return DeleteCheckpoint(checkpoint_id)

    def deleted(self, checkpoint_id: int) -> None:
        self._deleting.pop(checkpoint_id, None)

    def give_up(self, now: float) -> None:
        """Treat deletions that take longer than `timeout` as done."""
        self._deleting = {old: deadline for old, deadline in self._deleting.items() if now < deadline}

    def savepoint_completed(self, checkpoint_id: int) -> None:
        self._savepoints.add(checkpoint_id)

    def given_up_half_written(self, checkpoint_id: int) -> None:
        """A checkpoint is given up whose `_metadata` is being written."""
        self._half_written.add(checkpoint_id)

    def writer_reported(self, checkpoint_id: int) -> bool:
        """The writer of such a `_metadata` has ended. Whether it was one: even after an error the file may be there."""
        written = checkpoint_id in self._half_written
        self._half_written.discard(checkpoint_id)
        return written

    def may_be_durable(self, checkpoint_id: int) -> bool:
        """Whether a restore could find this checkpoint: an acknowledgement of it is a repetition, its files stay."""
        return any(checkpoint_id in some for some in (self._half_written, self._savepoints, self._kept, self._deleting))
