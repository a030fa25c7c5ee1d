"""The file sink's definition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Final, get_args

import pyarrow as pa

from checkpoint.options import Seconds, flag, folder, named_options, seconds, whole_number
from checkpoint.storage.opening import without_credentials
from sinks.files.committer import FileCommitter, check_restore, not_committed
from sinks.files.encoding import COMPRESSIONS, Format, ParquetRows
from sinks.files.partitions import PartitionBy
from sinks.files.target import Target
from sinks.files.writer import FileWriter, PartOptions
from sinks.sink import Committable, Committer, CommitterContext, Sink, SinkWriter, WriterContext, WriterRestore

_MIB: Final = 1024 * 1024


@named_options
class FileSink(Sink):
    """Writes records to files in a folder, exactly once.

    A file appears, whole, once the checkpoint that covers it is complete; until then its content is in the checkpoint
    storage. Readers have to leave out names that begin with `_` or `.`, as most do.

    Example:
        >>> FileSink("file:///data/totals", format="jsonl", partition_by="country").format
        'jsonl'
    """

    def __init__(
        self,
        uri: str | PurePath,
        format: Format = "parquet",  # noqa: A002
        schema: pa.Schema | None = None,
        partition_by: PartitionBy | None = None,
        compression: str | None = None,
        roll_bytes: int = 128 * _MIB,
        roll_seconds: Seconds | None = None,
        max_open_parts: int = 100,
        round_floats: bool = False,
    ) -> None:
        """
        Args:
            uri: the folder: an absolute local path (text or `pathlib.Path`), or a URI that pyarrow knows
                (`file:///data`, `s3://bucket/data`). A local one must be mounted on every host.
            format: what the files are: "parquet", or "jsonl" (a JSON value a line; a record with something that JSON
                doesn't have, such as NaN, is refused).
            schema: the columns of Parquet files, needed there and only there. A field that a record doesn't have is
                null. A record is refused if it has a field that the schema doesn't have, at any depth, or a value that
                would not be read back equal.
            partition_by: which sub-folder `name=value/` a record goes to: by a field's name, several, or a function of
                the record that returns a dict. Parquet files leave these fields out, since readers take them from the
                folders' names; JSON lines keep them. `None`: all files are in the folder itself.
            compression: of Parquet files "zstd" (the default), "snappy", "gzip", "lz4" or "none"; of JSON lines "none"
                (the default), "gzip" or "zstd", which their names say by `.gz` or `.zst`.
            roll_bytes: a file that has reached this many bytes is ended, and the next record begins another; 128 MiB by
                default. Every file is ended at each checkpoint, whatever its size.
            roll_seconds: a file that is older than so many seconds is ended as well, once the next records come.
                `None`: files are not ended by age.
            max_open_parts: how many files (in several sub-folders) one subtask writes at once, 100 by default. With
                more, the one that got no record for longest is ended.
            round_floats: what happens to a float that a column of float16 or float32 can only hold rounded, such as
                0.1. True: it is rounded. False, the default: the record is refused. One that is too large is always
                refused.

        Raises:
            ValueError: an option has a value that it can't have.
        """
        uri = folder(uri, "totals")
        if format not in get_args(Format):
            raise ValueError(f'format must be "parquet" or "jsonl", not {format!r}')
        if schema is not None and not isinstance(schema, pa.Schema):
            raise ValueError(f"schema must be a pyarrow.Schema, not {schema!r}")
        if format == "parquet" and schema is None:
            raise ValueError(f'Parquet files need schema=pa.schema([("user", pa.string()), …]), not {schema!r}')
        if schema is not None and not schema.names:
            raise ValueError("schema has no fields")
        if format == "jsonl" and schema is not None:
            raise ValueError("JSON lines have no schema; leave schema out")
        allowed = COMPRESSIONS[format]
        if compression is not None and compression not in allowed:
            raise ValueError(f"compression of {format} must be one of {', '.join(allowed)}; not {compression!r}")
        whole_number(roll_bytes, "roll_bytes", 1)
        whole_number(max_open_parts, "max_open_parts", 1)
        _check_partition_by(partition_by, schema)
        flag(round_floats, "round_floats")
        if schema is not None:
            ParquetRows(schema)  # which checks its types
        self.uri = uri
        self.format: Format = format
        self.needs_checkpoints = True
        self._parts = PartOptions(
            format=format,
            compression=compression or allowed[0],
            schema=schema,
            partition_by=partition_by,
            roll_bytes=roll_bytes,
            roll_seconds=None if roll_seconds is None else seconds(roll_seconds, "roll_seconds", 0.001),
            max_open_parts=max_open_parts,
            round_floats=round_floats,
        )

    def __repr__(self) -> str:
        return f"FileSink({without_credentials(self.uri)!r}, format={self.format!r})"

    def validate(self) -> None:
        """Make the folder and see that it can be written to.

        Raises:
            TargetUnavailable: it can't.
        """
        Target(self.uri).probe()

    def create_writer(self, ctx: WriterContext) -> SinkWriter:
        return FileWriter(self._parts, ctx)

    def create_committer(self, ctx: CommitterContext) -> Committer:
        return FileCommitter(self.uri, ctx)

    def check_restore(self, restore: WriterRestore) -> None:
        """
        Raises:
            OutputAhead, EarlierOutput, MarkerLost: the writer's marker doesn't fit the checkpoint.
        """
        check_restore(self.uri, restore)

    def uncommitted(
        self, pipeline: str, sink_id: str, writer: int, state: Any, committables: Sequence[Committable]
    ) -> Sequence[Committable]:
        """By the writer's marker; all of them where it can't be read."""
        return not_committed(self.uri, pipeline, sink_id, writer, state, committables)


def _check_partition_by(partition_by: Any, schema: pa.Schema | None) -> None:
    if partition_by is None or callable(partition_by):
        return
    names = [partition_by] if isinstance(partition_by, str) else partition_by
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(
            f"partition_by must be a field's name, several, or a function of the record, not {partition_by!r}"
        )
    if schema is not None and not set(schema.names) - set(names):
        raise ValueError("partition_by leaves no field of the schema for the files; add one to the schema")
