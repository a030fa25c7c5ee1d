"""What a split of a file source consists of while it is read: its content in chunks, and the place of each record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, overload

import pyarrow as pa

from sources.files.errors import FolderUnavailable

Format = Literal["parquet", "jsonl"]


@dataclass(frozen=True)
class FormatOptions:
    """How files become records; see `FileSource`."""

    format: Format
    schema: pa.Schema | None
    columns: tuple[str, ...] | None
    on_bad_record: Literal["fail", "skip"]
    max_record_bytes: int
    allow_truncated_timestamps: bool = False
    value_type: Any = None
    """What JSON lines are turned into; `None`: they stay what they hold."""


class FileRow:
    """What an operator behind the source sees of one record besides its value."""

    __slots__ = ("file", "file_row")

    def __init__(self, file: str, file_row: int) -> None:
        self.file = file
        """Path relative to the source's folder."""
        self.file_row = file_row
        """Row of a Parquet file, or line, from 0."""


class FileRows(Sequence[FileRow]):
    """One context a record, made when it is looked at."""

    __slots__ = ("_file", "_rows")

    def __init__(self, file: str, rows: Sequence[int]) -> None:
        self._file = file
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> FileRow: ...
    @overload
    def __getitem__(self, index: slice) -> FileRows: ...
    def __getitem__(self, index: int | slice) -> FileRow | FileRows:
        if isinstance(index, slice):
            return FileRows(self._file, self._rows[index])
        return FileRow(self._file, self._rows[index])


class Chunk(ABC):
    """Some records of a split, and the positions within."""

    values: list[Any] | pa.RecordBatch
    size: int
    """Bytes, about."""
    rows: Sequence[int]
    """Where each record is in the file: its row or line, from 0."""

    @abstractmethod
    def position(self, emitted: int) -> tuple[int, int]:
        """`Split.offset` and `Split.row` after the first `emitted` records."""


class SplitContent(ABC):
    """A split that is open."""

    @abstractmethod
    def read(self, most: int) -> Chunk | None:
        """The next records, at most `most` (none at all if all were bad); `None` at the end.

        Raises:
            BadRecord: by `on_bad_record`.
            FolderUnavailable: the file can't be read, or is damaged.
        """

    @property
    @abstractmethod
    def whole(self) -> bool:
        """Once `read` has said that this is the end: whether it is the end of the file as it was found, for certain."""

    @abstractmethod
    def close(self) -> None: ...


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Errors of reading a file become a `FolderUnavailable` that names it and says what to do."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        truncated = "Casting from timestamp" in str(error) and "lose data" in str(error)
        advice = (
            "Python has no nanoseconds; FileSource(…, allow_truncated_timestamps=True) cuts them off"
            if truncated
            else "Is it whole, and of the source's format?"
        )
        raise FolderUnavailable(f"cannot read {path}: {error}. {advice}") from error
