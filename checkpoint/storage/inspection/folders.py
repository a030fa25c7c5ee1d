"""What a URI names: a job's folder, a folder of several jobs, one checkpoint or savepoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.storage import checksummed_json, fencing, restore, savepoints
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.filesystem import Entry
from checkpoint.storage.inspection.checkpoints import Details, Summary, Unreadable, details, summary
from checkpoint.storage.naming import METADATA, SHARED, CheckpointRef, parse_trace, trace_path
from checkpoint.storage.ownership import Ownership
from checkpoint.storage.storage import CheckpointStorage
from checkpoint.storage.sweep import Survey, survey


@dataclass(frozen=True, slots=True)
class UriContent:
    """What a URI names."""

    jobs: tuple[CheckpointStorage, ...] = ()
    """Jobs' folders: the URI's own, or those below it."""
    single: str | None = None
    """URI of a checkpoint's or savepoint's own folder."""
    savepoints: tuple[str, ...] = ()
    """URIs of savepoints' folders below it, beside the jobs'."""


def look_at(uri: str) -> UriContent:
    """
    Raises:
        NotACheckpoint: nothing of Weir's is there.
        StorageError: it can't be read.
    """
    folder = CheckpointStorage(uri, None)
    names = folder.names()
    if METADATA in names or CheckpointRef.parse(uri.rstrip("/").rpartition("/")[2]):
        return UriContent(single=uri.rstrip("/"))
    if _is_job(names):
        return UriContent(jobs=(folder,))
    jobs, kept = [], []
    for entry in folder.entries():
        if entry.size is None:
            inner = CheckpointStorage(folder.uri_of(entry.name), None)
            inner_names = inner.names()
            if METADATA in inner_names:
                kept.append(inner.uri)
            elif _is_job(inner_names):
                jobs.append(inner)
    if not jobs and not kept:
        what = "holds no checkpoints" if names else "does not exist, or is empty"
        raise restore.NotACheckpoint(
            f"{folder.location} {what}: give the URI of a job's folder (CheckpointConfig's URI and the pipeline's "
            "name), of the folder above it, or of a folder chk-<number>-<attempt> or a savepoint"
        )
    return UriContent(tuple(jobs), savepoints=tuple(kept))


def the_one(uri: str) -> str:
    """URI of the checkpoint or savepoint that a URI means: its own folder, or the newest in a job's folder.

    Raises:
        NotACheckpoint: there is none, or several might be meant.
        StorageError: it can't be read.
    """
    folder = look_at(uri)
    if folder.single is not None:
        return folder.single
    if len(folder.jobs) == 1 and not folder.savepoints:
        job = folder.jobs[0]
        good = job.list_checkpoints()
        if good:
            return job.uri_of(good[-1].path)
        raise restore.NotACheckpoint(f"{job.location} has no complete checkpoint")
    there = "\n  ".join([*(job.uri_of() for job in folder.jobs), *folder.savepoints])
    raise restore.NotACheckpoint(f"{uri} holds several jobs or savepoints; choose one:\n  {there}")


def _is_job(names: set[str]) -> bool:
    return SHARED in names or any(Ownership.parse(n) or CheckpointRef.parse(n) or parse_trace(n) for n in names)


@dataclass(frozen=True, slots=True)
class NewestOwner:
    """The newest owner of a job."""

    attempt: int
    description: str
    """Host, process and time, as far as its file says."""
    recorded: bool
    """It has recorded what it restored, so its subtasks may have started."""


@dataclass(frozen=True, slots=True)
class SavepointTrace:
    """A savepoint that the job's folder remembers; its own folder may be gone, or never have been complete."""

    ref: CheckpointRef
    uri: str | None
    """Where it was written; `None`: the trace can't be read."""
    there: bool | None
    """Whether it is complete and still there; `None`: it isn't known, or its storage can't be reached."""
    stopped: bool
    """A run ended with it, and the next start goes on from it if nothing newer is complete."""


@dataclass(frozen=True, slots=True)
class JobFolder:
    uri: str
    location: str
    owner: NewestOwner | None
    """`None`: nobody ever owned it."""
    checkpoints: tuple[Summary | Unreadable, ...]
    """Complete ones, void ones too, oldest first."""
    incomplete: tuple[CheckpointRef, ...]
    """In progress, failed or half deleted."""
    savepoints: tuple[SavepointTrace, ...]
    starts: Mapping[str, float] = field(default_factory=dict)
    """Sources that the newest owner has begun to read and no good checkpoint has state of, with the time (seconds since
    1970) of the start that settled where they begin. The next start goes on from there."""


def describe_job(storage: CheckpointStorage) -> JobFolder:
    """
    Raises:
        DamagedFile: an owner's record is.
        StorageError: the folder can't be read.
    """
    seen = survey(storage)
    complete = seen.listing.complete
    return JobFolder(
        uri=storage.uri_of(),
        location=storage.location,
        owner=_owner(storage, seen),
        checkpoints=tuple(_summarised(storage, seen, ref) for ref in complete),
        incomplete=tuple(sorted(seen.listing.checkpoints.keys() - set(complete))),
        savepoints=tuple(_traces(storage, seen)),
        starts=_starts(seen),
    )


def _starts(seen: Survey) -> dict[str, float]:
    if seen.record is None:
        return {}
    newest = max((ref for ref in seen.good if ref in seen.known), default=None)
    return {
        id: start.at
        for id, start in seen.record.starts.items()
        if newest is None or not seen.known[newest].operator(id)
    }


def _owner(storage: CheckpointStorage, seen: Survey) -> NewestOwner | None:
    if seen.newest is None:
        return None
    return NewestOwner(seen.newest.attempt, fencing.who(storage, seen.newest).strip(" ()"), not seen.starting)


def _traces(storage: CheckpointStorage, seen: Survey) -> Iterator[SavepointTrace]:
    stopped = {stop.ref for stop in savepoints.stops(storage, seen.record)}
    for ref in storage.traces():
        uri = _uri_in(storage.get(trace_path(ref)))
        yield SavepointTrace(ref, uri, None if uri is None else _is_savepoint(uri, ref), ref in stopped)


def _uri_in(trace: bytes | None) -> str | None:
    try:
        return None if trace is None else checksummed_json.loads(trace)["uri"]
    except (checksummed_json.ChecksumMismatch, KeyError):
        return None


def _is_savepoint(uri: str, ref: CheckpointRef) -> bool | None:
    try:
        return restore.at(uri).ref == ref
    except (restore.NotACheckpoint, DamagedFile):
        return False
    except StorageError:
        return None


def _summarised(storage: CheckpointStorage, seen: Survey, ref: CheckpointRef) -> Summary | Unreadable:
    uri, void_by = storage.uri_of(ref.path), seen.void_by(ref)
    metadata = seen.known.get(ref)
    if metadata is None:
        return Unreadable(ref, uri, seen.unreadable.get(ref, "it was deleted a moment ago"), void_by)
    others = [other for other_ref, other in seen.known.items() if other_ref != ref]
    return summary(metadata, uri, _metadata_size(seen.listing.checkpoints[ref]), others, void_by)


def _metadata_size(entries: Iterable[Entry]) -> int:
    return next(entry.size or 0 for entry in entries if entry.name == METADATA)


def summarise(uri: str) -> Summary:
    """The checkpoint or savepoint at the URI of its own folder.

    Raises:
        NotACheckpoint: there is none.
        DamagedFile: its `_metadata` is damaged.
        StorageError: it can't be read.
    """
    return _summary_of(restore.at(uri))


def describe(uri: str) -> Details:
    """As `summarise`, with all that is in it."""
    point = restore.at(uri)
    return details(point.storage, point.metadata, _summary_of(point))


def _summary_of(point: restore.RestorePoint) -> Summary:
    storage, metadata = point.storage, point.metadata
    if metadata.kind is CheckpointKind.SAVEPOINT:
        (size,) = storage.sizes([METADATA])
        return summary(metadata, storage.uri_of(), size or 0)
    seen = survey(storage)
    found = _summarised(storage, seen, point.ref) if point.ref in seen.listing.checkpoints else None
    if not isinstance(found, Summary):
        raise restore.NotACheckpoint(f"{point.uri} was deleted a moment ago")
    return found
