"""Staged segments: an epoch's records as Arrow IPC streams in the checkpoint storage, and back."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from checkpoint import failpoints
from checkpoint.storage.handles import FileHandle
from sinks.kafka.rows import KafkaRows
from sinks.sink import StagedFile, Staging

_FORMAT: Final = b"1"
_BATCH_BYTES: Final = 256 * 1024
"""Of small records it takes six times that, as Python's objects."""
_BATCH_ROWS: Final = 4_096
_HEADERS: Final = pa.map_(pa.string(), pa.binary())
_COLUMNS: Final = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.int64(),
    "key": pa.binary(),
    "headers": _HEADERS,
}


class SegmentStager:
    """Turns rows into sealed segments of at most `limit` bytes (one record may be larger). For one thread.

    Memory: about 256 KiB of records beside what the storage buffers.
    """

    def __init__(self, staging: Staging, hint: str, limit: int, subtask: int) -> None:
        """
        Args:
            hint: becomes part of the files' names.
            limit: bytes of content of one segment.
        """
        self._staging = staging
        self._subtask = subtask
        self._hint = hint
        self._limit = limit
        self._open: _OpenSegment | None = None
        self._sealed: list[tuple[dict[str, int], list[FileHandle]]] = []

    def append(self, rows: KafkaRows) -> None:
        """
        Raises:
            Exception: the storage's; the segments of this epoch are lost then.
        """
        while len(rows):
            segment = self._open
            if segment is None:
                segment = self._open = _OpenSegment(self._staging.create(self._hint), rows)
            room, size = self._limit - segment.size, rows.size
            if size <= room:
                segment.append(rows, size)
                return
            fits = rows.fitting(room)
            if fits == 0 and segment.size == 0:
                fits = 1
            if fits:
                fitting = rows.slice(0, fits)
                segment.append(fitting, fitting.size)
                rows = rows.slice(fits)
            failpoints.hit("sink.before_seal", subtask=self._subtask)
            self._seal()
            failpoints.hit("sink.after_seal", subtask=self._subtask)

    def finish(self) -> list[tuple[dict[str, int], list[FileHandle]]]:
        """Every segment since the last call, durable, in order; payloads are what `segment_bytes` and
        `message_limit` read."""
        self._seal()
        sealed, self._sealed = self._sealed, []
        return sealed

    def close(self) -> None:
        """Drop what is not sealed."""
        if self._open is not None:
            self._open.abort()
            self._open = None

    def _seal(self) -> None:
        if self._open is not None:
            segment, self._open = self._open, None
            self._sealed.append(segment.seal())


class _OpenSegment:
    def __init__(self, file: StagedFile, first: KafkaRows) -> None:
        self.size = 0
        self._file = file
        self._count = 0
        self._message_limit = first.message_limit
        columns = _columns(first)
        metadata = {b"weir.segment": _FORMAT} | ({b"topic": first.topic.encode()} if first.topic is not None else {})
        self._schema = pa.schema(
            [("value", pa.binary()), *((name, _COLUMNS[name]) for name in columns if name != "value")],
            metadata=metadata,
        )
        self._pending: dict[str, list[Any]] = {name: [] for name in columns}
        self._pending_size = 0
        self._stream = pa.ipc.new_stream(
            pa.PythonFile(_Writable(file), mode="w"), self._schema, options=pa.ipc.IpcWriteOptions(compression="lz4")
        )

    def append(self, rows: KafkaRows, size: int) -> None:
        """`size`: that of the rows."""
        for name, column in _columns(rows).items():
            self._pending[name].extend(column)
        self.size += size
        self._count += len(rows)
        self._pending_size += size
        self._message_limit = min(self._message_limit, rows.message_limit)
        if self._pending_size >= _BATCH_BYTES or len(self._pending["value"]) >= _BATCH_ROWS:
            self._flush()

    def seal(self) -> tuple[dict[str, int], list[FileHandle]]:
        try:
            self._flush()
            self._stream.close()
        except BaseException:
            self._file.abort()
            raise
        payload = {"rows": self._count, "bytes": self.size, "message_limit": self._message_limit}
        return payload, [self._file.close()]

    def abort(self) -> None:
        self._file.abort()

    def _flush(self) -> None:
        if self._pending["value"]:
            arrays = [pa.array(self._pending[field.name], field.type) for field in self._schema]
            self._stream.write_batch(pa.record_batch(arrays, schema=self._schema))
            for column in self._pending.values():
                column.clear()
            self._pending_size = 0


class _Writable(io.RawIOBase):
    """A staged file as Arrow wants to see it; closing it leaves the staged file open, which its owner closes."""

    def __init__(self, file: StagedFile) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(data)
        return len(data)


def _columns(rows: KafkaRows) -> dict[str, list[Any]]:
    columns: dict[str, list[Any] | None] = {
        "value": rows.values,
        "topic": rows.topics,
        "partition": rows.partitions,
        "timestamp": rows.timestamps,
        "key": rows.keys,
        "headers": rows.headers,
    }
    return {name: column for name, column in columns.items() if column is not None}


def read_segment(data: bytes) -> Iterator[KafkaRows]:
    """The rows of a segment, in the order they were written, in the pieces that they were written in.

    Raises:
        ValueError: it is of a format that this version doesn't know.
    """
    with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
        metadata = stream.schema.metadata or {}
        if metadata.get(b"weir.segment") != _FORMAT:
            raise ValueError(f"not a segment of a Kafka sink of this version of Weir: {metadata}")
        topic = metadata.get(b"topic")
        names = set(stream.schema.names)
        for batch in stream:
            columns = {name: batch.column(name).to_pylist() for name in names}
            yield KafkaRows(
                topic=topic.decode() if topic is not None else None,
                topics=columns.get("topic"),
                values=columns["value"],
                keys=columns.get("key"),
                partitions=columns.get("partition"),
                timestamps=columns.get("timestamp"),
                headers=columns.get("headers"),
            )
