"""What a job's owners leave in its folder, and what follows from it (pure; `checkpoint.storage.fencing` writes it).

Every attempt takes ownership of the job by a file `owner-<attempt>-<uuid>`. Before it starts a subtask it also records,
in `owner-<attempt>-<uuid>.restored`, which older checkpoint it restored and which ones it builds on: that one and those
listed before it. All other checkpoints of older owners are *void*: an owner that was stalled, or one that was given up
for an older restore, wrote them, and no output follows from them. The record also says where the sources begin that the
restored checkpoint doesn't know (`checkpoint.storage.source_starts`).

The newest record says all of it, so older owner files are only history once a newer owner has its record.
There are two files and not one that is rewritten: so no storage needs an atomic overwrite.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from checkpoint.storage import checksummed_json
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.source_starts import SourceStart

_OWNER: Final = re.compile(r"owner-([1-9]\d*)-([0-9a-f]{32})")
RECORD_SUFFIX: Final = ".restored"


@dataclass(frozen=True, slots=True, order=True)
class Ownership:
    """One attempt's ownership of the job. The highest attempt number owns it."""

    attempt: int
    uuid: str
    """32 hexadecimal digits."""

    @property
    def path(self) -> str:
        """Relative to the job's folder."""
        return f"owner-{self.attempt}-{self.uuid}"

    @property
    def record_path(self) -> str:
        return self.path + RECORD_SUFFIX

    def to_wire(self) -> list[Any]:
        return [self.attempt, self.uuid]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> Ownership:
        return cls(*wire)

    @classmethod
    def parse(cls, name: str) -> Ownership | None:
        """The ownership that a file of this name stands for; `None` if it is no owner file. Records aren't."""
        match = _OWNER.fullmatch(name)
        return cls(int(match[1]), match[2]) if match else None


@dataclass(frozen=True, slots=True)
class RestoreRecord:
    """What an owner restored and builds on."""

    attempt: int
    """The owner's."""
    restored: CheckpointRef | None
    """`None`: it started from nothing, or from `origin`."""
    kept: frozenset[CheckpointRef]
    """Checkpoints of older owners that are still good: `restored` and older ones."""
    origin: str | None = None
    """URI of what it restored that lies elsewhere: a savepoint or another job's checkpoint. As long as there is no
    checkpoint of its own, this is restored again."""
    identity: str | None = None
    """`CheckpointMetadata.identity` of `origin`: something else may lie there by now."""
    claimed: bool = True
    """Whether output that what it restored holds and that is not committed is this job's to commit."""
    starts: Mapping[str, SourceStart] = field(default_factory=dict)
    """By id, where those sources begin that what it restored has no state of."""

    def voids(self, ref: CheckpointRef) -> bool:
        """Whether no output may follow from the checkpoint any more."""
        return ref.attempt < self.attempt and ref not in self.kept

    def to_bytes(self) -> bytes:
        wire = {
            "epoch": self.attempt,
            "restored": None if self.restored is None else [self.restored.id, self.restored.attempt],
            "kept": sorted([ref.id, ref.attempt] for ref in self.kept),
            "origin": self.origin,
            "identity": self.identity,
            "claimed": self.claimed,
            "starts": {id: start.to_wire() for id, start in self.starts.items()},
        }
        return checksummed_json.dumps(wire)

    @classmethod
    def from_bytes(cls, data: bytes) -> RestoreRecord:
        """
        Raises:
            ValueError: it isn't one.
        """
        try:
            wire = checksummed_json.loads(data)
            restored = None if wire["restored"] is None else CheckpointRef(*wire["restored"])
            kept = frozenset(CheckpointRef(*ref) for ref in wire["kept"])
            starts = {id: SourceStart.from_wire(start) for id, start in wire.get("starts", {}).items()}
            return cls(wire["epoch"], restored, kept, wire["origin"], wire["identity"], wire["claimed"], starts)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a record of what an owner restored: {error!r}") from error


def restore_record(
    mine: Ownership,
    restored: CheckpointRef | None,
    good: Iterable[CheckpointRef],
    origin: str | None = None,
    identity: str | None = None,
    claimed: bool = True,
    starts: Mapping[str, SourceStart] | None = None,
) -> RestoreRecord:
    """The record of `mine`.

    Args:
        restored: the checkpoint in this job's folder that it restored.
        good: all complete checkpoints that aren't void by earlier records.
        origin: see `RestoreRecord`.
        identity: see `RestoreRecord`.
        claimed: see `RestoreRecord`.
        starts: see `RestoreRecord`.
    """
    good = frozenset(good)
    if restored is None:
        kept: frozenset[CheckpointRef] = frozenset()
    elif restored in good:
        kept = frozenset(ref for ref in good if ref <= restored)
    else:  # a void one, named by the user: the good ones aren't its ancestors
        kept = frozenset({restored})
    return RestoreRecord(mine.attempt, restored, kept, origin, identity, claimed, starts or {})


def carried_record(
    mine: Ownership,
    before: RestoreRecord | None,
    good: Collection[CheckpointRef],
    stops: Iterable[CheckpointRef],
) -> RestoreRecord:
    """The record of an owner that gives nothing up: what `before` left good stays good.

    Args:
        before: the newest record.
        good: all complete checkpoints that aren't void by it.
        stops: the savepoints that the job was stopped with and that aren't void by it.
    """
    restored = max(good) if good else before.restored if before else None
    kept = frozenset([*good, *stops])
    if before is None:
        return RestoreRecord(mine.attempt, restored, kept)
    return RestoreRecord(mine.attempt, restored, kept, before.origin, before.identity, before.claimed, before.starts)


def next_attempt(owners: Iterable[Ownership], checkpoints: Iterable[CheckpointRef]) -> int:
    """One above every attempt number seen: in owner files, and in checkpoint folders of owners whose files are gone."""
    return 1 + max([owner.attempt for owner in owners] + [ref.attempt for ref in checkpoints], default=0)


def rivals(mine: Ownership, owners: Collection[Ownership]) -> list[Ownership]:
    """Others that keep a new owner from owning the job: those of the same or a higher attempt number."""
    return sorted(owner for owner in owners if owner != mine and owner.attempt >= mine.attempt)


def newer(mine: Ownership, owners: Collection[Ownership]) -> Ownership | None:
    """The owner that has taken the job over from `mine`, if any.

    One of the same number has not: whoever wrote second saw the other and takes another number.
    """
    return max((owner for owner in owners if owner.attempt > mine.attempt), default=None)
