"""From JSON lines to records, piece by piece: what is in memory at once doesn't depend on a file's size."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from checkpoint.counted import counted
from checkpoint.metrics import MetricSink
from formats import value_type
from formats.errors import BadRecord
from formats.json_values import loads, loads_all
from sources.files.folder import Folder
from sources.files.ledger import Split
from sources.files.split_content import Chunk, FormatOptions, SplitContent, explained

log = logging.getLogger(f"weir.{__name__}")

_BLOCK: Final = 1024 * 1024
"""Bytes that are read at once."""
_COMPRESSIONS: Final = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_SHOWN: Final = 200
"""Bytes of a bad line that a message shows."""


@dataclass
class _Lines(Chunk):
    values: list[Any]
    size: int
    rows: Sequence[int]
    lines: list[bytes]
    """All that were looked at: blank and skipped ones, too."""
    offset: int
    row: int
    """Where the first line is in the file."""
    unended: bool
    """The last line has no newline behind it."""

    def position(self, emitted: int) -> tuple[int, int]:
        read = len(self.lines) if emitted >= len(self.rows) else self.rows[emitted] - self.row
        length = sum(map(len, self.lines[:read])) + read - (self.unended and read == len(self.lines))
        return self.offset + length, self.row + read


class JsonLines(SplitContent):
    def __init__(self, folder: Folder, split: Split, options: FormatOptions, metrics: MetricSink) -> None:
        self._path = split.path
        self._options = options
        self._metrics = metrics
        if options.on_bad_record == "skip":
            metrics.count("recordsSkipped", 0)  # as in the runtime's FailedRecords
        self._offset, self._row = split.offset, split.row
        self._lines: list[bytes] = []
        self._next = 0
        typed = options.value_type
        self._load = loads if typed is None else value_type.from_json(typed)
        self._load_all = loads_all if typed is None else value_type.from_json_all(typed)
        self._tail = b""
        self._ended = False
        self._size = split.size
        self._compression = next((c for suffix, c in _COMPRESSIONS.items() if split.path.endswith(suffix)), None)
        with explained(split.path):
            self._stream = _open_lines(folder, split, self._compression)

    def read(self, most: int) -> Chunk | None:
        with explained(self._path):
            while self._next >= len(self._lines) and not self._ended:
                self._fill()
        lines = self._lines[self._next : self._next + most]
        if not lines:
            return None
        self._next += len(lines)
        last = self._ended and self._next >= len(self._lines)
        chunk = self._decode(lines, unended=last and bool(self._tail))
        self._offset, self._row = chunk.position(len(chunk.rows))
        return chunk

    @property
    def whole(self) -> bool:
        return self._compression is None and self._offset >= self._size

    def close(self) -> None:
        self._stream.close()

    def _fill(self) -> None:
        block = self._stream.read(_BLOCK)
        if not block:
            self._ended = True
            self._lines, self._next = ([self._tail] if self._tail else []), 0
            return
        content = self._tail + block
        *self._lines, self._tail = content.split(b"\n")
        self._next = 0
        if len(self._tail) > self._options.max_record_bytes:
            raise BadRecord(
                f"{self._path}: line {self._row + len(self._lines) + 1} has more than "
                f"{counted(self._options.max_record_bytes, 'byte')}: {_shortened(self._tail)}. Is it a file of JSON "
                "lines? Then raise max_record_bytes"
            )

    def _decode(self, lines: list[bytes], unended: bool) -> _Lines:
        size = sum(map(len, lines))
        try:
            values = self._load_all(lines)
            rows: Sequence[int] = range(self._row, self._row + len(lines))
        except ValueError:  # a bad line, or a blank one
            values, rows = self._decode_each(lines)
        return _Lines(values, size, rows, lines, self._offset, self._row, unended)

    def _decode_each(self, lines: list[bytes]) -> tuple[list[Any], list[int]]:
        values: list[Any] = []
        rows: list[int] = []
        for row, line in enumerate(lines, self._row):
            if not line or line.isspace():
                continue
            try:
                values.append(self._load(line))
            except ValueError as error:
                self._bad(row, line, error)
                continue
            rows.append(row)
        return values, rows

    def _bad(self, row: int, line: bytes, error: ValueError) -> None:
        wanted = self._options.value_type
        problem = "is not JSON" if wanted is None else f"does not fit {getattr(wanted, '__qualname__', wanted)}"
        text = f"{self._path}: line {row + 1} {problem} ({error}): {_shortened(line)}"
        if self._options.on_bad_record == "fail":
            raise BadRecord(
                f"{text}. The source stands before the lines read with this one and has lost nothing; correct "
                f"{'format' if wanted is None else 'value_type'}, "
                'or set on_bad_record="skip" to leave such lines out and count them (recordsSkipped)'
            ) from error
        self._metrics.count("recordsSkipped")
        log.warning("skipped a bad record: %s", text)


def _open_lines(folder: Folder, split: Split, compression: str | None) -> pa.NativeFile:
    """Standing at the split's offset."""
    if compression is None:
        file = folder.open(split.path)
        file.seek(split.offset)
        return file
    stream = pa.CompressedInputStream(folder.stream(split.path), compression)
    left = split.offset
    while left:
        skipped = len(stream.read(min(left, _BLOCK)))
        if not skipped:
            raise OSError(f"its content ends before byte {split.offset}, where the checkpoint stands")
        left -= skipped
    return stream


def _shortened(content: bytes) -> str:
    return repr(content) if len(content) <= _SHOWN else f"{content[:_SHOWN]!r}… ({counted(len(content), 'byte')})"
