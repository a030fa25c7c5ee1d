"""Which checkpoint to restore from."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from checkpoint.elements import EdgeName
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.storage import CheckpointStorage, DamagedFile, StorageError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """A checkpoint to restore, with its metadata verified and all its files there in full length."""

    storage: CheckpointStorage
    """Where its file handles lead; not the job's own folder if the checkpoint is another job's."""
    ref: CheckpointRef
    metadata: CheckpointMetadata
    left_out: Mapping[EdgeName, int] = field(default_factory=dict)
    """Records in flight, by edge, that were to be left out: `metadata` doesn't mention them."""

    def ref_in(self, storage: CheckpointStorage) -> CheckpointRef | None:
        """`ref` if the checkpoint lies in `storage` (for `owners.record_restored`)."""
        return self.ref if self.storage.same_folder(storage) else None


def newest(
    storage: CheckpointStorage,
    on_damaged: Literal["fail", "previous"] = "fail",
    known_damaged: Mapping[CheckpointRef, str] | None = None,
    ignore_in_flight: int | None = None,
) -> RestorePoint | None:
    """The newest good checkpoint; `None` if there never was one.

    Args:
        on_damaged: what to do when it is damaged: stop, or go back to the one before, with a warning.
        known_damaged: checkpoints that a subtask found to be damaged when it read their files, and what it said.
        ignore_in_flight: id of a checkpoint whose in-flight data is to be left out, so that it may be damaged.

    Raises:
        DamagedFile: it is damaged, and going back is not allowed or there is nothing to go back to.
        StorageError: the storage can't be read.
    """
    refs = storage.list_checkpoints()
    if not refs:
        record = storage.restore_record()
        if record is not None and record.restored is not None:
            logger.warning(
                "%s: no checkpoint is left, though an earlier run restored %s. The job starts from nothing",
                storage.location,
                record.restored.path,
            )
        return None
    problems: list[str] = []
    for ref in reversed(refs):
        try:
            if known_damaged and ref in known_damaged:
                raise DamagedFile(known_damaged[ref])
            point = _load(storage, ref, ignore_in_flight)
        except DamagedFile as error:
            if on_damaged == "fail":
                raise DamagedFile(_advice(storage, ref, error, [old for old in refs if old < ref])) from error
            problems.append(f"{ref.path}{_triggered(storage, ref)}: {error}")
            continue
        if problems:
            _warn(storage, refs[-1], point, problems)
        return point
    raise DamagedFile(
        f"{storage.location}: every retained checkpoint is damaged, nothing can be restored. {'; '.join(problems)}. "
        'Mend the files, or start without state by start(restore="none")'
    )


def from_uri(uri: str, ignore_in_flight: int | None = None) -> RestorePoint:
    """The checkpoint whose folder (`…/chk-<n>-<epoch>`) is at a URI or an absolute path, void or not.

    Args:
        ignore_in_flight: as in `newest`.

    Raises:
        DamagedFile: it is damaged.
        StorageError: there is no complete checkpoint.
    """
    job_folder, name = _split(uri)
    ref = CheckpointRef.parse(name)
    if ref is None:
        raise StorageError(f"{uri} is no checkpoint: give the URI of a folder chk-<number>-<epoch>")
    storage = CheckpointStorage(job_folder, None)
    if ref not in storage.complete():
        there = ", ".join(other.path for other in storage.complete()) or "none"
        raise StorageError(f"{uri} is no complete checkpoint. Complete ones in {storage.location}: {there}")
    return _load(storage, ref, ignore_in_flight)


def _load(storage: CheckpointStorage, ref: CheckpointRef, ignore_in_flight: int | None) -> RestorePoint:
    metadata = storage.load(ref)
    left_out: dict[EdgeName, int] = {}
    if ref.id == ignore_in_flight:
        left_out = metadata.in_flight_rows()
        metadata = metadata.without_in_flight()
    storage.verify_sizes(metadata.all_files())
    return RestorePoint(storage, ref, metadata, left_out)


def _split(uri: str) -> tuple[str, str]:
    """URI of the parent folder, and the last name."""
    if uri.startswith("/"):
        return posixpath.split(uri.rstrip("/"))
    parts = urlsplit(uri)
    parent, name = posixpath.split(parts.path.rstrip("/"))
    return urlunsplit(parts._replace(path=parent)), name


def _triggered(storage: CheckpointStorage, ref: CheckpointRef) -> str:
    """When a damaged checkpoint was triggered, as far as its metadata can tell."""
    try:
        return f" (triggered {_time(storage.load(ref).trigger_time)})"
    except DamagedFile:
        return ""


def _advice(storage: CheckpointStorage, ref: CheckpointRef, error: DamagedFile, older: list[CheckpointRef]) -> str:
    if older:
        what = (
            f"Mend it, or go back to an older checkpoint ({', '.join(old.path for old in reversed(older))}) "
            'by CheckpointConfig(on_damaged="previous") or start(restore=<URI of its folder>)'
        )
    else:
        what = 'There is no older checkpoint: mend it, or start without state by start(restore="none")'
    return f"{storage.location}: checkpoint {ref.id} can't be restored: {error}. {what}"


def _warn(storage: CheckpointStorage, wanted: CheckpointRef, point: RestorePoint, problems: list[str]) -> None:
    logger.warning(
        "%s: going back from checkpoint %d to %d, triggered %s, since %s damaged: %s",
        storage.location,
        wanted.id,
        point.ref.id,
        _time(point.metadata.trigger_time),
        "one is" if len(problems) == 1 else f"{len(problems)} are",
        "; ".join(problems),
    )


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
