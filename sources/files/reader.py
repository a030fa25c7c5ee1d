"""Reads the files of one subtask, one after the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from formats.errors import BadRecord
from sources.files.discovery import FileDiscovery
from sources.files.errors import FileChanged, FileGone
from sources.files.folder import Folder, FoundFile
from sources.files.json_lines import JsonLines
from sources.files.ledger import Ledger, Order, Split
from sources.files.parquet_rows import ParquetRows
from sources.files.split_content import Chunk, FileRows, FormatOptions, SplitContent
from sources.rate_limit import RateLimit, admit
from sources.source import END, End, SourceBatch, SourceContext, SourceReader

log = logging.getLogger(f"weir.{__name__}")


@dataclass(frozen=True)
class ReaderOptions:
    """See `FileSource`."""

    uri: str
    pattern: str | None
    format: FormatOptions
    order: Order
    discovery_interval: float | None
    split_bytes: int
    rate_limit: float | None
    on_data_loss: Literal["fail", "skip"]


class FileReader(SourceReader):
    def __init__(self, options: ReaderOptions, ctx: SourceContext, fixed: Sequence[FoundFile] | None) -> None:
        """
        Args:
            fixed: the files to be read at a start without restore, if that is settled; `None` = those that are there.

        Raises:
            FolderUnavailable: the folder can't be listed.
            FileChanged: a file that was read, or begun, is another now.
            FileGone: a file that was to be read isn't there (`on_data_loss`).
        """
        self._options = options
        self._ctx = ctx
        self._folder = Folder(options.uri, options.pattern)
        split_bytes = options.split_bytes if options.format.format == "parquet" else None
        self._ledger = Ledger(ctx.subtask, ctx.parallelism, split_bytes, options.order)
        self._split: Split | None = None
        """The one being read, as known before the batch last polled."""
        self._content: SplitContent | None = None
        self._chunk: Chunk | None = None
        """The batch last polled."""
        self._paused = False
        self._begin(fixed)
        self._discovery: FileDiscovery | None = None
        if options.discovery_interval is not None:
            self._discovery = FileDiscovery(self._folder, options.discovery_interval, self._ledger.unknown)
        self._limit: RateLimit | None = None
        if options.rate_limit is not None:
            self._limit = RateLimit(options.rate_limit / ctx.parallelism, time.monotonic())

    def poll(self, max_records: int, timeout: float) -> SourceBatch | End | None:
        self._settle_chunk()
        if self._discovery is not None:
            self._ledger.add(self._discovery.found())
        if self._paused:
            time.sleep(timeout)
            return None
        if (max_records := admit(self._limit, max_records, timeout)) < 1:
            return None
        if self._content is None and not self._open_next():
            if self._discovery is None:
                return END
            time.sleep(timeout)
            return None
        return self._read(max_records)

    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        return self._ledger.snapshot(self._position(emitted))

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def close(self) -> None:
        if self._discovery is not None:
            self._discovery.stop()
        if self._content is not None:
            self._content.close()
            self._content = None

    # -- files --------------------------------------------------------------------------------------------------------

    def _begin(self, fixed: Sequence[FoundFile] | None) -> None:
        ctx, ledger = self._ctx, self._ledger
        if not ctx.restored:
            ledger.add(ledger.unknown(self._folder.files() if fixed is None else fixed))
            return
        ledger.restore(ctx.restored, ctx.source_id)
        files = self._folder.files()
        there = {file.path: file for file in files}
        for split in ledger.open_splits:
            self._check(split, there.get(split.path))
        ledger.add(ledger.unknown(files))

    def _open_next(self) -> bool:
        """Whether something was left to be read."""
        split = self._ledger.next()
        if split is None:
            return False
        now = self._folder.look(split.path)
        if not self._check(split, now):
            self._ledger.drop(split)
            return True
        self._content = self._open(split)
        self._split = split
        return True

    def _open(self, split: Split) -> SplitContent:
        options, ledger = self._options.format, self._ledger
        if options.format == "jsonl":
            return JsonLines(self._folder, split, options, self._ctx.metrics)
        return ParquetRows(self._folder, split, ledger.parts_of(split.size), ledger.split_bytes or 1, options)

    def _check(self, split: Split, now: FoundFile | None) -> bool:
        """Compare a file that is not read wholly with what is there; whether it can be read.

        Raises:
            FileChanged: it is another.
            FileGone: it isn't there (`on_data_loss`).
        """
        if now is None:
            read = "part" if split.begun else "nothing"
            text = f"{split.path} is gone from {self._options.uri}, and {read} of it was read"
            if self._options.on_data_loss == "fail":
                raise FileGone(
                    f'{text}. Put it back; FileSource(on_data_loss="skip") goes on without what is left of it'
                )
            log.warning("source %s: %s; going on without the rest, as on_data_loss says", self._ctx.source_id, text)
            return False
        if now == split.file:
            return True
        if split.begun or self._ledger.parts_of(split.size) > 1 or self._ledger.parts_of(now.size) > 1:
            self._changed(split, now)
        split.size, split.modified = now.size, now.modified
        return True

    def _changed(self, split: Split, now: FoundFile) -> None:
        raise FileChanged(
            f"{split.path} in {self._options.uri} has changed while it was being read: it had {split.file.version}, "
            f"and has {now.version}. Files must be whole when they appear, and must not be changed: write them under a "
            "name that begins with _ or . and rename them. Put the old content back, or start without restoring"
        )

    # -- records ------------------------------------------------------------------------------------------------------

    def _read(self, max_records: int) -> SourceBatch | None:
        content, split = self._content, self._split
        if content is None or split is None:
            return None  # it wasn't there
        try:
            chunk = content.read(max_records)
        except BadRecord:
            # A file that was cut off has half a line at its end.
            now = self._folder.look(split.path)
            if now is None:
                self._end(content, split)
                return None
            if now != split.file:
                self._changed(split, now)
            raise
        if chunk is None:
            self._end(content, split)
            return None
        self._chunk = chunk
        if not chunk.rows:
            return None
        if self._limit is not None:
            self._limit.take(len(chunk.rows))
        return SourceBatch(chunk.values, size=chunk.size, context=FileRows(split.path, chunk.rows))

    def _end(self, content: SplitContent, split: Split) -> None:
        content.close()
        self._content = self._split = None
        now = self._folder.look(split.path)
        if now is not None and now != split.file:
            self._changed(split, now)
        if now is None and not content.whole:
            # One that was emptied and removed looks as if it ended here.
            self._check(split, None)
        self._ledger.finish(split)

    def _settle_chunk(self) -> None:
        """The batch last polled is wholly emitted."""
        split = self._position(len(self._chunk.rows) if self._chunk is not None else 0)
        if split is not None and self._split is not None:
            self._split.offset, self._split.row = split.offset, split.row
        self._chunk = None

    def _position(self, emitted: int) -> Split | None:
        split, chunk = self._split, self._chunk
        if split is None or chunk is None:
            return split
        offset, row = chunk.position(emitted)
        return replace(split, offset=offset, row=row)
