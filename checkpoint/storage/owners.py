"""Who owns a job: claims, and the checks that fence an owner once a newer one has claimed the job.

Every attempt claims the next epoch and lists again; who lists an equal or higher epoch of someone else claims anew,
after a random pause. So no two ever own one epoch, and the highest owner has the job. No storage needs an exclusive
create for that, only listings that show what was written before them.

An owner calls `check` before it writes `_metadata`, before every deletion, before a sink's producer fences others and
before it commits. What a stalled owner still writes after its last check is void by the newer one's record (see
`checkpoint.storage.claims`), which is written before any of its subtasks starts.

Claims that are older than an owner with a record are deleted by it: its record says all that theirs did, and a claim of
its own epoch or a higher one is left to fence their owners. Newer claims are never deleted, so epochs never repeat.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Generator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from checkpoint.errors import PermanentFailure
from checkpoint.storage import savepoints
from checkpoint.storage.claims import Claim, RestoreRecord, carried_record, newer, next_epoch, restore_record, rivals
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.sealed import BrokenSeal, seal, unseal
from checkpoint.storage.source_starts import SourceStart
from checkpoint.storage.storage import CheckpointStorage, StorageError

__all__ = [
    "Claim",
    "Fenced",
    "check",
    "claim",
    "claiming",
    "description",
    "record_nothing_given_up",
    "record_restored",
    "who",
]

_ATTEMPTS: Final = 30
_LONGEST_PAUSE: Final = 2.0
"""Seconds."""


class Fenced(PermanentFailure):
    """Another driver has claimed the job; this one must stop without writing, deleting or committing anything."""


def claim(
    storage: CheckpointStorage,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
    rng: random.Random | None = None,
    address: str = "",
) -> Claim:
    """Claim the job: its older owners are fenced once this returns.

    Args:
        clock: seconds since 1970, for the claim's readers.
        rng: makes the claim's uuid and the pauses.
        address: where the owner can be asked on its host; for the claim's readers, too.

    Raises:
        StorageError: the folder can't be used, or others claim the job over and over.
    """
    steps = claiming(storage, clock, rng or random.SystemRandom(), address)
    while True:
        try:
            pause = next(steps)
        except StopIteration as stop:
            owned: Claim = stop.value
            return owned
        if pause > 0:
            sleep(pause)


def claiming(
    storage: CheckpointStorage, clock: Callable[[], float], rng: random.Random, address: str = ""
) -> Generator[float, None, Claim]:
    """The steps of `claim`, one operation on the storage each; yields how many seconds to wait before the next."""
    for attempt in range(_ATTEMPTS):
        epoch = next_epoch(storage.claims(), storage.folders())
        yield 0.0
        mine = Claim(epoch, f"{rng.getrandbits(128):032x}")
        storage.put(mine.path, _description(mine, clock(), address))
        yield 0.0
        if not rivals(mine, storage.claims()):
            return mine
        yield rng.uniform(0.0, min(_LONGEST_PAUSE, 0.05 * 2**attempt))
    raise StorageError(
        f"could not claim {storage.location}: other drivers claimed it {_ATTEMPTS} times meanwhile. "
        "Start the job on one driver only"
    )


def record_restored(
    storage: CheckpointStorage,
    mine: Claim,
    restored: CheckpointRef | None,
    origin: str | None = None,
    identity: str | None = None,
    claimed: bool = True,
    starts: Mapping[str, SourceStart] | None = None,
) -> RestoreRecord:
    """Record what this owner restored, before any of its subtasks starts; once only.

    From then on checkpoints of older owners are void but for `restored` and those before it. Older claims are deleted.

    Args:
        restored: the checkpoint, if it is one of this job's folder; `None` at a start without restore.
        origin: URI of what was restored, if it lies elsewhere.
        identity: `CheckpointMetadata.identity` of that.
        claimed: whether output that the checkpoint holds is this job's to commit.
        starts: where sources begin that what was restored has no state of, by id.

    Raises:
        Fenced: a newer owner has claimed the job.
        StorageError: it can't be written.
    """
    check(storage, mine)
    record = restore_record(mine, restored, storage.list_checkpoints(), origin, identity, claimed, starts)
    _write(storage, mine, record)
    return record


def record_nothing_given_up(storage: CheckpointStorage, mine: Claim) -> RestoreRecord:
    """Record that this owner restores nothing and gives nothing up (it cleans the folder, and the job doesn't run).

    What a start could be restored from before, it can be restored from afterwards. What fenced owners complete from now
    on is void: this owner may have deleted its files.

    Raises:
        As `record_restored`; DamagedFile, too: an older record or a savepoint's trace is.
    """
    check(storage, mine)
    before = storage.restore_record()
    stops = [stop.ref for stop in savepoints.stops(storage, before)]
    record = carried_record(mine, before, storage.list_checkpoints(), stops)
    _write(storage, mine, record)
    return record


def _write(storage: CheckpointStorage, mine: Claim, record: RestoreRecord) -> None:
    storage.put(mine.record_path, record.to_bytes())
    check(storage, mine)
    for old in storage.claims():
        if old.epoch < mine.epoch:
            storage.remove([old.record_path])  # a record without its claim would never be found again
            storage.remove([old.path])


def check(storage: CheckpointStorage, mine: Claim) -> None:
    """See that `mine` still owns the job.

    Raises:
        Fenced: it doesn't; names the newer claim.
        StorageError: that can't be seen.
    """
    claims = storage.claims()
    winner = newer(mine, claims)
    if winner is not None:
        raise Fenced(
            f"{storage.location} has a newer owner, {winner.path}{who(storage, winner)}; this one is {mine.path}. "
            "It stops, and writes and commits nothing more. If both were meant to run, give one another pipeline name "
            "or checkpoint folder"
        )
    if mine not in claims:
        raise Fenced(
            f"{storage.location} no longer has this owner's claim, {mine.path}: was the folder deleted or exchanged "
            "while the job ran? The job stops; start it again"
        )


def _description(mine: Claim, now: float, address: str) -> bytes:
    process = {"host": socket.gethostname(), "pid": os.getpid(), "time": now, "address": address}
    return seal({"epoch": mine.epoch, "uuid": mine.uuid, **process})


def description(storage: CheckpointStorage, claim: Claim) -> dict[str, Any]:
    """What a claim's file says: `host`, `pid`, `time`, `address`; empty if it is gone or damaged."""
    data = storage.get(claim.path)
    try:
        return {} if data is None else unseal(data)
    except BrokenSeal:
        return {}


def who(storage: CheckpointStorage, other: Claim) -> str:
    """What a claim's file says of its owner, in parentheses; nothing if it is gone."""
    data = storage.get(other.path)
    if data is None:  # superseded in its turn
        return ""
    try:
        said = unseal(data)
        at = datetime.fromtimestamp(said["time"], UTC)
        return f" (host {said['host']}, process {said['pid']}, since {at:%Y-%m-%d %H:%M:%S} UTC)"
    except (BrokenSeal, KeyError) as error:
        return f" (its file says nothing: {error})"
