"""Virtual files: they outlive processes, take time, and fail."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from checkpoint.storage.filesystem import Data, Entry, Files
from virtual.scheduler import Killed, Scheduler


class VirtualFiles(Files):
    """The operations of the checkpoint storage. Each takes time first, in which others go on and the process may die;
    then it happens whole, or fails; of a write that fails nobody knows whether it has happened."""

    def __init__(self, scheduler: Scheduler, fails: Callable[[], float], seconds: float) -> None:
        """
        Args:
            fails: the share of writes that fail, now.
            seconds: what an operation takes in the mean.
        """
        self.content: dict[str, bytes] = {}
        self.happened: Callable[[str], None] = lambda moment: None
        """Told of moments at which a crash is of interest."""
        self._folders: set[str] = set()
        self._scheduler = scheduler
        self._fails = fails
        self.seconds = seconds

    def take_time(self, what: str, path: str) -> None:
        current = self._scheduler.current
        if current is None:
            return
        self._scheduler.pause(self._scheduler.rng.expovariate(1.0) * self.seconds)
        if not current.process.alive:
            raise Killed

    def _write(self, path: str, data: bytes) -> None:
        self.take_time("write", path)
        rng, fails = self._scheduler.rng, self._fails()
        failed = bool(fails) and rng.random() < fails
        if not failed or rng.random() < 0.3:  # an error may come after it has happened
            self.content[path] = data
            if path.endswith("/_metadata"):
                self.happened("durable")
            self._folders.update(_parents(path))
        if failed:
            self._scheduler.log("storage fails", path)
            raise OSError(f"the virtual storage has failed to write {path}")

    def make_folder(self, path: str) -> None:
        self._folders.update((path, *_parents(path)))

    def create(self, path: str) -> _Staged:
        return _Staged(self, path)

    def read(self, path: str) -> bytes:
        self.take_time("read", path)
        if path not in self.content:
            raise FileNotFoundError(2, "no such virtual file", path)
        return self.content[path]

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.read(path))

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        return [len(self.content[path]) if path in self.content else None for path in paths]

    def entries(self, folder: str) -> list[Entry]:
        if folder not in self._folders:
            return []
        prefix = folder + "/"
        files = [path for path in self.content if path.startswith(prefix)]
        found = {name: len(self.content[path]) for path in files if "/" not in (name := path[len(prefix) :])}
        folders = {f[len(prefix) :] for f in self._folders if f.startswith(prefix) and "/" not in f[len(prefix) :]}
        return [*(Entry(name, None) for name in sorted(folders)), *(Entry(n, size) for n, size in found.items())]

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.take_time("delete", path)
            self.content.pop(path, None)

    def delete_folder(self, path: str) -> None:
        self.take_time("delete", path)
        prefix = path + "/"
        for name in [name for name in self.content if name.startswith(prefix)]:
            del self.content[name]
        self._folders -= {folder for folder in self._folders if folder == path or folder.startswith(prefix)}

    def sync_folder(self, path: str) -> None:
        pass

    def same_as(self, other: Files) -> bool:
        return other is self


class _Staged:
    def __init__(self, files: VirtualFiles, path: str) -> None:
        self._files = files
        self._path = path
        self._parts: list[bytes] = []

    def write(self, data: Data) -> None:
        self._parts.append(bytes(memoryview(data)))

    def commit(self) -> None:
        self._files._write(self._path, b"".join(self._parts))

    def discard(self) -> None:
        self._parts = []


def _parents(path: str) -> list[str]:
    found = []
    while (path := posixpath.dirname(path)) not in ("", "/"):
        found.append(path)
    return found
