"""Sources, operators and a sink that note what happens to each record when a job is restored at another parallelism."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import (
    BroadcastState,
    KeyedOperator,
    Operator,
    ValueState,
)
from pipeline.testing import TestingSink
from sources import END, Source, SourceBatch, SourceContext, SourceReader

PARTITIONS = 4
KEYS = 8
"""A partition's."""
TAIL = 20
"""Records that each partition still emits once it was told to end."""


@dataclass(frozen=True)
class Phase:
    """One start of the job."""

    number: int
    parallelism: int
    folder: Path
    source_pause: float = 0.0
    """Seconds before each record."""
    sink_pause: float = 0.0

    @property
    def crash(self) -> Path:
        """Once this file is there, the sink fails."""
        return self.folder / f"crash-{self.number}"

    @property
    def end(self) -> Path:
        """Once this file is there, sources end."""
        return self.folder / "end"


# -- records --------------------------------------------------------------------------------------------------------


def magic_of(record: dict[str, Any]) -> int:
    return zlib.crc32(f"{record['source']}/{record['partition']}/{record['id']}/{record['key']}".encode())


def named(source: str, partition: int, id: int, key: str) -> dict[str, Any]:
    record = {"source": source, "partition": partition, "id": id, "key": key}
    return {**record, "magic": magic_of(record), "trace": {}}


def check(record: dict[str, Any]) -> dict[str, Any]:
    """Each hop: corruption is seen where it happens."""
    if record.get("magic") != magic_of(record):
        raise AssertionError(f"corrupted record {record!r}")
    return record


class Numbers(Source):
    """Numbers in four partitions, each with its own keys, until the phase is told to end."""

    bounded = True

    def __init__(
        self, name: str, phase: Phase, pause: float = 0.0, most: int | None = None, ends: bool = False
    ) -> None:
        """
        Args:
            pause: seconds before each record.
            most: so many records are in each partition, and then it falls idle.
            ends: it ends then, without being told.
        """
        self.name = name
        self.phase = phase
        self.pause = pause or phase.source_pause
        self.most = most
        self.ends = ends

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        return NumbersReader(self, ctx)


class NumbersReader(SourceReader):
    """Partition k belongs to subtask k mod parallelism."""

    def __init__(self, source: Numbers, ctx: SourceContext) -> None:
        self._source = source
        restored = {k: i for state in ctx.restored or [] for k, i in state}
        mine = [k for k in range(PARTITIONS) if k % ctx.parallelism == ctx.subtask]
        self._next = {k: restored.get(k, 0) for k in mine}
        self._limits: dict[int, int] | None = None
        self._polled: tuple[int, int] | None = None
        self._paused = False

    def poll(self, max_records: int, timeout: float) -> Any:
        self._polled = None
        if self._paused:
            time.sleep(timeout)
            return None
        source = self._source
        ending = source.ends or source.phase.end.exists()
        if source.most is not None:
            self._limits = dict.fromkeys(self._next, source.most)
        elif self._limits is None and ending:
            self._limits = {k: i + TAIL for k, i in self._next.items()}
        limits = self._limits
        left = [k for k, i in self._next.items() if limits is None or i < limits[k]]
        if not left:
            if not ending:
                time.sleep(timeout)
                return None
            for k, i in self._next.items():
                (source.phase.folder / f"emitted-{source.name}-{k}").write_text(str(i))
            return END
        if source.pause:
            time.sleep(source.pause)
        k = min(left, key=lambda k: self._next[k])
        first = self._next[k]
        last = first + (1 if source.pause else min(max_records, 20))
        if limits is not None:
            last = min(last, limits[k])
        self._polled, self._next[k] = (k, first), last
        return SourceBatch([named(source.name, k, i, f"{k}/{i % KEYS}") for i in range(first, last)], splits=k)

    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        position = dict(self._next)
        if self._polled is not None:
            k, first = self._polled
            position[k] = first + emitted
        return [[k, i] for k, i in position.items()]

    def splits(self) -> list[int]:
        return list(self._next)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False


# -- hops -----------------------------------------------------------------------------------------------------------


def traced(record: dict[str, Any], step: str, phase: Phase, subtask: int, number: int = 0) -> dict[str, Any]:
    return {**check(record), "trace": {**record["trace"], step: [phase.number, subtask, number]}}


class Hop(Operator):
    """Notes where each record was, and counts them in a state of its own."""

    def __init__(self, step: str, phase: Phase) -> None:
        self.step = step
        self.phase = phase
        self.seen = 0

    def open(self, ctx: Any) -> None:
        self.subtask = ctx.subtask

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        self.seen += 1
        yield traced(value, self.step, self.phase, ctx.subtask)

    def process_connected(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        return self.process(value, ctx)

    def snapshot(self, checkpoint_id: int) -> int:
        return self.seen

    def restore(self, state: int) -> None:
        self.seen += state

    def close(self) -> None:
        (self.phase.folder / f"seen-{self.phase.number}-{self.step}-{self.subtask}").write_text(str(self.seen))


class Count(KeyedOperator):
    """Numbers the records of each key."""

    count = ValueState(default=0)

    def __init__(self, step: str, phase: Phase) -> None:
        self.step = step
        self.phase = phase

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        assert ctx.key == value["key"]
        self.count.value += 1
        yield traced(value, self.step, self.phase, ctx.subtask, self.count.value)

    def process_connected(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        return self.process(value, ctx)


class Enrich(Count):
    """Says in which subtask a rule arrived, and as the how manieth."""

    rules = BroadcastState()

    def process_connected(self, rule: dict[str, Any], ctx: Any) -> Iterable[Any]:
        number = self.rules["count"] = self.rules.get("count", 0) + 1
        yield {**check(rule), "rule": [self.phase.number, ctx.subtask, number]}


class Everywhere(Operator):
    """Says in which subtask a record arrived that every subtask gets."""

    def __init__(self, phase: Phase) -> None:
        self.phase = phase

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        yield {**check(value), "copy": [self.phase.number, ctx.subtask]}


class Divert(Count):
    """Counts, and emits records with an odd id as side output."""

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        for record in super().process(value, ctx):
            if record["id"] % 2:
                ctx.side_output("odd", record)
            else:
                yield record


class Timers(Count):
    """Sets a timer half a second behind each record and one by the clock, long due; tells when they fire."""

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        assert ctx.timestamp == 1000 * value["id"]
        assert ctx.watermark is None or ctx.watermark < ctx.timestamp, f"{value} is late: {ctx.watermark}"
        ctx.timer(ctx.timestamp + 500)
        if value["source"] == "numbers":
            ctx.processing_timer(ctx.timestamp + 1)
        return super().process(value, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        assert ctx.timestamp in (timestamp, None)
        yield named("timer", int(ctx.key.partition("/")[0]), timestamp, ctx.key)


class NotLate(Hop):
    """Behind an edge no record, and nothing that a timer emitted, comes behind a watermark that covers it."""

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        late = None not in (ctx.watermark, ctx.timestamp) and ctx.timestamp <= ctx.watermark
        assert not late, f"{value} is late: {ctx.watermark}"
        return super().process(value, ctx)


class PacedSink(TestingSink):
    """Takes its time with each record; fails once it is told to."""

    def __init__(self, phase: Phase) -> None:
        super().__init__(phase.folder / "sink")
        self.phase = phase

    def create_writer(self, ctx: Any) -> Any:
        writer = super().create_writer(ctx)
        phase, write = self.phase, writer.write

        def paced(value: Any, context: Any) -> None:
            if phase.crash.exists():
                raise RuntimeError("the sink was told to fail")
            if phase.sink_pause:
                time.sleep(phase.sink_pause)
            write(check(value), context)

        writer.write = paced
        return writer
