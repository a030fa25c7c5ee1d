"""What lies in a job's folder and belongs to nobody, and which of it may be deleted (pure).

What an owner writes is not referred to before its checkpoint is complete, so only files of *older* owners can be told
to be orphans: of those whose void checkpoints are known, since a newer owner has recorded what it builds on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from checkpoint.storage.filesystem import Entry
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.naming import (
    METADATA,
    PROBE,
    SHARED,
    STOPPED_SUFFIX,
    TEMPORARY,
    CheckpointRef,
    parse_trace,
    shared_attempt,
    trace_path,
)
from checkpoint.storage.ownership import RECORD_SUFFIX, Ownership, RestoreRecord
from checkpoint.storage.shared_files import SharedFiles

_TEMPORARY_HEAD: Final = len(TEMPORARY) + 33
"""Characters in front of the name that an unfinished file is to have."""


class OrphanKind(StrEnum):
    """In the order of deletion: what refers to files goes before them, so that no crash leaves a broken checkpoint."""

    INCOMPLETE = "incomplete checkpoint"
    """Never completed, or half deleted."""
    VOID = "void checkpoint"
    """Complete, but given up for an older restore."""
    SHARED = "shared file"
    """No complete checkpoint refers to it."""
    PRIVATE = "file in a checkpoint"
    """A file in a complete checkpoint's folder that the checkpoint doesn't refer to."""
    TEMPORARY = "unfinished file"
    PROBE = "probe"
    TRACE = "savepoint trace"
    OWNER = "old owner"


class Spared(StrEnum):
    """Why an orphan stays."""

    IN_USE = "the newest owner may be using it"
    VOID = "given up for an older restore, but complete"
    LARGEST_ID = "has the largest id, and ids must never repeat"


@dataclass(frozen=True, slots=True)
class Orphan:
    path: str
    """Relative to the job's folder; of a checkpoint its folder."""
    kind: OrphanKind
    attempt: int | None
    """The attempt that wrote it; `None`: its name doesn't say."""
    size: int
    """Bytes, of all that is in it."""
    spared: Spared | None = None
    """`None`: it may be deleted."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What lies in a job's folder."""

    root: tuple[Entry, ...]
    checkpoints: Mapping[CheckpointRef, tuple[Entry, ...]]
    """By checkpoint, complete or not: what lies in its folder."""
    shared: tuple[Entry, ...]

    @property
    def complete(self) -> list[CheckpointRef]:
        """Checkpoints with `_metadata`, void ones too; oldest first."""
        return sorted(ref for ref, entries in self.checkpoints.items() if any(e.name == METADATA for e in entries))

    @property
    def owners(self) -> list[Ownership]:
        """Oldest first."""
        return sorted(owner for entry in self.root if (owner := Ownership.parse(entry.name)))


@dataclass(frozen=True, slots=True)
class Scope:
    """What may go."""

    attempt: int
    """Only what is left of owners before this one, which has recorded what it restored."""
    void: bool = False
    """Void checkpoints, too."""
    stopped: bool = False
    """Nobody uses the folder, so what doesn't say whose it is may go, too."""
    starting: bool = False
    """Someone is about to restore, perhaps one of the void checkpoints."""


def find(
    listing: Listing,
    record: RestoreRecord | None,
    known: Mapping[CheckpointRef, CheckpointMetadata],
    unreadable: Collection[CheckpointRef],
    scope: Scope,
) -> list[Orphan]:
    """All orphans, in the order in which they are to be deleted.

    Args:
        record: of the newest owner that has one.
        known: of every complete checkpoint that may refer to files of owners before `scope.attempt`, and can be read.
        unreadable: complete checkpoints of which it isn't known what they refer to. As long as one of them stays, no
            file that a checkpoint could refer to counts as an orphan.
    """
    found = _Finder(listing, record, known, unreadable, scope).all()
    return sorted(found, key=lambda orphan: _ORDER[orphan.kind])


_ORDER: Final = {kind: place for place, kind in enumerate(OrphanKind)}


@dataclass(frozen=True, slots=True)
class _Finder:
    listing: Listing
    record: RestoreRecord | None
    known: Mapping[CheckpointRef, CheckpointMetadata]
    unreadable: Collection[CheckpointRef]
    scope: Scope

    def all(self) -> Iterator[Orphan]:
        complete = self.listing.complete
        good = [ref for ref in complete if not self._void(ref)]
        largest = max((ref.id for ref in good), default=0)
        checkpoints = list(self._checkpoints(set(good), largest))
        yield from checkpoints
        going = {orphan.path for orphan in checkpoints if orphan.spared is None}
        if all(ref.path in going for ref in self.unreadable):
            yield from self._unreferred({ref: meta for ref, meta in self.known.items() if ref.path not in going})
        yield from self._small_files(largest)

    def _void(self, ref: CheckpointRef) -> bool:
        return self.record is not None and self.record.voids(ref)

    def _orphan(self, path: str, kind: OrphanKind, attempt: int | None, size: int) -> Orphan:
        older = self.scope.stopped if attempt is None else attempt < self.scope.attempt
        return Orphan(path, kind, attempt, size, None if older else Spared.IN_USE)

    def _checkpoints(self, good: set[CheckpointRef], largest: int) -> Iterator[Orphan]:
        for ref, entries in sorted(self.listing.checkpoints.items()):
            size = sum(entry.size or 0 for entry in entries)
            if ref in good:
                continue
            if all(entry.name != METADATA for entry in entries):
                yield self._orphan(ref.path, OrphanKind.INCOMPLETE, ref.attempt, size)
                continue
            orphan = self._orphan(ref.path, OrphanKind.VOID, ref.attempt, size)
            if orphan.spared is None:
                if not self.scope.void:
                    orphan = replace(orphan, spared=Spared.VOID)
                elif self.scope.starting:
                    orphan = replace(orphan, spared=Spared.IN_USE)
                elif ref.id > largest:
                    # Its output may be committed under its id, which a committer may take for the next one's.
                    orphan = replace(orphan, spared=Spared.LARGEST_ID)
            yield orphan

    def _unreferred(self, staying: Mapping[CheckpointRef, CheckpointMetadata]) -> Iterator[Orphan]:
        """`staying` has checkpoints, too, that were there a moment ago: newer ones refer to the same files."""
        users = SharedFiles.of(staying.values())
        sizes = {f"{SHARED}/{entry.name}": entry.size or 0 for entry in self.listing.shared}
        for path in users.unused(sizes):
            name = path.removeprefix(f"{SHARED}/")
            kind = OrphanKind.TEMPORARY if name.startswith(TEMPORARY) else OrphanKind.SHARED
            yield self._orphan(path, kind, shared_attempt(path), sizes[path])
        referred = {handle.path for metadata in staying.values() for handle in metadata.all_files()}
        for ref in staying:
            for entry in self.listing.checkpoints.get(ref, ()):
                path = f"{ref.path}/{entry.name}"
                if entry.name != METADATA and path not in referred:
                    kind = OrphanKind.TEMPORARY if entry.name.startswith(TEMPORARY) else OrphanKind.PRIVATE
                    yield self._orphan(path, kind, ref.attempt, entry.size or 0)

    def _small_files(self, largest: int) -> Iterator[Orphan]:
        # What belongs to another file goes before it: alone it would never be found again.
        for entry in sorted(
            self.listing.root, key=lambda e: (not e.name.endswith((RECORD_SUFFIX, STOPPED_SUFFIX)), e.name)
        ):
            name, size = entry.name, entry.size
            if size is None:
                continue
            if name.startswith(TEMPORARY):
                yield self._orphan(name, OrphanKind.TEMPORARY, _attempt_of(name[_TEMPORARY_HEAD:]), size)
            elif name.startswith(PROBE):
                yield self._orphan(name, OrphanKind.PROBE, None, size)
            elif trace := parse_trace(name.removesuffix(STOPPED_SUFFIX)):
                if self._in_place_of_a_checkpoint(trace):
                    continue
                orphan = self._orphan(name, OrphanKind.TRACE, trace.attempt, size)
                if orphan.spared is None and trace.id > largest:
                    orphan = replace(orphan, spared=Spared.LARGEST_ID)
                yield orphan
            elif self.record is not None:
                owner = Ownership.parse(name.removesuffix(RECORD_SUFFIX))
                if owner is not None and owner.attempt < self.record.attempt:
                    yield self._orphan(name, OrphanKind.OWNER, owner.attempt, size)

    def _in_place_of_a_checkpoint(self, trace: CheckpointRef) -> bool:
        """Whether a run has ended with this savepoint, and a start may go on from it."""
        stopped = trace_path(trace) + STOPPED_SUFFIX
        return not self._void(trace) and any(entry.name == stopped for entry in self.listing.root)


def _attempt_of(name: str) -> int | None:
    """The attempt number that the name of a small file says."""
    owner = Ownership.parse(name.removesuffix(RECORD_SUFFIX)) or parse_trace(name.removesuffix(STOPPED_SUFFIX))
    return owner.attempt if owner else None
