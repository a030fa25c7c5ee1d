"""Checkpoint files in memory."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterable, Sequence

import pyarrow as pa

from checkpoint.storage.filesystem import Data, Entry, Files
from checkpoint.storage.opening import IN_PROCESS
from checkpoint.storage.storage import CheckpointStorage


class MemoryFiles(Files):
    """The operations of the checkpoint storage. Folders are there once something is in them."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def copy(self) -> MemoryFiles:
        """What is written into one of both is not in the other one."""
        copy = MemoryFiles()
        copy.content.update(self.content)
        return copy

    def storage(self, pipeline: str) -> CheckpointStorage:
        """These files as the folder of a job."""
        name = f"memory://{uuid.uuid4().hex}"
        IN_PROCESS[name] = self
        try:
            return CheckpointStorage(f"{name}/", pipeline)
        finally:
            del IN_PROCESS[name]

    def make_folder(self, path: str) -> None:
        pass

    def create(self, path: str) -> _Staged:
        return _Staged(self, path)

    def read(self, path: str) -> bytes:
        if path not in self.content:
            raise FileNotFoundError(2, "no such file in memory", path)
        return self.content[path]

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.read(path))

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        return [len(self.content[path]) if path in self.content else None for path in paths]

    def entries(self, folder: str) -> list[Entry]:
        return [Entry(posixpath.basename(path), len(c)) for path, c in self.content.items() if _in(path, folder)]

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.content.pop(path, None)

    def delete_folder(self, path: str) -> None:
        self.delete([name for name in self.content if name.startswith(f"{path}/")])

    def sync_folder(self, path: str) -> None:
        pass

    def same_as(self, other: Files) -> bool:
        return other is self


class _Staged:
    def __init__(self, files: MemoryFiles, path: str) -> None:
        self._files = files
        self._path = path
        self._parts: list[bytes] = []

    def write(self, data: Data) -> None:
        self._parts.append(bytes(memoryview(data)))

    def commit(self) -> None:
        self._files.content[self._path] = b"".join(self._parts)

    def discard(self) -> None:
        self._parts = []


def _in(path: str, folder: str) -> bool:
    return posixpath.dirname(path) == folder
