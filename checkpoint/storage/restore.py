"""Which checkpoint to restore from."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.committables import SinkState
from checkpoint.elements import EdgeName
from checkpoint.storage import savepoints
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.naming import METADATA, CheckpointRef
from checkpoint.storage.ownership import RestoreRecord
from checkpoint.storage.storage import CheckpointStorage

logger = logging.getLogger(f"weir.{__name__}")


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """A checkpoint or savepoint to restore, with its metadata verified and (as `newest` and `from_uri` return it) all
    its files there in full length."""

    storage: CheckpointStorage
    """Where its file handles lead; not the job's own folder if it is a savepoint or another job's checkpoint."""
    ref: CheckpointRef
    metadata: CheckpointMetadata
    uri: str
    """The URI of its folder."""
    left_out: Mapping[EdgeName, int] = field(default_factory=dict)
    """Records in flight, by edge, that were to be left out: `metadata` doesn't mention them."""
    claimed: bool | None = None
    """Whether an earlier attempt that restored it has claimed its output (see `RestoreRecord`); `None` = none has."""

    def claimed_by(self, pipeline: str, claim: bool | None = None) -> bool:
        """Whether output that was prepared and is not committed is this pipeline's to commit. `claim` counts where no
        earlier attempt has said so."""
        if self.claimed is not None:
            return self.claimed
        return self.metadata.pipeline == pipeline if claim is None else claim

    def ref_in(self, storage: CheckpointStorage) -> CheckpointRef | None:
        """`ref` if the checkpoint lies in `storage` (for `fencing.record_restored`)."""
        return self.ref if self.storage.same_folder(storage) else None


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    """For messages."""
    find: Callable[[], RestorePoint]
    """Reads and verifies its metadata."""
    retained: CheckpointRef | None = None
    """It, if it is one of the job's folder."""


class _Deleted(Exception):
    """A job that runs has deleted a checkpoint, behind a newer one."""


def newest(
    storage: CheckpointStorage,
    on_damaged: Literal["fail", "previous"] = "fail",
    known_damaged: Mapping[CheckpointRef, str] | None = None,
    ignore_in_flight: int | None = None,
) -> RestorePoint | None:
    """The newest good checkpoint; `None` if there never was one.

    The job may run meanwhile: if it deletes the one that is looked at, there is a newer one, which is looked at then.

    The savepoint that a run was stopped with counts as one. As long as a job that was started from elsewhere has no
    checkpoint of its own, that is what it is restored from.

    Args:
        on_damaged: what to do when it is damaged: stop, or go back to the one before, with a warning.
        known_damaged: checkpoints that a subtask found to be damaged when it read their files, and what it said.
        ignore_in_flight: id of a checkpoint whose in-flight data is to be left out, so that it may be damaged.

    Raises:
        DamagedFile: it is damaged, and going back is not allowed or there is nothing to go back to.
        StorageError: the storage can't be read.
    """
    while True:
        try:
            return _newest(storage, on_damaged, known_damaged, ignore_in_flight)
        except _Deleted:
            pass


def _newest(
    storage: CheckpointStorage,
    on_damaged: Literal["fail", "previous"],
    known_damaged: Mapping[CheckpointRef, str] | None,
    ignore_in_flight: int | None,
) -> RestorePoint | None:
    record = storage.restore_record()
    candidates = _candidates(storage, record)
    if not candidates:
        if record is not None and record.restored is not None:
            logger.warning(
                "%s: no checkpoint is left, though an earlier run restored %s. The job starts from nothing",
                storage.location,
                record.restored.path,
            )
        return None
    problems: list[str] = []
    for i, candidate in reversed(list(enumerate(candidates))):
        try:
            point = _verified(candidate.find(), ignore_in_flight)
            if known_damaged and point.ref in known_damaged:
                raise DamagedFile(known_damaged[point.ref])
        except DamagedFile as error:
            if candidate.retained is not None and candidate.retained not in storage.complete():
                raise _Deleted from error
            if on_damaged == "fail":
                raise DamagedFile(_advice(storage, candidate, error, candidates[:i])) from error
            problems.append(f"{candidate.name}{_triggered(candidate)}: {error}")
            continue
        if problems:
            _warn(storage, candidates[-1], point, problems)
        return point
    raise DamagedFile(
        f"{storage.location}: every retained checkpoint is damaged, nothing can be restored. {'; '.join(problems)}. "
        'Mend the files, or start without state by start(restore="none")'
    )


def _candidates(storage: CheckpointStorage, record: RestoreRecord | None) -> list[_Candidate]:
    """Oldest first."""
    found: list[tuple[CheckpointRef, _Candidate]] = [
        (ref, _Candidate(ref.path, partial(_retained, storage, ref, record), ref)) for ref in storage.list_checkpoints()
    ]
    for stop in savepoints.stops(storage, record):
        name = f"the savepoint {stop.uri}, which the job was stopped with,"
        found.append((stop.ref, _Candidate(name, partial(_stopped, stop))))
    candidates = [candidate for _, candidate in sorted(found, key=lambda one: one[0])]
    if record is not None and record.origin is not None:
        find = partial(_origin, record.origin, record.identity, record.claimed)
        candidates.insert(0, _Candidate(f"{record.origin}, which the job was started from,", find))
    return candidates


def _retained(storage: CheckpointStorage, ref: CheckpointRef, record: RestoreRecord | None) -> RestorePoint:
    point = _checkpoint(storage, ref)
    # Restored once more: what was said of its output holds.
    again = record is not None and record.restored == ref
    return replace(point, claimed=record.claimed) if record is not None and again else point


def _stopped(stop: savepoints.Stop) -> RestorePoint:
    return _elsewhere(stop.uri, stop.identity)


def _origin(uri: str, identity: str | None, claimed: bool) -> RestorePoint:
    return replace(_elsewhere(uri, identity), claimed=claimed)


def _elsewhere(uri: str, identity: str | None) -> RestorePoint:
    """What is in a folder that is known to have been complete."""
    try:
        point = at(uri)
        if point.metadata.identity != identity:
            raise DamagedFile(
                f"{uri} holds something else by now: {point.ref.path} of pipeline {point.metadata.pipeline!r}. Name "
                "the place of what was there: start(restore=<its URI>)"
            )
        return point
    except NotACheckpoint as error:
        raise DamagedFile(f"{error}. Was it moved? Then name its new place: start(restore=<its URI>)") from error


class NotACheckpoint(StorageError):
    """There is no complete checkpoint or savepoint in a folder."""


def from_uri(uri: str, ignore_in_flight: int | None = None) -> RestorePoint:
    """The savepoint in a folder, or the checkpoint whose folder (`…/chk-<n>-<attempt>`) it is, void or not.

    Args:
        uri: a URI or an absolute path.
        ignore_in_flight: as in `newest`.

    Raises:
        DamagedFile: it is damaged.
        NotACheckpoint: there is none.
        StorageError: it can't be read.
    """
    return _verified(at(uri), ignore_in_flight)


def at(uri: str) -> RestorePoint:
    """As `from_uri`, without a look at the files that the metadata refers to."""
    uri = uri.rstrip("/")
    own = CheckpointStorage(uri, None)
    job_folder, name = _split(uri)
    ref = CheckpointRef.parse(name)
    if METADATA in own.names():
        metadata = own.load_savepoint()
        if metadata.kind is CheckpointKind.SAVEPOINT:
            return RestorePoint(own, metadata.ref, metadata, uri)
        if ref is None:
            raise NotACheckpoint(
                f"{uri} is a copy of the checkpoint {metadata.ref.path}, whose files lie outside of it. Restore it "
                "from its job's folder; to have a checkpoint that can be moved, take a savepoint"
            )
    elif ref is None:
        raise NotACheckpoint(f"{uri} is no savepoint and no checkpoint: {_hint(own)}")
    storage = CheckpointStorage(job_folder, None)
    if ref not in storage.complete():
        there = ", ".join(other.path for other in storage.complete()) or "none"
        raise NotACheckpoint(f"{uri} is no complete checkpoint. Complete ones in {storage.location}: {there}")
    return replace(_checkpoint(storage, ref), uri=uri)


def _hint(folder: CheckpointStorage) -> str:
    there = ", ".join(ref.path for ref in folder.complete())
    if there:
        return f"give the URI of one of the folders in it, {there}"
    return "give the URI of a savepoint's folder, or of a job's folder chk-<number>-<attempt>"


def _checkpoint(storage: CheckpointStorage, ref: CheckpointRef) -> RestorePoint:
    return RestorePoint(storage, ref, storage.load(ref), storage.uri_of(ref.path))


def _verified(point: RestorePoint, ignore_in_flight: int | None) -> RestorePoint:
    """With in-flight data left out if that is wanted; all other files are there."""
    if point.ref.id == ignore_in_flight:
        metadata = point.metadata
        point = replace(point, metadata=metadata.without_in_flight(), left_out=metadata.in_flight_rows())
    point.storage.verify_sizes(point.metadata.all_files())
    return point


def _split(uri: str) -> tuple[str, str]:
    """URI of the parent folder, and the last name."""
    if uri.startswith("/"):
        return posixpath.split(uri.rstrip("/"))
    parts = urlsplit(uri)
    parent, name = posixpath.split(parts.path.rstrip("/"))
    return urlunsplit(parts._replace(path=parent)), name


def _triggered(candidate: _Candidate) -> str:
    """When a damaged checkpoint was triggered, as far as its metadata can tell."""
    try:
        return f" (triggered {_time(candidate.find().metadata.trigger_time)})"
    except DamagedFile:
        return ""


def _advice(storage: CheckpointStorage, candidate: _Candidate, error: DamagedFile, older: list[_Candidate]) -> str:
    if older:
        what = (
            f"Mend it, or go back to an older checkpoint ({', '.join(old.name for old in reversed(older))}) "
            'by CheckpointConfig(on_damaged="previous") or start(restore=<URI of its folder>)'
        )
    else:
        what = 'There is no older checkpoint: mend it, or start without state by start(restore="none")'
    return f"{storage.location}: {candidate.name} can't be restored: {error}. {what}"


def _warn(storage: CheckpointStorage, wanted: _Candidate, point: RestorePoint, problems: list[str]) -> None:
    logger.warning(
        "%s: going back from %s to %s, triggered %s, since %s damaged: %s",
        storage.location,
        wanted.name,
        point.ref.path,
        _time(point.metadata.trigger_time),
        "one is" if len(problems) == 1 else f"{len(problems)} are",
        "; ".join(problems),
    )


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def sink_state(storage: CheckpointStorage, metadata: CheckpointMetadata, step_id: str) -> SinkState:
    """What a checkpoint holds of a sink, all owners together; nothing if it has no such sink.

    Args:
        storage: where the checkpoint's files are.

    Raises:
        DamagedFile: one of them is.
    """
    states = (storage.unspill(snapshot).state for snapshot in metadata.operator(step_id))
    return SinkState.from_wire(*(state["sink"] for state in states if "sink" in state))
