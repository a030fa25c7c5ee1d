"""What a keyed backend gives at a barrier: all of its state, or what has changed since the barrier before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Protocol

from checkpoint.state.contents import ContentNotes, Declared
from checkpoint.state.snapshot_format import Compression, SnapshotFooter
from checkpoint.state.snapshot_writer import FrozenGroup, SnapshotAbandoned, TtlRows, write_snapshot
from checkpoint.storage.handles import FileHandle, StateFile


class NewFile(Protocol):
    """A file of a checkpoint that is being written."""

    def write(self, data: memoryview, /) -> object: ...

    def close(self) -> FileHandle:
        """Make it durable."""

    def abort(self) -> None:
        """Leave nothing behind."""


class FrozenChanges(Protocol):
    """What has changed in a backend between two barriers, as it was at the second one. Used by any thread, one at a
    time."""

    @property
    def over(self) -> Mapping[str, int]:
        """For states with a time to live: entries with stamps up to here are over, and were not seen any more."""

    @property
    def since(self) -> Mapping[str, int]:
        """For the same states: from when on entries count that have no time of their own."""

    @property
    def clocks(self) -> Mapping[str, str]:
        """Which states have a time to live, and by which clock."""

    @property
    def notes(self) -> ContentNotes:
        """What the values are that `batches` has given."""

    def batches(self, older: Sequence[Any]) -> Iterator[Any]:
        """The rows as Arrow batches, as `write_batches` takes them for a file of changes. May be called again.

        Args:
            older: earlier ones of the same backend, oldest first, that could not be written; these rows win over
                theirs.

        Raises:
            EncodingError: a value can't be kept; the message names the operator, the state and the key.
        """

    def release(self) -> None:
        """Nothing more is read from it. May be called again."""


class KeyedSnapshot(ABC):
    """Keyed state as it was when a barrier was taken. Made by the task thread; used by any thread, one at a time."""

    reused_bytes = 0
    """Of `files`: the sizes of those that were there before."""

    @abstractmethod
    def files(self, create: Callable[[str], NewFile], compression: Compression = "lz4") -> list[StateFile]:
        """The files of the checkpoint that hold this state, oldest first; those that are new are written.

        Takes its time and lets the task thread run in between; belongs into a pool.

        Args:
            create: makes a file of this checkpoint only, under a name that is unique within it and the subtask.

        Raises:
            EncodingError: a value can't be kept; the message names the operator, the state and the key.
            SnapshotAbandoned: `release` was called.
            StorageError: a file can't be written.
        """

    @abstractmethod
    def release(self) -> None:
        """Nothing more is read from it: it was written, or its checkpoint is aborted. May be called at any time, and
        again."""


class WholeSnapshot(KeyedSnapshot):
    """All of the state, in one file, which is written once at most."""

    _encoded = False
    """Whether `_groups` has values encoded."""

    def __init__(
        self, operator: str, max_parallelism: int, ttl: Mapping[str, TtlRows], declared: Mapping[str, Declared]
    ) -> None:
        self._operator = operator
        self._max_parallelism = max_parallelism
        self._ttl = ttl
        self._declared = declared
        self._lock = Lock()
        self._writing = False
        self._abandoned = False
        self.released = False
        """Whether the backend may change what this snapshot saw. Only ever turns true."""

    @abstractmethod
    def _groups(self) -> Iterator[FrozenGroup]:
        """What is to be written, by key group. Called once at most."""

    @abstractmethod
    def _free(self) -> None:
        """Nothing is read from it any more."""

    def write(self, sink: Callable[[memoryview], object], compression: Compression = "lz4") -> SnapshotFooter:
        """Write all of the state as one file (see `checkpoint.state.snapshot_format`), piece by piece. A `release`
        meanwhile ends it with `SnapshotAbandoned`.

        Args:
            sink: called with each next piece of the file; may keep it.

        Raises:
            EncodingError, SnapshotAbandoned: as `files`.
        """
        with self._lock:
            if self.released or self._writing:
                raise SnapshotAbandoned(f"this snapshot of {self._operator} was written or released before")
            self._writing = True
        try:
            return write_snapshot(
                self._groups(),
                sink,
                compression,
                operator=self._operator,
                max_parallelism=self._max_parallelism,
                abandoned=lambda: self._abandoned,
                encoded=self._encoded,
                ttl=self._ttl,
                notes=ContentNotes(self._declared),
            )
        finally:
            self._finish()

    def release(self) -> None:
        with self._lock:
            self._abandoned = True
            if not self._writing:
                self._finish()

    def _finish(self) -> None:
        self._free()
        self.released = True

    def files(self, create: Callable[[str], NewFile], compression: Compression = "lz4") -> list[StateFile]:
        file = create("state")
        try:
            self.write(file.write, compression)
            return [StateFile(file.close())]
        except BaseException:
            file.abort()
            raise
