"""The pipelines that failure tests run: every hop checks each record, the failing map follows a schedule.

- `pipeline`: source → map → key_by → stateful → shift partitioner → failing map → partitioner by chunks → sink
- `multi-input`: three sources joined two by two by keyed operators → failing map → partitioner by chunks → sink
- `union`: three sources as one → key_by → stateful → shift partitioner → failing map → partitioner by chunks → sink
- `broadcast`: a keyed source and a broadcast one in an operator that emits for the elements of both → failing map →
  partitioner by chunks → sink
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline import (
    BroadcastState,
    BufferConfig,
    CheckpointConfig,
    KeyedOperator,
    MapState,
    Operator,
    Pipeline,
    RestartStrategy,
    ValueState,
)
from pipeline.streams import KeyedStream, Stream
from pipeline.testing.sink import TestingSink
from sources import END, Source, SourceContext, SourceReader

MAGIC = 0x77EB1DEA
KEYS = 40
SOURCES = ("first", "second", "third")
"""Sources of the shapes that have several."""

Shape = Literal["pipeline", "multi-input", "union", "broadcast"]
Record = dict[str, Any]


def check(record: Record) -> Record:
    """Each hop: corruption is seen where it happens."""
    if record.get("magic") != MAGIC:
        raise AssertionError(f"corrupted record {record!r}")
    return record


def stamp(record: Record) -> Record:
    """Keys are those of one partition of one source, so that their records have an order."""
    key = f"{record['source']}/{record['partition']}/{record['id'] % KEYS}"
    return {**record, "magic": MAGIC, "key": key}


def stamp_for_join(record: Record) -> Record:
    """All sources have the same keys; within one a key is of one partition."""
    return {**record, "magic": MAGIC, "key": f"{record['partition']}/{record['id'] % KEYS}"}


@dataclass
class Schedule:
    """When the failing operator fails: by attempt, after so many checkpoints. Counted in files, over processes."""

    folder: Path
    checkpoints: int
    failures: int = 4
    """How many scheduled failures come before the end."""

    def attempt(self) -> int:
        return len(list(self.folder.glob("failed-*")))

    def completed(self) -> int:
        return len(list(self.folder.glob("complete-*")))

    def done(self) -> bool:
        """Whether the source may end: enough checkpoints, and all failures before the one at the end."""
        return self.completed() >= self.checkpoints and self.attempt() >= self.failures

    def emitted(self) -> int:
        """How many records have to come out in all, once the sources have ended."""
        return sum(int(path.read_text()) for path in self.folder.glob("end-*"))

    def note_complete(self, id: int) -> None:
        (self.folder / f"complete-{id}").touch()

    def fail(self, attempt: int, what: str) -> None:
        """Raise once, in whichever subtask comes first."""
        try:
            (self.folder / f"failed-{attempt}").touch(exist_ok=False)
        except FileExistsError:
            return
        raise RuntimeError(f"scheduled failure {attempt}: {what}")


class UntilSource(Source):
    """Numbers, until the schedule has run its course; then each partition notes how many it emitted."""

    bounded = True

    def __init__(self, schedule: Schedule, partitions: int, name: str = "numbers", copies: int = 1):
        """`copies`: how often each record has to come out."""
        self.schedule = schedule
        self.partitions = partitions
        self.name = name
        self.copies = copies

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        return UntilReader(self, ctx)


class UntilReader(SourceReader):
    """Partition k emits k, k + partitions, …; partition k belongs to subtask k mod parallelism."""

    def __init__(self, source: UntilSource, ctx: SourceContext):
        self._source = source
        restored = {k: i for state in ctx.restored or [] for k, i in state}
        mine = [k for k in range(source.partitions) if k % ctx.parallelism == ctx.subtask]
        self._next = {k: restored.get(k, k) for k in mine}
        self._polled: tuple[int, int] | None = None
        self._paused = False

    def poll(self, max_records: int, timeout: float) -> Any:
        self._polled = None
        if self._paused:
            return None
        if self._source.schedule.done():
            for k, i in self._next.items():
                path = self._source.schedule.folder / f"end-{self._source.name}-{k}"
                path.write_text(str((i - k) // self._source.partitions * self._source.copies))
            return END
        k = min(self._next, key=lambda k: self._next[k])
        first = self._next[k]
        ids = range(first, first + min(max_records, 20) * self._source.partitions, self._source.partitions)
        self._polled, self._next[k] = (k, first), ids.stop
        return [{"id": i, "partition": k, "source": self._source.name} for i in ids]

    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        position = dict(self._next)
        if self._polled is not None:
            k, first = self._polled
            position[k] = first + emitted * self._source.partitions
        return [[k, i] for k, i in position.items()]

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False


class CountPerKey(KeyedOperator):
    """Numbers the records of each key."""

    count = ValueState(default=0)

    def process(self, value: Record, ctx: Any) -> Any:
        check(value)
        self.count.value += 1
        yield {**value, "number": self.count.value}


class Join(KeyedOperator):
    """Numbers the records of each key and source, on either input; what is numbered already must agree."""

    counts = MapState()

    def process(self, value: Record, ctx: Any) -> Any:
        check(value)
        number = self.counts.get(value["source"], 0) + 1
        self.counts[value["source"]] = number
        if value.setdefault("number", number) != number:
            value = {**value, "number": -1}
        yield value

    process_connected = process


class Announce(KeyedOperator):
    """Numbers the records of each key, and in each subtask the elements of the broadcast stream, which all subtasks
    emit."""

    count = ValueState(default=0)
    seen = BroadcastState()

    def process(self, value: Record, ctx: Any) -> Any:
        check(value)
        self.count.value += 1
        yield {**value, "number": self.count.value}

    def process_connected(self, value: Record, ctx: Any) -> Any:
        check(value)
        number = self.seen.get("elements", 0) + 1
        self.seen["elements"] = number
        yield {**value, "source": f"{value['source']} in {ctx.subtask}", "key": "all", "number": number}


class FailingMap(Operator):
    """Attempt 0 the map raises after ¼ of the checkpoints; 1 `snapshot` after ½; 2 the map after ¾; 3 `open`;
    4 `close`; then it ends."""

    def __init__(self, schedule: Schedule):
        self.schedule = schedule

    def open(self, ctx: Any) -> None:
        self._attempt = self.schedule.attempt()
        self._subtask = ctx.subtask
        self._ran = False
        if self._attempt == 3 and self.schedule.failures > 3:
            self.schedule.fail(3, "open")

    def process(self, value: Record, ctx: Any) -> Any:
        check(value)
        if (
            self._attempt in (0, 2)
            and self.schedule.failures > self._attempt
            and self.schedule.completed() >= self.schedule.checkpoints * (self._attempt + 1) / 4
        ):
            self.schedule.fail(self._attempt, "map")
        yield {**value, "via": self._subtask}

    def snapshot(self, checkpoint_id: int) -> Any:
        if (
            self._attempt == 1
            and self.schedule.failures > 1
            and self.schedule.completed() >= self.schedule.checkpoints / 2
        ):
            self.schedule.fail(1, "snapshot")
        return None

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._ran = True
        self.schedule.note_complete(checkpoint_id)

    def close(self) -> None:
        # Not when it only leaves because another subtask's `open` failed, and it opened after that.
        if self._attempt == 4 and self.schedule.failures == 4 and self._ran:
            self.schedule.fail(4, "close")


class SlowSink(TestingSink):
    """A sink that takes its time with each record."""

    def __init__(self, seconds_per_record: float, directory: Path | None = None, label: Any = None):
        """`label`: put into every record, to tell the runs of one job apart."""
        super().__init__(directory)
        self.seconds_per_record = seconds_per_record
        self.label = label

    def create_writer(self, ctx: Any) -> Any:
        writer = super().create_writer(ctx)
        seconds, write, subtask, label = self.seconds_per_record, writer.write, ctx.subtask, self.label

        def slow_write(value: Any, context: Any) -> None:
            time.sleep(seconds)
            write({**check(value), "at": subtask, "by": label}, context)

        writer.write = slow_write
        return writer


def shift(record: Record, n: int) -> int:
    return int(record["id"] + 1) % n


def by_chunks(record: Record, n: int) -> int:
    return int(record["id"] // 50) % n


def shift_keys(record: Record, n: int) -> int:
    return (int(record["id"]) % KEYS + 1) % n


def keys_by_chunks(record: Record, n: int) -> int:
    return int(record["id"]) % KEYS // 7 % n


def build(
    name: str,
    folder: Path,
    sink: TestingSink,
    schedule: Schedule,
    parallelism: int,
    shape: Shape = "pipeline",
    *,
    partitions: int | None = None,
    whole_keys: bool = False,
    restart: RestartStrategy | None = None,
    **checkpoints: Any,
) -> Pipeline:
    """The job.

    Args:
        partitions: of each source; if not given, one a subtask. For jobs that are restored at another parallelism.
        whole_keys: let all records of a key go one way, so that they keep one order at any parallelism.
        checkpoints: options of its `CheckpointConfig`.
    """
    options = {"interval": 0.2, "timeout": 60.0, "tolerable_failures": 100, **checkpoints}
    p = Pipeline(
        name,
        parallelism=parallelism,
        checkpoints=CheckpointConfig(folder.as_uri(), **options),
        restart=restart or RestartStrategy.fixed_delay(attempts=20, delay=0.05),
        buffers=BufferConfig(target=0.1),
    )
    partitions = partitions or parallelism
    match shape:
        case "multi-input":
            numbered = _joined(p, schedule, partitions)
        case "broadcast":
            numbered = _announced(p, schedule, partitions)
        case _:
            numbered = _counted(p, schedule, partitions, shape).partition_custom(shift_keys if whole_keys else shift)
    failing = numbered.process("failing", FailingMap(schedule))
    failing.partition_custom(keys_by_chunks if whole_keys else by_chunks).sink("out", sink)
    return p


def _counted(p: Pipeline, schedule: Schedule, partitions: int, shape: Shape) -> Stream:
    names = SOURCES if shape == "union" else ("numbers",)
    first, *others = [p.source(name, UntilSource(schedule, partitions, name)).map(stamp) for name in names]
    stream = first.union(*others) if others else first
    return stream.key_by("key").process("count", CountPerKey())


def _joined(p: Pipeline, schedule: Schedule, partitions: int) -> Stream:
    first, second, third = [_keyed_source(p, schedule, partitions, name) for name in SOURCES]
    two = first.connect(second).process("join two", Join()).key_by("key")
    return two.connect(third).process("join three", Join())


def _announced(p: Pipeline, schedule: Schedule, partitions: int) -> Stream:
    elements = UntilSource(schedule, 1, "elements", copies=p.parallelism)
    broadcast = p.source("elements", elements, parallelism=1).map(stamp).broadcast()
    return _keyed_source(p, schedule, partitions, "numbers").connect(broadcast).process("announce", Announce())


def _keyed_source(p: Pipeline, schedule: Schedule, partitions: int, name: str) -> KeyedStream:
    return p.source(name, UntilSource(schedule, partitions, name)).map(stamp_for_join).key_by("key")


@dataclass(frozen=True)
class Findings:
    """What a validator sees in the output."""

    lost: int
    duplicated: int
    corrupted: int
    misnumbered: int
    """Records whose number differs from their place among those of their key: state lost, doubled or out of order."""
    out_of_order: int = 0
    """Records that reached a sink behind a later one of their key that came the same way."""

    @property
    def clean(self) -> bool:
        return self == EXACT


EXACT = Findings(0, 0, 0, 0, 0)


def validate(outputs: list[Record], records: int) -> Findings:
    """An invariant over all records: ids are unique within a source, and numbers follow the order of ids.

    Args:
        outputs: in the order of each sink subtask.
        records: how many there are to be.
    """
    corrupted = sum(record.get("magic") != MAGIC for record in outputs)
    times = Counter((record["source"], record["id"]) for record in outputs)
    of_key: dict[tuple[str, str], list[Record]] = defaultdict(list)
    last: dict[tuple[str, str, int, int], int] = {}
    out_of_order = 0
    for record in outputs:
        key = (record["source"], record["key"])
        of_key[key].append(record)
        way = (*key, record["via"], record["at"])
        out_of_order += record["number"] <= last.get(way, 0)
        last[way] = record["number"]
    misnumbered = 0
    for found in of_key.values():
        found.sort(key=lambda record: record["id"])
        misnumbered += sum(record["number"] != place for place, record in enumerate(found, 1))
    return Findings(
        lost=records - len(times),
        duplicated=sum(n - 1 for n in times.values()),
        corrupted=corrupted,
        misnumbered=misnumbered,
        out_of_order=out_of_order,
    )
