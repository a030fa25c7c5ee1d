"""What older owners left in a job's folder, and its deletion by the newest one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.orphans import OrphanKind, Scope, find
from checkpoint.storage.ownership import Ownership
from checkpoint.storage.storage import CheckpointStorage
from checkpoint.storage.sweep import list_folder, load, sweep

_LEFT_TO_GC: Final = frozenset({OrphanKind.TRACE, OrphanKind.OWNER, OrphanKind.PROBE})
"""Traces tell the user where savepoints are."""


@dataclass(frozen=True)
class Cleanup:
    """Runs in a thread of its own, once `fencing.record_restored` has said what is void.

    Deletes what can never be restored: checkpoints that didn't complete, and files that no complete checkpoint refers
    to. Void checkpoints (complete, but given up for an older restore) go only with `void`: as long as this attempt has
    completed none of its own, the user may have started it by mistake and want one of them back.
    """

    storage: CheckpointStorage
    ownership: Ownership
    kept: tuple[CheckpointMetadata, ...]
    """The good checkpoints of older owners."""
    unreadable: tuple[CheckpointRef, ...] = ()
    """Good ones whose `_metadata` is damaged: which shared files they need isn't known, so all are left."""

    def run(self, void: bool) -> None:
        """
        Raises:
            Fenced: the job has a newer owner.
            StorageError: something can't be deleted; what is left is for the next owner.
        """
        listing, record = list_folder(self.storage), self.storage.restore_record()
        known = {metadata.ref: metadata for metadata in self.kept}
        voids = [ref for ref in listing.complete if record is not None and record.voids(ref)]
        unreadable = [*self.unreadable, *load(self.storage, voids, known)]
        orphans = find(listing, record, known, unreadable, Scope(self.ownership.attempt, void))
        for _ in sweep(self.storage, self.ownership, (one for one in orphans if one.kind not in _LEFT_TO_GC)):
            pass
