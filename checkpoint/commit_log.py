"""What a sink has prepared and not committed yet, and in which order it is committed (pure).

*Epochs:* what was written between two barriers. At a barrier its committables get their names for good; once the
checkpoint is complete they are committed, and until that is known they travel with every later checkpoint.

After a restore the restored committables are committed epoch by epoch, over all writers and subtasks of the sink.
Nothing new is committed before all of them are: after rescaling, a key's older records may belong to another writer
than its newer ones.
`CommitLog` is the subtask's side of that, `checkpoint.restored_commits` the driver's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from checkpoint.committables import Committable, CommittableName

MAX_WAITING = 2
"""So many completed epochs may wait before the writer takes no more records."""


@dataclass(frozen=True, slots=True)
class CommitOrder:
    """Commit these for this writer, in order."""

    writer: int
    checkpoint_id: int
    """The completed checkpoint. For restored committables the epoch of their names, so that even a committer that
    remembers nothing but this number can tell what is committed."""
    committables: tuple[Committable, ...]
    """May be empty: a marker advances with completed checkpoints, too."""


class CommitLog:
    """The committables of one sink subtask. Used by one thread (the task thread).

    It hands out one order at a time, and the same one until it is reported as committed.
    """

    def __init__(self, own: int, restored: Mapping[int, Sequence[Committable]]) -> None:
        """
        Args:
            own: index of this subtask: the writer of what it writes.
            restored: what must still be committed of each writer that this subtask hosts (as `Committer.open` returned
                it), in order.

        Raises:
            ValueError: a writer's committables are out of order.
        """
        self._own = own
        self._restored: dict[int, dict[int, list[Committable]]] = {}
        """Epoch → writer → what is to be committed, by ascending epoch and writer. Nothing in it is empty."""
        for writer in sorted(restored):
            _check_order(restored[writer], after=None)
            for committable in restored[writer]:
                self._restored.setdefault(committable.name.epoch, {}).setdefault(writer, []).append(committable)
        self._restored = dict(sorted(self._restored.items()))
        self._released = 0
        """Restored epochs up to this one may be committed."""
        self._new_released = False
        self._completed: list[CommitOrder] = []
        """Completed checkpoints that are not committed, oldest first. Those with committables are never merged: the
        first may be partly out, and its committer finds its way only if it gets the same committables again."""
        self._open: dict[int, Sequence[Committable]] = {}
        """Epochs of which no checkpoint is complete, ascending; each barrier has its entry, empty or not."""
        self._last = max(self._restored, default=0)
        """Newest epoch."""

    # -- at barriers and completions ------------------------------------------------------------------------------

    def add(self, epoch: int, committables: Sequence[Committable]) -> None:
        """Barrier `epoch` has come: what was written in front of it. Called at every barrier.

        Raises:
            ValueError: the epoch isn't newer than all before, or the names don't fit.
        """
        if epoch <= self._last:
            raise ValueError(
                f"barrier {epoch} came after barrier {self._last}: barriers must keep the order of their ids"
            )
        _check_order(committables, after=CommittableName(epoch, -1))
        if committables and committables[-1].name.epoch != epoch:
            raise ValueError(f"{committables[-1].name} is not named by the barrier {epoch} behind it")
        self._last = epoch
        self._open[epoch] = tuple(committables)

    def snapshot(self) -> dict[int, list[Committable]]:
        """Everything that is not known to be committed, by writer, in order: part of every checkpoint."""
        pending: dict[int, list[Committable]] = {}
        for writers in self._restored.values():
            for writer, committables in writers.items():
                pending.setdefault(writer, []).extend(committables)
        new = [c for order in self._completed for c in order.committables] + _flat(self._open.values())
        if new:
            pending.setdefault(self._own, []).extend(new)
        return pending

    def complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete (not to be told of savepoints that commit nothing).

        Segments of epochs in front of it that belong to no completed checkpoint are committed with it. May come late,
        twice, or not at all: whatever a newer completion has covered is not covered again.
        """
        if checkpoint_id not in self._open:
            return
        covered = [epoch for epoch in self._open if epoch <= checkpoint_id]
        committables = _flat([self._open.pop(epoch) for epoch in covered])
        # A marker may advance by several checkpoints at once. Else the sink would never take a record again where
        # commits take longer than checkpoints: the empty ones that come meanwhile would count as waiting.
        if len(self._completed) > 1 and not self._completed[-1].committables:
            del self._completed[-1]  # not the first, which may be handed out
        self._completed.append(CommitOrder(self._own, checkpoint_id, tuple(committables)))

    # -- after a restore ------------------------------------------------------------------------------------------

    def restored_epochs(self) -> list[int]:
        """Restored epochs that are not committed, ascending: for `RestoredCommits.opened`."""
        return list(self._restored)

    def release_restored(self, epoch: int) -> None:
        """Restored epochs up to `epoch` may be committed (`ReleaseEpoch`)."""
        self._released = max(self._released, epoch)

    def restored_done(self, epoch: int) -> bool:
        """Whether nothing restored of `epoch` or older is left: then `RestoredCommits.done` is to be told."""
        return all(left > epoch for left in self._restored)

    def release_new(self) -> None:
        """All restored epochs of the sink are committed, everywhere: new ones may be committed (`ReleaseNew`).

        Raises:
            ValueError: restored epochs are left here.
        """
        if self._restored:
            raise ValueError(f"new epochs released while the restored epochs {list(self._restored)} are not committed")
        self._new_released = True

    # -- committing -----------------------------------------------------------------------------------------------

    def next_commit(self) -> CommitOrder | None:
        """What to commit now; `None` if there is nothing, or nothing yet."""
        for epoch, writers in self._restored.items():
            if epoch > self._released:
                return None
            writer, committables = next(iter(writers.items()))
            return CommitOrder(writer, epoch, tuple(committables))
        return self._completed[0] if self._completed and self._new_released else None

    def committed(self, order: CommitOrder) -> None:
        """The order is carried out, durably.

        Raises:
            ValueError: it is not the one handed out.
        """
        if order != self.next_commit():
            raise ValueError(f"{order} was committed, but {self.next_commit()} was to be")
        if not self._restored:
            del self._completed[0]
            return
        writers = self._restored[order.checkpoint_id]
        del writers[order.writer]
        if not writers:
            del self._restored[order.checkpoint_id]

    @property
    def waiting(self) -> int:
        """Completed checkpoints of this attempt that are not committed."""
        return len(self._completed)

    @property
    def accepts_records(self) -> bool:
        """Whether the writer may take records. Barriers are taken in any case. Aborted epochs don't count: their
        segments wait for a completion that the writer's standstill could keep from coming."""
        return self.waiting < MAX_WAITING

    @property
    def idle(self) -> bool:
        """Whether everything that belongs to a completed or restored checkpoint is committed."""
        return not self._restored and not self._completed


def _flat(lists: Iterable[Sequence[Committable]]) -> list[Committable]:
    return [committable for committables in lists for committable in committables]


def _check_order(committables: Sequence[Committable], after: CommittableName | None) -> None:
    for committable in committables:
        if after is not None and committable.name <= after:
            raise ValueError(
                f"{committable.name} comes after {after}: committables must be in the order of their names"
            )
        after = committable.name
