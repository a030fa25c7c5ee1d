"""The folder that a file sink writes to."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from checkpoint.storage.filesystem import discard_after_failure
from checkpoint.storage.naming import TEMPORARY, encode
from checkpoint.storage.opening import open_files, without_credentials
from sinks.files.errors import TargetUnavailable
from sinks.files.marker import Marker

FOLDER: Final = "_weir"
"""Has the markers; hidden from readers, as everything that begins with `_` or `.` is."""


def writer_name(pipeline: str, sink_id: str, writer: int) -> str:
    """Begins the names of a writer's markers. `encode` never gives a comma."""
    return f"{encode(pipeline)},{encode(sink_id)},{writer}"


class Target:
    """Files appear in it whole: local ones by a rename, small objects by one put, large ones by a copy of what was
    uploaded under a hidden name.

    Raises:
        TargetUnavailable: no such kind of storage, or it can't be reached.
    """

    def __init__(self, uri: str) -> None:
        self.uri = without_credentials(uri)
        with self._explained("open"):
            self._files, root = open_files(uri)
        self._root = root.rstrip("/")

    def probe(self) -> None:
        """See that it can be written to; makes the folder.

        Raises:
            TargetUnavailable: it can't.
        """
        path = self._path(f"{FOLDER}/probe-{uuid.uuid4().hex}")
        with self._explained("write"):
            self._files.make_folder(self._path(FOLDER))
            self._files.put(path, b"")
            self._files.delete([path])

    def holds(self, path: str, size: int) -> bool:
        """Whether the file is there."""
        with self._explained("read"):
            return self._files.sizes([self._path(path)]) == [size]

    def publish(self, path: str, size: int, content: Iterable[bytes], before_rename: Callable[[], None]) -> None:
        """Write a file of `size` bytes that appears whole, durably.

        Raises:
            TargetUnavailable: it can't be written; nothing is left.
            Exception: what reading `content` raised.
        """
        full = self._path(path)
        with self._explained("write"):
            file = self._files.create_whole(full, size)
        try:
            for data in content:
                with self._explained("write"):
                    file.write(data)
            before_rename()
            with self._explained("write"):
                file.commit()
        except BaseException:
            discard_after_failure(file, full)
            raise

    def remove_leftovers(self, paths: Iterable[str]) -> None:
        """Delete what a killed process has left of files that were about to appear."""
        folders: dict[str, set[str]] = {}
        for path in paths:
            folder, name = posixpath.split(self._path(path))
            folders.setdefault(folder, set()).add(name)
        with self._explained("clean up"):
            for folder, names in folders.items():
                found = [entry.name for entry in self._files.entries(folder)]
                left = [name for name in found if name.startswith(TEMPORARY) and _whole(name) in names]
                self._files.delete([f"{folder}/{name}" for name in left])

    # -- markers ------------------------------------------------------------------------------------------------------

    def markers(self, writer: str) -> list[Marker]:
        """All that lie there of a writer: that of its last committer as a rule, and older ones."""
        folder = self._path(FOLDER)
        found = []
        with self._explained("read"):
            for entry in self._files.entries(folder):
                if entry.name.startswith(f"{writer}."):
                    try:
                        data = self._files.read(f"{folder}/{entry.name}")
                    except FileNotFoundError:  # a newer committer has replaced it
                        continue
                    found.append(Marker.from_bytes(f"{folder}/{entry.name}", data))
        return found

    def write_marker(self, writer: str, committer: str, marker: Marker) -> None:
        """Durably.

        Args:
            committer: its id. Each committer has its own file, so that one that was replaced overwrites nothing.
        """
        with self._explained("write"):
            self._files.make_folder(self._path(FOLDER))
            self._files.put(self._path(f"{FOLDER}/{writer}.{committer}"), marker.to_bytes())

    def delete_other_markers(self, writer: str, committer: str) -> None:
        folder = self._path(FOLDER)
        with self._explained("clean up"):
            names = [entry.name for entry in self._files.entries(folder)]
            old = [name for name in names if _whole(name).startswith(f"{writer}.") and name != f"{writer}.{committer}"]
            self._files.delete([f"{folder}/{name}" for name in old])

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise TargetUnavailable(f"cannot {what} the file sink's folder {self.uri}: {error}") from error


def _whole(name: str) -> str:
    """What a file will be called that is not whole yet: `.tmp-<32 digits>-<name>`."""
    return name[len(TEMPORARY) + 33 :] if name.startswith(TEMPORARY) else name
