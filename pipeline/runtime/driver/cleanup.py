"""What older owners left in a job's folder, and its deletion by the newest one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from checkpoint.storage import owners
from checkpoint.storage.claims import Claim
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.shared_files import SharedFiles
from checkpoint.storage.storage import CheckpointStorage, DamagedFile


@dataclass(frozen=True)
class Cleanup:
    """Runs in a thread of its own, once `owners.record_restored` has said what is void.

    Deletes what can never be restored: checkpoints that didn't complete, and files under `shared/` that no complete
    checkpoint refers to. Void checkpoints (complete, but given up for an older restore) go only with `void`: as long as
    this attempt has completed none of its own, the user may have started it by mistake and want one of them back.
    """

    storage: CheckpointStorage
    claim: Claim
    kept: tuple[CheckpointMetadata, ...]
    """The good checkpoints of older owners."""
    unreadable: tuple[CheckpointRef, ...] = ()
    """Good ones whose `_metadata` is damaged: which shared files they need isn't known, so all are left."""

    def run(self, void: bool) -> None:
        """
        Raises:
            Fenced: a newer owner has claimed the job.
            StorageError: something can't be deleted; what is left is for the next owner.
        """
        complete = () if void else self._void_checkpoints()
        for ref in self.storage.list_leftovers(self.claim.epoch):
            if ref not in complete:
                owners.check(self.storage, self.claim)
                self.storage.delete_checkpoint(ref)
        for path in self._garbage(complete):
            owners.check(self.storage, self.claim)
            self.storage.remove([path])

    def _void_checkpoints(self) -> Collection[CheckpointRef]:
        leftovers = set(self.storage.list_leftovers(self.claim.epoch))
        return [ref for ref in self.storage.complete() if ref in leftovers]

    def _garbage(self, spared: Collection[CheckpointRef]) -> Iterator[str]:
        if self.unreadable:
            return
        known = list(self.kept)
        for ref in spared:
            try:
                known.append(self.storage.load(ref))
            except DamagedFile:
                return  # as for `unreadable`
        yield from SharedFiles.of(known).garbage(self.storage.list_shared(), self.claim.epoch)
