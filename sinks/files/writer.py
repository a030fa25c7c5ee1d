"""Sorts records into parts, and hands the parts of an epoch over at its barrier."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from checkpoint import failpoints
from checkpoint.storage.handles import FileHandle
from sinks.files.encoding import (
    Format,
    JsonLines,
    Parquet,
    ParquetRows,
    PartEncoder,
    Rows,
    json_lines,
    pick,
    suffix,
)
from sinks.files.errors import RecordRefused
from sinks.files.partitions import PartitionBy, fields_of, folder_of, names_in
from sinks.files.staged import StagedPart
from sinks.sink import SinkBatch, SinkWriter, WriterContext

_BUFFER_BYTES: Final = 64 * 1024 * 1024
"""Records in memory, over all parts that are open."""


@dataclass(frozen=True)
class PartOptions:
    """What parts are like; see `FileSink`."""

    format: Format
    compression: str
    schema: pa.Schema
    """`None` for JSON lines."""
    partition_by: PartitionBy | None
    roll_bytes: int
    roll_seconds: float | None
    max_open_parts: int
    round_floats: bool = False


@dataclass
class _OpenPart:
    folder: str
    staged: StagedPart
    encoder: PartEncoder
    opened_at: float


class FileWriter(SinkWriter):
    """No part is carried over a barrier: what a checkpoint covers is whole files."""

    def __init__(self, options: PartOptions, ctx: WriterContext, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._ctx = ctx
        self._clock = clock
        partition_by = options.partition_by
        self._folder = folder_of(partition_by, options.schema is not None) if partition_by is not None else None
        self._rows: ParquetRows | None = None
        if options.schema is not None:
            # What is in the folders' names is left out of Parquet files, as readers expect it (Hive, Spark, Arrow).
            in_folders = () if partition_by is None or callable(partition_by) else fields_of(partition_by)
            self._rows = ParquetRows(options.schema, in_folders, options.round_floats)
        self._open: dict[str, _OpenPart] = {}
        """By folder, the one written to last at the end."""
        self._sealed: list[tuple[str, dict[str, int], list[FileHandle]]] = []
        self._id = uuid.uuid4().hex[:12]
        """Part of the names, since ids of checkpoints that never completed may be given again."""

    def write_batch(self, batch: SinkBatch) -> None:
        """
        Raises:
            RecordRefused: a record can't be written.
            StorageError: the checkpoint storage doesn't take it.
        """
        rows = self._encode(batch.values)
        if self._folder is None:
            self._append("", rows)
        else:
            by_folder: dict[str, list[int]] = {}
            for i, folder in enumerate(map(self._folder, batch.values)):
                by_folder.setdefault(folder, []).append(i)
            for folder, indices in by_folder.items():
                self._append(folder, rows if len(indices) == len(rows) else pick(rows, indices))
        self._keep_limits()

    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        failpoints.hit("files.before_flush", subtask=self._ctx.subtask)
        for part in list(self._open.values()):
            self._seal(part)
        sealed, self._sealed = self._sealed, []
        prepared = []
        for index, (folder, payload, files) in enumerate(sealed):
            # Ordered by name they are ordered by checkpoint.
            name = f"part-{checkpoint_id:08d}-{self._ctx.subtask:04d}-{index:04d}-{self._id}"
            name += suffix(self._options.format, self._options.compression)
            prepared.append(({"path": f"{folder}/{name}" if folder else name, **payload}, files))
        failpoints.hit("files.after_flush", subtask=self._ctx.subtask)
        return prepared

    def close(self) -> None:
        for part in self._open.values():
            part.staged.abort()
        self._open.clear()

    def _encode(self, values: Sequence[Any]) -> Rows:
        return json_lines(values) if self._rows is None else self._rows(values)

    def _append(self, folder: str, rows: Rows) -> None:
        taken = 0
        while taken < len(rows):
            part = self._open.pop(folder, None) or self._new_part(folder)
            self._open[folder] = part
            left = rows[taken:] if isinstance(rows, list) else rows.slice(taken)
            taken += part.encoder.append(left, self._options.roll_bytes)
            if part.encoder.size >= self._options.roll_bytes:
                self._seal(part)

    def _new_part(self, folder: str) -> _OpenPart:
        options = self._options
        staged = StagedPart(self._ctx.staging, f"{self._ctx.sink_id}-{self._ctx.subtask}")
        encoder: PartEncoder
        if self._rows is not None:
            self._check_names(folder, self._rows.schema)
            encoder = Parquet(staged, options.compression, self._rows.schema)
        else:
            encoder = JsonLines(staged, options.compression)
        return _OpenPart(folder, staged, encoder, self._clock())

    def _check_names(self, folder: str, schema: pa.Schema) -> None:
        there = [name for name in names_in(folder) if name in schema.names]
        if there:
            raise RecordRefused(
                f"partition_by gives folders for {', '.join(there)}, which the schema has as a field, too: readers "
                "would see one of the two only. Give the folders another name"
            )

    def _keep_limits(self) -> None:
        while len(self._open) > self._options.max_open_parts:
            self._seal(next(iter(self._open.values())))
        while sum(part.encoder.buffered for part in self._open.values()) > _BUFFER_BYTES:
            max(self._open.values(), key=lambda part: part.encoder.buffered).encoder.flush()
        if self._options.roll_seconds is not None:
            due = self._clock() - self._options.roll_seconds
            for part in [part for part in self._open.values() if part.opened_at <= due]:
                self._seal(part)

    def _seal(self, part: _OpenPart) -> None:
        part.encoder.finish()
        files = part.staged.seal()
        del self._open[part.folder]
        self._sealed.append((part.folder, {"rows": part.encoder.rows, "bytes": part.staged.size}, files))
