"""Who owns a job, and the check that stops an older owner once a newer attempt has taken ownership.

Every attempt takes the next attempt number, writes its owner file, and lists again. If it then sees an equal or higher
number of somebody else, it takes another number, after a random pause. So no two attempts ever own one number, and the
highest number owns the job. The storage needs no exclusive create for that, only listings that show what was written
before them.

An owner calls `check` before it writes `_metadata`, before every deletion, before a sink's producer fences others and
before it commits. What a stalled owner still writes after its last check is void by the newer one's record (see
`checkpoint.storage.ownership`), which is written before any of its subtasks starts.

An owner that has its record deletes older owner files: its record says all that theirs did. Its own number, or a higher
one, is left to fence their attempts. Newer owner files are never deleted, so attempt numbers never repeat.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from checkpoint.errors import PermanentFailure
from checkpoint.process_identity import identity
from checkpoint.storage import checksummed_json, savepoints
from checkpoint.storage.errors import StorageError
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.ownership import (
    Ownership,
    RestoreRecord,
    carried_record,
    newer,
    next_attempt,
    restore_record,
    rivals,
)
from checkpoint.storage.source_starts import SourceStart
from checkpoint.storage.storage import CheckpointStorage

__all__ = [
    "Fenced",
    "Ownership",
    "check",
    "description",
    "record_nothing_given_up",
    "record_restored",
    "take_ownership",
    "taking_ownership",
    "who",
]

_TRIES: Final = 30
_LONGEST_PAUSE: Final = 2.0
"""Seconds."""


class Fenced(PermanentFailure):
    """Another driver owns the job; this one must stop without writing, deleting or committing anything."""


def take_ownership(
    storage: CheckpointStorage,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
    rng: random.Random | None = None,
    address: str = "",
    held: Ownership | None = None,
) -> Ownership:
    """Take ownership of the job: its older owners are fenced once this returns.

    Args:
        held: what this driver has owned the job by so far. It doesn't take back what another driver has taken.
        clock: seconds since 1970, as the owner file will say it.
        rng: makes the owner's uuid and the pauses.
        address: where the owner can be asked on its host, as the owner file will say it.

    Raises:
        Fenced: the job has a newer owner than `held`.
        StorageError: the folder can't be used, or others take ownership over and over.
    """
    steps = taking_ownership(storage, clock, rng or random.SystemRandom(), address, held)
    while True:
        try:
            pause = next(steps)
        except StopIteration as stop:
            owned: Ownership = stop.value
            return owned
        if pause > 0:
            sleep(pause)


def taking_ownership(
    storage: CheckpointStorage,
    clock: Callable[[], float],
    rng: random.Random,
    address: str = "",
    held: Ownership | None = None,
) -> Generator[float, None, Ownership]:
    """The steps of `take_ownership`, one storage operation each. Yields how many seconds to wait before the next."""
    tried: set[Ownership] = set()
    for tries in range(_TRIES):
        owners = storage.owners()
        if held is not None:
            _check(storage, held, [owner for owner in owners if owner not in tried])
        attempt = next_attempt(owners, storage.folders())
        yield 0.0
        mine = Ownership(attempt, f"{rng.getrandbits(128):032x}")
        tried.add(mine)
        try:
            storage.put(mine.path, _description(mine, clock(), address))
        except StorageError:
            # The file may be there all the same, and would fence this very driver when it tries again.
            with suppress(StorageError):
                storage.remove([mine.path])
            raise
        yield 0.0
        if not rivals(mine, storage.owners()):
            return mine
        yield rng.uniform(0.0, min(_LONGEST_PAUSE, 0.05 * 2**tries))
    raise StorageError(
        f"could not take ownership of {storage.location}: other drivers took it {_TRIES} times meanwhile. "
        "Start the job on one driver only"
    )


def record_restored(
    storage: CheckpointStorage,
    mine: Ownership,
    restored: CheckpointRef | None,
    origin: str | None = None,
    identity: str | None = None,
    claimed: bool = True,
    starts: Mapping[str, SourceStart] | None = None,
) -> RestoreRecord:
    """Record what this owner restored, before any of its subtasks starts; once only.

    From then on checkpoints of older owners are void but for `restored` and those before it. Older owner files are
    deleted.

    Args:
        restored: the checkpoint, if it is one of this job's folder; `None` at a start without restore.
        origin: URI of what was restored, if it lies elsewhere.
        identity: `CheckpointMetadata.identity` of that.
        claimed: whether output that the checkpoint holds is this job's to commit.
        starts: where sources begin that what was restored has no state of, by id.

    Raises:
        Fenced: the job has a newer owner.
        StorageError: it can't be written.
    """
    check(storage, mine)
    record = restore_record(mine, restored, storage.list_checkpoints(), origin, identity, claimed, starts)
    _write(storage, mine, record)
    return record


def record_nothing_given_up(storage: CheckpointStorage, mine: Ownership) -> RestoreRecord:
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


def _write(storage: CheckpointStorage, mine: Ownership, record: RestoreRecord) -> None:
    storage.put(mine.record_path, record.to_bytes())
    check(storage, mine)
    for old in storage.owners():
        if old.attempt < mine.attempt:
            storage.remove([old.record_path])  # a record without its owner file would never be found again
            storage.remove([old.path])


def check(storage: CheckpointStorage, mine: Ownership) -> None:
    """See that `mine` still owns the job.

    Raises:
        Fenced: it doesn't. The message names the newer owner.
        StorageError: that can't be seen.
    """
    _check(storage, mine, storage.owners())


def _check(storage: CheckpointStorage, mine: Ownership, owners: Collection[Ownership]) -> None:
    winner = newer(mine, owners)
    if winner is not None:
        raise Fenced(
            f"{storage.location} has a newer owner, {winner.path}{who(storage, winner)}; this one is {mine.path}. "
            "It stops, and writes and commits nothing more. If both were meant to run, give one another pipeline name "
            "or checkpoint folder"
        )
    if mine not in owners:
        raise Fenced(
            f"{storage.location} no longer has this owner's file, {mine.path}: was the folder deleted or exchanged "
            "while the job ran? The job stops; start it again"
        )


def _description(mine: Ownership, now: float, address: str) -> bytes:
    process = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process": identity(os.getpid()),
        "time": now,
        "address": address,
    }
    return checksummed_json.dumps({"epoch": mine.attempt, "uuid": mine.uuid, **process})


def description(storage: CheckpointStorage, owner: Ownership) -> dict[str, Any]:
    """What an owner file says: `host`, `pid`, `process` (see `process_identity`), `time`, `address`; empty if it is
    gone or damaged."""
    data = storage.get(owner.path)
    try:
        return {} if data is None else checksummed_json.loads(data)
    except checksummed_json.ChecksumMismatch:
        return {}


def who(storage: CheckpointStorage, other: Ownership) -> str:
    """What an owner file says, in parentheses; nothing if it is gone."""
    data = storage.get(other.path)
    if data is None:  # a newer owner has deleted it
        return ""
    try:
        said = checksummed_json.loads(data)
        at = datetime.fromtimestamp(said["time"], UTC)
        return f" (host {said['host']}, process {said['pid']}, since {at:%Y-%m-%d %H:%M:%S} UTC)"
    except (checksummed_json.ChecksumMismatch, KeyError) as error:
        return f" (its file says nothing: {error})"
