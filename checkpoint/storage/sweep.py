"""Looking over a job's folder, and deleting what belongs to nobody (see `checkpoint.storage.orphans`)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from checkpoint.storage import fencing
from checkpoint.storage.errors import StorageError
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.naming import SHARED, CheckpointRef
from checkpoint.storage.orphans import Listing, Orphan, Scope, find
from checkpoint.storage.ownership import Ownership, RestoreRecord, next_attempt
from checkpoint.storage.storage import CheckpointStorage

logger = logging.getLogger(f"weir.{__name__}")

_LOOKS: Final = 10


@dataclass(frozen=True, slots=True)
class Survey:
    """What a job's folder holds, read so that it fits together although the job may run."""

    listing: Listing
    record: RestoreRecord | None
    """The record of the newest owner that has one."""
    newest: Ownership | None
    """The newest owner, which may not have a record yet."""
    known: Mapping[CheckpointRef, CheckpointMetadata]
    """The metadata of every complete checkpoint that can be read, and perhaps of some deleted since."""
    unreadable: Mapping[CheckpointRef, str]
    """Complete checkpoints that can't be read, and why."""

    @property
    def good(self) -> list[CheckpointRef]:
        """Complete checkpoints that aren't void, oldest first."""
        return [ref for ref in self.listing.complete if self.void_by(ref) is None]

    def void_by(self, ref: CheckpointRef) -> int | None:
        """The attempt of the owner by whose record the checkpoint is void; `None` if it isn't."""
        return self.record.attempt if self.record is not None and self.record.voids(ref) else None

    @property
    def starting(self) -> bool:
        """Whether an owner has taken ownership and not recorded what it restores."""
        return self.newest is not None and (self.record is None or self.record.attempt < self.newest.attempt)

    def orphans(self, void: bool = False) -> list[Orphan]:
        """What belongs to nobody; what isn't `spared` may be deleted while the job runs.

        Args:
            void: void checkpoints may go, too.
        """
        scope = Scope(self.record.attempt if self.record else 0, void, starting=self.starting)
        return find(self.listing, self.record, self.known, {*self.unreadable, *self._unseen}, scope)

    def orphans_when_stopped(self, void: bool = False) -> list[Orphan]:
        """What belongs to nobody if the job doesn't run; what isn't `spared` may then be deleted by an owner that has
        taken ownership."""
        scope = Scope(next_attempt(self.listing.owners, self.listing.checkpoints), void, stopped=True)
        return find(self.listing, self.record, self.known, set(self.unreadable), scope)

    @property
    def _unseen(self) -> list[CheckpointRef]:
        """The checkpoint that the newest owner restored, unless it, or one completed since, has been read."""
        if self.record is None or self.record.restored is None:
            return []
        first, attempt = self.record.restored, self.record.attempt
        return [] if any(ref == first or ref.attempt >= attempt for ref in self.known) else [first]


def survey(storage: CheckpointStorage) -> Survey:
    """Look over a job's folder.

    A running job completes checkpoints and deletes older ones meanwhile. What it still refers to of older owners' files
    only becomes less: whatever a checkpoint on its way refers to, each complete one before it refers to, back to the
    one restored. So it is enough to have read any of these, and each checkpoint that is there at the end.

    Raises:
        DamagedFile: an owner's record is.
        StorageError: the folder can't be read, or changes faster than it is read.
    """
    known: dict[CheckpointRef, CheckpointMetadata] = {}
    for _ in range(_LOOKS):
        listing = list_folder(storage)
        record = storage.restore_record()
        newest = max(listing.owners, default=None)
        if record is not None and (newest is None or newest.attempt < record.attempt):
            continue  # an owner has come since
        unreadable = load(storage, listing.complete, known)
        there = set(storage.complete())
        if unreadable.keys() <= there <= known.keys() | unreadable.keys():
            return Survey(listing, record, newest, known, unreadable)
    raise StorageError(f"{storage.location} changes faster than it can be looked over; try again")


def list_folder(storage: CheckpointStorage) -> Listing:
    root = tuple(storage.entries())
    refs = sorted(ref for entry in root if entry.size is None and (ref := CheckpointRef.parse(entry.name)))
    checkpoints = {ref: tuple(storage.entries(ref.path)) for ref in refs}
    return Listing(root, checkpoints, tuple(storage.entries(SHARED)))


def load(
    storage: CheckpointStorage, refs: Iterable[CheckpointRef], known: dict[CheckpointRef, CheckpointMetadata]
) -> dict[CheckpointRef, str]:
    """Add the metadata of checkpoints to `known`; returns those that can't be read, and why."""
    unreadable = {}
    for ref in refs:
        if ref not in known:
            try:
                known[ref] = storage.load(ref)
            except StorageError as error:
                unreadable[ref] = str(error)
    return unreadable


def sweep(storage: CheckpointStorage, owner: Ownership, orphans: Iterable[Orphan]) -> Iterator[Orphan]:
    """Delete those that aren't spared, one by one; yields each that is gone.

    Args:
        owner: the newest, on whose behalf this happens.

    Raises:
        Fenced: there is a newer owner. It may be restoring a checkpoint that was to go.
        StorageError: something can't be deleted.
    """
    for orphan in orphans:
        if orphan.spared is None:
            fencing.check(storage, owner)
            delete(storage, orphan)
            yield orphan


def delete(storage: CheckpointStorage, orphan: Orphan) -> None:
    ref = CheckpointRef.parse(orphan.path)
    if ref is not None:
        storage.delete_checkpoint(ref)
    else:
        storage.remove([orphan.path])


def collect(
    storage: CheckpointStorage, *, stopped: bool = False, void: bool = False, dry_run: bool = False
) -> Iterator[Orphan]:
    """Delete what belongs to nobody; yields each orphan, those that stay (`spared`) first, others once they are gone.

    Safe while the job runs, and at every moment at which it is broken off.

    Args:
        stopped: the job doesn't run, so what its last owner left goes, too. Ownership is taken first, so that a driver
            that runs after all is fenced, and stops.
        void: complete checkpoints that were given up for an older restore go, too.
        dry_run: change nothing; yields what would go as if it were gone.

    Raises:
        Fenced: the job has a newer owner than at the beginning.
        DamagedFile: an owner's record is.
        StorageError: the folder can't be read, or something can't be deleted.
    """
    owner = None
    if stopped and not dry_run:
        owner = fencing.take_ownership(storage)
        fencing.record_nothing_given_up(storage, owner)
    seen = survey(storage)
    for ref, problem in seen.unreadable.items():
        logger.warning(
            "what %s refers to isn't known, so files that checkpoints might refer to are all kept: %s",
            ref.path,
            problem,
        )
    orphans = seen.orphans_when_stopped(void) if stopped else seen.orphans(void)
    yield from (orphan for orphan in orphans if orphan.spared is not None)
    if dry_run:
        yield from (orphan for orphan in orphans if orphan.spared is None)
    elif owner := owner or seen.newest:
        yield from sweep(storage, owner, orphans)
