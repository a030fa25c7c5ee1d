"""Which checkpoints refer to which files under `shared/` (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from checkpoint.counted import counted
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.naming import shared_attempt


class SharedFiles:
    """Counts references, so that a file is deleted with the last checkpoint that refers to it and never before.

    Checkpoints register when acknowledgements arrive, and so before they complete. That is early enough, since a
    subtask that has stopped referring to a file never refers to it again, and names are never used twice: what a
    snapshot on its way refers to is in every checkpoint between the one it comes from and that snapshot.
    """

    def __init__(self) -> None:
        self._files: dict[str, FileHandle] = {}
        """By path: every file that has a user."""
        self._users: dict[str, set[int]] = {}
        """By path: ids of the checkpoints that refer to it; never empty."""
        self._paths: dict[int, set[str]] = {}
        """By checkpoint id: the same, turned around."""

    @classmethod
    def of(cls, checkpoints: Iterable[CheckpointMetadata]) -> SharedFiles:
        """Rebuilt from the retained checkpoints."""
        shared = cls()
        for metadata in checkpoints:
            shared.register(metadata.id, metadata.all_files())
        return shared

    def register(self, checkpoint_id: int, handles: Iterable[FileHandle]) -> None:
        """The checkpoint refers to these files (those that aren't under `shared/` are left out). Adds to what it has.

        Raises:
            ValueError: two different files under one name; nothing is registered.
        """
        handles = {handle for handle in handles if handle.shared}
        by_path: dict[str, FileHandle] = {}
        for handle in handles:
            known = by_path.setdefault(handle.path, self._files.get(handle.path, handle))
            if known != handle:
                raise ValueError(
                    f"{handle.path} has two contents: {counted(known.size, 'byte')} with checksum {known.checksum}, "
                    f"and in checkpoint {checkpoint_id} {counted(handle.size, 'byte')} with checksum {handle.checksum}"
                )
        self._files.update(by_path)
        for path in by_path:
            self._users.setdefault(path, set()).add(checkpoint_id)
        self._paths.setdefault(checkpoint_id, set()).update(by_path)

    def discard(self, checkpoint_id: int) -> list[FileHandle]:
        """A completed checkpoint is deleted: the files that no other checkpoint refers to, to be deleted with it."""
        return self._forget(checkpoint_id)

    def forget(self, checkpoint_id: int) -> None:
        """A checkpoint won't complete. Its files stay: what a sink staged for it joins the next checkpoint."""
        self._forget(checkpoint_id)

    def unused(self, paths: Iterable[str]) -> list[str]:
        """Those of `paths` (all that is under `shared/`) that no checkpoint refers to; without files of the user's.

        Only those of older owners are orphans (see `checkpoint.storage.orphans`): another's name may be in an
        acknowledgement that is on its way.
        """
        return [path for path in paths if path not in self._users and shared_attempt(path) is not None]

    def _forget(self, checkpoint_id: int) -> list[FileHandle]:
        unused = []
        for path in sorted(self._paths.pop(checkpoint_id, ())):
            users = self._users[path]
            users.discard(checkpoint_id)
            if not users:
                del self._users[path]
                unused.append(self._files.pop(path))
        return unused
