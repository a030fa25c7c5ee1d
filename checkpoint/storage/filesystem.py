"""Whole, durable files on whatever `pyarrow.fs` reaches: what the checkpoint storage needs of a file system.

Two implementations: `local_files.py` knows fsync and rename, `arrow_files.py` serves object stores and others;
`opening.py` chooses. Paths are absolute, with `/`. Errors are `OSError` (or `pyarrow.ArrowException`); `storage.py`
explains them.
"""

from __future__ import annotations

import logging
import posixpath
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from checkpoint.storage.naming import TEMPORARY

Data: TypeAlias = bytes | bytearray | memoryview | pa.Buffer

_LOG = logging.getLogger(f"weir.{__name__}")


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    size: int | None
    """Bytes; `None` for a folder."""


class OutputFile(Protocol):
    """A file being written, not there before `commit`; but in an object store part of a large one may be there for a
    moment when it is discarded. Only the handle that its writer gets makes it count."""

    def write(self, data: Data) -> None: ...

    def commit(self) -> None:
        """Durable and under its name, whole, once this returns."""

    def discard(self) -> None:
        """Leave nothing behind. Does nothing after `commit` or a first call."""


class Files(ABC):
    """The operations that the checkpoint storage is made of."""

    @abstractmethod
    def make_folder(self, path: str) -> None:
        """With its parents; existing ones are fine."""

    @abstractmethod
    def create(self, path: str) -> OutputFile: ...

    def put(self, path: str, data: bytes) -> None:
        """Write a file whose existence matters: nobody ever sees part of it, whatever happens to this process."""
        file = self.create_whole(path, len(data))
        try:
            file.write(data)
            file.commit()
        except BaseException:
            discard_after_failure(file, path)
            raise

    @abstractmethod
    def read(self, path: str) -> bytes: ...

    @abstractmethod
    def open(self, path: str) -> pa.NativeFile:
        """For random access."""

    @abstractmethod
    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """Size of each file in bytes, `None` for those that don't exist."""

    @abstractmethod
    def entries(self, folder: str) -> list[Entry]:
        """What is in the folder; nothing if it doesn't exist."""

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Those that don't exist are fine. Durable on return where files are deleted in one folder."""

    @abstractmethod
    def delete_folder(self, path: str) -> None:
        """With its content."""

    @abstractmethod
    def sync_folder(self, path: str) -> None:
        """Make names in the folder durable."""

    @abstractmethod
    def same_as(self, other: Files) -> bool:
        """Whether equal paths are the same files in both."""

    def create_whole(self, path: str, size: int) -> OutputFile:
        """A file for `size` bytes of which nobody ever sees part, whatever happens to this process."""
        return self.create(path)


def discard_after_failure(file: OutputFile, path: str) -> None:
    """Discard a file whose writing has failed, which is what the caller has to tell."""
    try:
        file.discard()
    except (OSError, pa.ArrowException) as error:
        _LOG.warning("what was written of %s could not be deleted, the rest is for gc: %s", path, error)


def temporary_path(path: str) -> str:
    """What a file is called that is not whole yet."""
    folder, name = posixpath.split(path)
    return f"{folder}/{TEMPORARY}{uuid.uuid4().hex}-{name}"
