"""What a job's owners leave in its folder, and what follows from it (pure; `checkpoint.storage.owners` writes it).

Every attempt *claims* the job: `owner-<epoch>-<uuid>`. Before it starts a subtask it also records, in
`owner-<epoch>-<uuid>.restored`, which older checkpoint it restored and which ones it builds on: that one and those
listed before it. All other checkpoints of older owners are *void*: an owner that was stalled, or one that was given up
for an older restore, wrote them, and no output follows from them. And it says where the sources begin that the restored
checkpoint doesn't know (`checkpoint.storage.source_starts`).

The newest record says all of it, so older claims are only history once a newer one has its record.
Two files and not one that is rewritten: no storage then needs an atomic overwrite.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.sealed import seal, unseal
from checkpoint.storage.source_starts import SourceStart

_CLAIM: Final = re.compile(r"owner-([1-9]\d*)-([0-9a-f]{32})")
RECORD_SUFFIX: Final = ".restored"


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """An attempt's claim on the job. The highest epoch owns it."""

    epoch: int
    uuid: str
    """32 hexadecimal digits."""

    @property
    def path(self) -> str:
        """Relative to the job's folder."""
        return f"owner-{self.epoch}-{self.uuid}"

    @property
    def record_path(self) -> str:
        return self.path + RECORD_SUFFIX

    def to_wire(self) -> list[Any]:
        return [self.epoch, self.uuid]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> Claim:
        return cls(*wire)

    @classmethod
    def parse(cls, name: str) -> Claim | None:
        """The claim that a file of this name is, `None` if it isn't one (records aren't)."""
        match = _CLAIM.fullmatch(name)
        return cls(int(match[1]), match[2]) if match else None


@dataclass(frozen=True, slots=True)
class RestoreRecord:
    """What an owner restored and builds on."""

    epoch: int
    """The owner's."""
    restored: CheckpointRef | None
    """`None`: it started from nothing, or from `origin`."""
    kept: frozenset[CheckpointRef]
    """Checkpoints of older owners that are still good: `restored` and older ones."""
    origin: str | None = None
    """URI of what it restored that lies elsewhere: a savepoint or another job's checkpoint. As long as there is no
    checkpoint of its own, this is restored again."""
    identity: str | None = None
    """Of `origin` (`CheckpointMetadata.identity`): something else may lie there by now."""
    claimed: bool = True
    """Whether output that what it restored holds and that is not committed is this job's to commit."""
    starts: Mapping[str, SourceStart] = field(default_factory=dict)
    """By id, where those sources begin that what it restored has no state of."""

    def voids(self, ref: CheckpointRef) -> bool:
        """Whether no output may follow from the checkpoint any more."""
        return ref.epoch < self.epoch and ref not in self.kept

    def to_bytes(self) -> bytes:
        wire = {
            "epoch": self.epoch,
            "restored": None if self.restored is None else [self.restored.id, self.restored.epoch],
            "kept": sorted([ref.id, ref.epoch] for ref in self.kept),
            "origin": self.origin,
            "identity": self.identity,
            "claimed": self.claimed,
            "starts": {id: start.to_wire() for id, start in self.starts.items()},
        }
        return seal(wire)

    @classmethod
    def from_bytes(cls, data: bytes) -> RestoreRecord:
        """
        Raises:
            ValueError: it isn't one.
        """
        try:
            wire = unseal(data)
            restored = None if wire["restored"] is None else CheckpointRef(*wire["restored"])
            kept = frozenset(CheckpointRef(*ref) for ref in wire["kept"])
            starts = {id: SourceStart.from_wire(start) for id, start in wire.get("starts", {}).items()}
            return cls(wire["epoch"], restored, kept, wire["origin"], wire["identity"], wire["claimed"], starts)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a record of what an owner restored: {error!r}") from error


def restore_record(
    claim: Claim,
    restored: CheckpointRef | None,
    good: Iterable[CheckpointRef],
    origin: str | None = None,
    identity: str | None = None,
    claimed: bool = True,
    starts: Mapping[str, SourceStart] | None = None,
) -> RestoreRecord:
    """The record of `claim`.

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
    return RestoreRecord(claim.epoch, restored, kept, origin, identity, claimed, starts or {})


def carried_record(
    claim: Claim,
    before: RestoreRecord | None,
    good: Collection[CheckpointRef],
    stops: Iterable[CheckpointRef],
) -> RestoreRecord:
    """The record of a claim that gives nothing up: what `before` left good stays good.

    Args:
        before: the newest record.
        good: all complete checkpoints that aren't void by it.
        stops: the savepoints that the job was stopped with and that aren't void by it.
    """
    restored = max(good) if good else before.restored if before else None
    kept = frozenset([*good, *stops])
    if before is None:
        return RestoreRecord(claim.epoch, restored, kept)
    return RestoreRecord(claim.epoch, restored, kept, before.origin, before.identity, before.claimed, before.starts)


def next_epoch(claims: Iterable[Claim], checkpoints: Iterable[CheckpointRef]) -> int:
    """One above every epoch seen: in claims, and in folders of owners whose claims are gone."""
    return 1 + max([claim.epoch for claim in claims] + [ref.epoch for ref in checkpoints], default=0)


def rivals(mine: Claim, claims: Collection[Claim]) -> list[Claim]:
    """Claims of others that keep a new claim from owning the job: of the same or a higher epoch."""
    return sorted(claim for claim in claims if claim != mine and claim.epoch >= mine.epoch)


def newer(mine: Claim, claims: Collection[Claim]) -> Claim | None:
    """The claim that has taken the job over from `mine`, if any.

    One of the same epoch has not: whoever wrote second saw the other and claims anew.
    """
    return max((claim for claim in claims if claim.epoch > mine.epoch), default=None)
