"""The checkpoint storage of a job: its checkpoints and owners (see `checkpoint.storage.naming` for their files)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from checkpoint.storage.errors import DamagedFile, StorageError, UnknownFormat
from checkpoint.storage.folder import StorageFolder
from checkpoint.storage.metadata import (
    CheckpointMetadata,
    MetadataError,
    OperatorSnapshot,
    UnsupportedFormat,
    pack_state,
    unpack_state,
)
from checkpoint.storage.naming import METADATA, CheckpointRef, parse_trace
from checkpoint.storage.ownership import Ownership, RestoreRecord

INLINE_STATE_LIMIT: Final = 16 * 1024
"""Bytes of packed state of one step and subtask that stay inline in `_metadata`."""


class CheckpointStorage(StorageFolder):
    """A job's folder with its checkpoints and owners. Stateless, so usable from any thread."""

    def spill(self, snapshot: OperatorSnapshot, path: str) -> OperatorSnapshot:
        """`snapshot` with its state moved to a new file at `path` if it is too large to be inline.

        Raises:
            EncodingError: a value that can't be kept.
            StorageError: the file can't be written.
        """
        packed = pack_state(snapshot.state)
        if len(packed) <= INLINE_STATE_LIMIT:
            return snapshot
        return replace(snapshot, state={}, state_file=self.write_file(path, packed))

    def unspill(self, snapshot: OperatorSnapshot) -> OperatorSnapshot:
        """`snapshot` with its state inline again.

        Raises:
            DamagedFile: the state's file is.
        """
        if snapshot.state_file is None:
            return snapshot
        return replace(snapshot, state=unpack_state(self.read_file(snapshot.state_file)), state_file=None)

    # -- checkpoints ------------------------------------------------------------------------------------------

    def write_metadata(self, checkpoint_id: int, attempt: int, metadata: CheckpointMetadata) -> CheckpointRef:
        """Complete a checkpoint: durable, and found by `list_checkpoints`, once this returns.

        The caller makes sure first that it still owns the job (`fencing.check`).

        Raises:
            StorageError: it could not be written; the checkpoint isn't complete.
        """
        ref = CheckpointRef(checkpoint_id, attempt)
        if metadata.ref != ref:
            raise ValueError(f"metadata of {metadata.ref.path} given for {ref.path}")
        path = f"{ref.path}/{METADATA}"
        with self.explained("write", path):
            self._put(path, metadata.to_bytes())
            # Subtasks may have made the folder on another host, or be about to make its name durable.
            self._files.sync_folder(self._folder)
        return ref

    def list_checkpoints(self) -> list[CheckpointRef]:
        """Complete checkpoints that aren't void (see `checkpoint.storage.ownership`), oldest first.

        Raises:
            DamagedFile: an owner's record is.
        """
        record = self.restore_record()
        return [ref for ref in self.complete() if record is None or not record.voids(ref)]

    def load(self, ref: CheckpointRef) -> CheckpointMetadata:
        """
        Raises:
            DamagedFile: `_metadata` is missing, truncated or altered, or belongs to another checkpoint.
            StorageError: it can't be read, or was written by a version of Weir with another format.
        """
        path = f"{ref.path}/{METADATA}"
        metadata = self._load(path)
        if metadata.ref != ref:
            raise DamagedFile(f"{self.name_of(path)} belongs to {metadata.ref.path}, not here")
        return metadata

    def load_savepoint(self) -> CheckpointMetadata:
        """The metadata of the savepoint (or checkpoint) whose own folder this is.

        Raises:
            DamagedFile, StorageError: as `load`.
        """
        return self._load(METADATA)

    def _load(self, path: str) -> CheckpointMetadata:
        try:
            return CheckpointMetadata.from_bytes(self._read(path))
        except MetadataError as error:
            raise DamagedFile(f"{self.name_of(path)} is damaged: {error}") from error
        except UnsupportedFormat as error:
            raise UnknownFormat(f"{self.name_of(path)} {error}. Restore it with the version that wrote it") from error

    def delete_checkpoint(self, ref: CheckpointRef) -> None:
        """Delete its folder, `_metadata` first, so that what is half deleted is never taken for a checkpoint.

        Also for one that isn't complete, or is gone. Files under `shared/` are not touched. The caller makes sure first
        that it still owns the job (`fencing.check`).
        """
        with self.explained("delete", ref.path):
            self._delete([f"{ref.path}/{METADATA}"])
            self._files.delete_folder(self._absolute(ref.path))

    def largest_id(self) -> int:
        """The largest checkpoint id found, of whatever is complete, not complete or void, savepoints elsewhere
        included; 0 if there is none."""
        return max((ref.id for ref in [*self.folders(), *self.traces()]), default=0)

    def complete(self) -> list[CheckpointRef]:
        """Checkpoints with `_metadata`, void ones too; oldest first."""
        refs = self.folders()
        sizes = self.sizes([f"{ref.path}/{METADATA}" for ref in refs])
        return [ref for ref, size in zip(refs, sizes, strict=True) if size is not None]

    def folders(self) -> list[CheckpointRef]:
        """Every checkpoint's folder, whether it is complete, not complete or void; oldest first."""
        return sorted(ref for name in self.names() if (ref := CheckpointRef.parse(name)))

    def traces(self) -> list[CheckpointRef]:
        """The savepoints that the folder remembers (see `checkpoint.storage.savepoints`), oldest first."""
        return sorted(ref for name in self.names() if (ref := parse_trace(name)))

    # -- owners -----------------------------------------------------------------------------------------------

    def owners(self) -> list[Ownership]:
        """All owners that the folder has files of, oldest attempt first."""
        return sorted(owner for name in self.names() if (owner := Ownership.parse(name)))

    def restore_record(self) -> RestoreRecord | None:
        """What the newest owner with a record restored and builds on; `None` if no owner has recorded it.

        Raises:
            DamagedFile: the record is.
        """
        for _ in range(10):
            names = self.names()
            owners = sorted((owner for name in names if (owner := Ownership.parse(name))), reverse=True)
            path = next((owner.record_path for owner in owners if owner.record_path in names), None)
            if path is None:
                return None
            with self.explained("read", path):
                try:
                    data = self._content(path)
                except FileNotFoundError:  # a newer owner has recorded and cleaned up since
                    continue
            try:
                return RestoreRecord.from_bytes(data)
            except ValueError as error:
                raise DamagedFile(f"{self.name_of(path)} is damaged: {error}") from error
        raise StorageError(f"{self.location} has new owners all the time: is the job started by several drivers?")
