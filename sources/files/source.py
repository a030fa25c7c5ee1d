"""The definition of a file source."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, Literal, get_args

import pyarrow as pa

import formats.value_type
from checkpoint.options import Seconds, flag, folder, limit, named_options, seconds, whole_number
from checkpoint.storage.opening import without_credentials
from sources.files.folder import Folder, FoundFile
from sources.files.ledger import Order
from sources.files.reader import FileReader, ReaderOptions
from sources.files.split_content import Format, FormatOptions
from sources.rate_limit import check_rate
from sources.source import Source, SourceContext, SourceReader, T

log = logging.getLogger(f"weir.{__name__}")

_MIB: Final = 1024 * 1024


@named_options
class FileSource(Source[T]):
    """Reads the files of a folder and its sub-folders. Records are dicts; of JSON lines, whatever a line holds.

    Without `discovery_interval` the source ends after the files that are there when the job starts. A restart, and a
    later start from a checkpoint, read what is new. With it, the source goes on looking for files. Files and folders
    whose names begin with `_` or `.` are hidden. Files must be whole when they appear, and must never change.

    Every subtask lists the folder and reads its own files one after the other; a hash of the path says whose a file is.
    Positions in files are part of the checkpoints. `ctx.file` and `ctx.file_row` say where a record comes from, in
    steps that are chained to the source.

    Args:
        uri: the folder, or one file: an absolute local path (text or `pathlib.Path`), or a URI that pyarrow knows
            (`file:///data`, `s3://bucket/data`). Local ones must be mounted on every host.
        format: `"parquet"` (the default) or `"jsonl"`. JSON lines are decompressed if the name of their file ends in
            `.gz`, `.zst` or `.bz2`.
        pattern: a glob for names of files (`"*.parquet"`) or, with a `/`, for paths below the folder
            (`"2026/*.parquet"`). `None` (the default): all files.
        schema: for Parquet, the fields that records have. Columns are cast to its types, and those that a file lacks
            are null. `None` (the default): each file's own fields.
        columns: for Parquet, the names of the columns to read. `None` (the default): all. Folders called `name=value`
            give columns of text, too, unless a file has a column of that name.
        order: which file a subtask reads first: by `"name"` (the default, its path), or by `"mtime"` (its time of
            modification, then its path).
        discovery_interval: seconds between two looks for new files. `None` (the default): the source is bounded.
        split_bytes: Parquet files with more bytes than this are read in parts of whole row groups, by several subtasks;
            128 MiB by default. The first checkpoint fixes it.
        value_type: for JSON lines, what each one is turned into: a dataclass, `msgspec.Struct`, `TypedDict` or pydantic
            model. A line that doesn't fit is a bad record. `None` (the default): it stays what it holds.
        on_bad_record: what to do with a line that is not JSON, or doesn't fit `value_type`. `"fail"` (the default): the
            job fails. `"skip"`: leave it out and count it (`recordsSkipped`).
        on_data_loss: what to do when a file that was to be read is gone. `"fail"` (the default): the job fails.
            `"skip"`: go on without it, with a warning.
        max_record_bytes: a line with more bytes than this is an error; 16 MiB by default.
        active_backpressure: whether the source gate may stop this source before a checkpoint spans too much; `True` by
            default.
        span_window: whether the gate also learns how many records a checkpoint may span; `True` by default (see
            docs/backpressure.md).
        max_span_records: the most records between two barriers of one subtask; `None` (the default): no limit.
        max_span_bytes: the most bytes between two barriers of one subtask; `None` (the default): no limit.
        rate_limit: the most records per second that the whole source emits; each subtask has an equal share. `None`
            (the default): no limit.
        allow_truncated_timestamps: whether timestamps of Parquet files may lose their nanoseconds, which Python doesn't
            have, or what is finer than the type in `schema`. `False` by default: a file with such a timestamp is an
            error.

    Raises:
        ValueError: an option has a value that it can't have.
    """

    def __init__(
        self,
        uri: str | PurePath,
        format: Format = "parquet",  # noqa: A002
        pattern: str | None = None,
        schema: pa.Schema | None = None,
        columns: Sequence[str] | None = None,
        order: Order = "name",
        discovery_interval: Seconds | None = None,
        split_bytes: int = 128 * _MIB,
        on_bad_record: Literal["fail", "skip"] = "fail",
        on_data_loss: Literal["fail", "skip"] = "fail",
        max_record_bytes: int = 16 * _MIB,
        active_backpressure: bool = True,
        span_window: bool = True,
        max_span_records: int | None = None,
        max_span_bytes: int | None = None,
        rate_limit: float | None = None,
        allow_truncated_timestamps: bool = False,
        value_type: type[T] | None = None,
    ) -> None:
        uri = folder(uri, "orders")
        for name, value, choices in (
            ("format", format, get_args(Format)),
            ("order", order, get_args(Order)),
            ("on_bad_record", on_bad_record, ("fail", "skip")),
            ("on_data_loss", on_data_loss, ("fail", "skip")),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; not {value!r}")
        if pattern is not None and (not isinstance(pattern, str) or not pattern):
            raise ValueError(f'pattern must be a glob such as "*.parquet", not {pattern!r}')
        if format == "jsonl" and (schema is not None or columns is not None):
            raise ValueError("schema and columns are for Parquet files; JSON lines hold what they hold")
        if value_type is not None:
            if format != "jsonl":
                raise ValueError(
                    "value_type is for JSON lines; make instances of a Parquet file's rows in a step, such as "
                    ".map(lambda row: Order(**row))"
                )
            formats.value_type.check(value_type)
        if schema is not None and not isinstance(schema, pa.Schema):
            raise ValueError(f"schema must be a pyarrow.Schema, not {schema!r}")
        if columns is not None and (not _are_names(columns) or schema is not None):
            raise ValueError(f"columns must be a list of names, without schema; not {columns!r}")
        for name, number in (("split_bytes", split_bytes), ("max_record_bytes", max_record_bytes)):
            whole_number(number, name, 1)
        for name, switch in (
            ("active_backpressure", active_backpressure),
            ("span_window", span_window),
            ("allow_truncated_timestamps", allow_truncated_timestamps),
        ):
            flag(switch, name)
        limit(max_span_records, "max_span_records")
        limit(max_span_bytes, "max_span_bytes")
        interval = None
        if discovery_interval is not None:
            interval = seconds(discovery_interval, "discovery_interval", 0.01)
        self.options = ReaderOptions(
            uri=uri,
            pattern=pattern,
            format=FormatOptions(
                format,
                schema,
                None if columns is None else tuple(columns),
                on_bad_record,
                max_record_bytes,
                allow_truncated_timestamps,
                value_type,
            ),
            order=order,
            discovery_interval=interval,
            split_bytes=split_bytes,
            rate_limit=check_rate(rate_limit, "rate_limit"),
            on_data_loss=on_data_loss,
        )
        self.active_backpressure = active_backpressure
        self.span_window = span_window
        self.fresh_records = format == "jsonl"
        self.max_span_records = max_span_records
        self.max_span_bytes = max_span_bytes
        self.bounded = interval is None
        self._fixed: tuple[FoundFile, ...] | None = None
        """What a start without restore reads, once `resolve` has looked."""

    def __repr__(self) -> str:
        return f"FileSource({without_credentials(self.options.uri)!r}, format={self.options.format.format!r})"

    def validate(self) -> None:
        """Check that the folder is there.

        Raises:
            FolderUnavailable: it can't be reached.
            ValueError: it doesn't exist.
        """
        if not Folder(self.options.uri).exists():
            raise ValueError(f"{self.options.uri}, which the file source is to read, doesn't exist")

    def resolve(self) -> Source:
        """Settle which files are read, so that all subtasks and attempts see the same.

        Raises:
            FolderUnavailable: the folder can't be listed.
        """
        return self._reading(Folder(self.options.uri, self.options.pattern).files())

    def resolution(self, resolved: Source) -> Any:
        assert isinstance(resolved, FileSource)
        return [[file.path, file.size, file.modified] for file in resolved._fixed or ()]

    def with_resolution(self, resolution: Any) -> Source:
        """Reads what an earlier start has found, and what is new. A file that has gone is missed (`on_data_loss`), one
        that has changed is read as it is now, with a warning.

        Raises:
            FolderUnavailable: the folder can't be listed.
        """
        found = {path: FoundFile(path, size, modified) for path, size, modified in resolution}
        for file in Folder(self.options.uri, self.options.pattern).files():
            if found.get(file.path, file) != file:
                log.warning(
                    "%s in %s has changed since the job's first start, which may have read it: it is read as it is now",
                    file.path,
                    self.options.uri,
                )
            found[file.path] = file
        return self._reading(found.values())

    def start_settings(self) -> Mapping[str, Any]:
        return {"uri": self.options.uri, "pattern": self.options.pattern}

    def _reading(self, files: Iterable[FoundFile]) -> FileSource:
        resolved = copy.copy(self)
        resolved._fixed = tuple(files)
        return resolved

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        return FileReader(self.options, ctx, self._fixed)


def _are_names(columns: object) -> bool:
    return isinstance(columns, list | tuple) and bool(columns) and all(isinstance(one, str) for one in columns)
