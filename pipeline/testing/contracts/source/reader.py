"""A reader and what a task does with it: polls, emits, takes snapshots, closes. Its rules are those of each call."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from checkpoint.counted import counted
from formats.arrow_rows import rows
from pipeline.testing.contracts.common import ContractBroken, NoMetrics, Watchdog, canonical, wire
from sources.source import End, Source, SourceBatch, SourceContext, SourceReader

POLL_S: Final = 0.01
MOST: Final = 5
"""Records asked for at once: few, so that there are many positions."""
NEVER_WAIT: Final = "wait for at most the timeout given; never for ever"
_THREADS_S: Final = 5.0


@dataclass
class Position:
    """What a snapshot stands for."""

    state: Any
    """As `snapshot` returned it."""
    data: bytes
    """The same, encoded at once."""
    emitted: list[Any]
    """The records in front of it."""
    what: str


@dataclass
class Tape:
    """What was read, in order."""

    values: list[Any] = field(default_factory=list)
    splits: dict[Any, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, values: Sequence[Any], splits: Sequence[Any] | None) -> None:
        self.values.extend(values)
        if splits is not None:
            for value, split in zip(values, splits, strict=True):
                self.splits[canonical(split)].append(canonical(value))

    def prefix(self, length: int) -> Tape:
        """The first records; split by split, too."""
        left = length
        prefix = Tape(self.values[:length])
        counts: dict[str, int] = defaultdict(int)
        for value in prefix.values:
            counts[canonical(value)] += 1
        for split, values in self.splits.items():
            for value in values:
                if left and counts[value]:
                    counts[value] -= 1
                    left -= 1
                    prefix.splits[split].append(value)
        return prefix


class OpenReaders:
    """How many readers are open, and the threads that may be theirs."""

    def __init__(self) -> None:
        self._open = 0
        self._threads: set[threading.Thread] = set()
        """Those that ran before the first of the open readers was made."""

    def opens(self) -> None:
        """A reader is about to be made."""
        if not self._open:
            self._threads = set(threading.enumerate())
        self._open += 1

    def closed(self, reader: str) -> None:
        """Once none is open, the threads of all of them must be gone: whose they are can't be told earlier."""
        self._open -= 1
        if self._open:
            return
        deadline = time.monotonic() + _THREADS_S
        while left := [t for t in threading.enumerate() if t not in self._threads and t.is_alive()]:
            if time.monotonic() > deadline:
                raise ContractBroken(
                    "close-releases",
                    f"threads were running {_THREADS_S:g} s after close() of {reader}, when no reader was open any "
                    f"more: {[t.name for t in left]}",
                    "stop and join them in close()",
                )
            left[0].join(0.1)


class ReaderUnderTest:
    """A reader and what a task would do with it."""

    def __init__(
        self,
        source: Source,
        subtask: int,
        parallelism: int,
        restored: list[Any] | None,
        watchdog: Watchdog,
        open_readers: OpenReaders,
    ) -> None:
        self._watchdog = watchdog
        self._open_readers = open_readers
        open_readers.opens()
        ctx = SourceContext("contract", "source", subtask, parallelism, NoMetrics(), restored, track_splits=True)
        self.reader: SourceReader = self._call(
            "create_reader-returns", "create_reader", lambda: source.create_reader(ctx)
        )
        self.name = f"reader {subtask} of {parallelism}"
        self.tape = Tape()
        """What it has emitted; the batch in progress counts up to `emitted`."""
        self.batch: list[Any] = []
        self.ended = False
        self._batch_splits: list[Any] | None = None
        self.emitted = 0
        self._last_id = 0

    def poll(self, most: int = MOST, timeout: float = POLL_S) -> bool:
        """Emit what is in progress and take the next batch; whether anything came."""
        self.emit_all()
        polled = self._call("poll-returns-in-time", f"poll of {self.name}", lambda: self.reader.poll(most, timeout))
        self.batch, self._batch_splits, self.emitted = [], None, 0
        if self.ended and not isinstance(polled, End):
            raise ContractBroken(
                "end-is-for-ever",
                f"{self.name} returned {type(polled).__name__} from a poll after END",
                "return END from every poll once nothing will ever come; None if something may",
            )
        if isinstance(polled, End):
            self.ended = True
            return False
        if polled is None:
            return False
        batch = self._as_batch(polled)
        values = batch.values if isinstance(batch.values, list) else rows(batch.values)
        if len(values) > most:
            raise ContractBroken(
                "poll-keeps-max-records",
                f"poll(max_records={most}) of {self.name} returned {counted(len(values), 'record')}",
                "return at most max_records; keep the rest for the next poll, behind the position that snapshot tells",
            )
        for name, column in (("timestamps", batch.timestamps), ("context", batch.context)):
            if column is not None and len(column) != len(values):
                self._bad_batch(f"{counted(len(values), 'value')} and {len(column)} {name}")
        wire(values, "batch-is-well-formed", "a record")
        self._batch_splits = self._splits_of(batch, values)
        self.batch = values
        return bool(values)

    def snapshot(self, emitted: int | None = None) -> Position:
        """Emit the first records of the batch in progress (by default all) and take a snapshot, as a barrier does."""
        self.emit(len(self.batch) if emitted is None else emitted)
        self._last_id += 1
        state = self._call("snapshot-returns", "snapshot", lambda: self.reader.snapshot(self._last_id, self.emitted))
        data = wire(state, "snapshot-is-plain", "what snapshot returned")
        emitted_so_far = counted(len(self.tape.values), "record")
        what = f"{self.name} emitted {emitted_so_far}, {self.emitted} of {len(self.batch)} of its batch"
        return Position(state, data, list(self.tape.values), what)

    def emit(self, upto: int) -> None:
        if upto > self.emitted:
            splits = None if self._batch_splits is None else self._batch_splits[self.emitted : upto]
            self.tape.add(self.batch[self.emitted : upto], splits)
            self.emitted = upto

    def emit_all(self) -> None:
        self.emit(len(self.batch))

    def close(self) -> None:
        try:
            self._call("close-releases", "close", self.reader.close)
        except Exception as error:
            raise ContractBroken(
                "close-releases",
                f"close() of {self.name} raised {error!r}",
                "let close() release whatever there is, also before the first poll and after a failure",
            ) from error
        self._open_readers.closed(self.name)

    def _call(self, rule: str, what: str, function: Callable[[], Any]) -> Any:
        return self._watchdog.call(rule, what, NEVER_WAIT, function)

    def _as_batch(self, polled: Any) -> SourceBatch:
        if isinstance(polled, SourceBatch):
            return polled
        if isinstance(polled, list | pa.RecordBatch):
            return SourceBatch(polled)
        raise ContractBroken(
            "batch-is-well-formed",
            f"poll of {self.name} returned a {type(polled).__name__}",
            "return a SourceBatch, a list, a record batch, END or None",
        )

    def _splits_of(self, batch: SourceBatch, values: Sequence[Any]) -> list[Any] | None:
        """What each record was read from; None = the reader has no splits."""
        splits = self._call("splits-are-told", "splits", self.reader.splits)
        if splits is None:
            return None
        if values and batch.splits is None:
            self._bad_splits(f"splits() returned {list(splits)!r:.200}, but a batch doesn't say what it was read from")
        ids = list(batch.splits) if isinstance(batch.splits, list) else [batch.splits] * len(values)
        if len(ids) != len(values):
            self._bad_batch(f"{counted(len(values), 'value')} and {counted(len(ids), 'split')}")
        missing = {canonical(each) for each in ids} - {canonical(each) for each in splits}
        if missing:
            self._bad_splits(f"a batch has records of the splits {sorted(missing)}, splits() only {list(splits)!r}")
        return ids

    def _bad_batch(self, observed: str) -> None:
        raise ContractBroken(
            "batch-is-well-formed", f"a batch has {observed}", "give all columns of a SourceBatch the same length"
        )

    def _bad_splits(self, observed: str) -> None:
        raise ContractBroken(
            "splits-are-told",
            observed,
            "return every split from which records may still come, those of the batch last polled among them, and name "
            "them in SourceBatch.splits; else the watermark passes records, which are then dropped as late",
        )
