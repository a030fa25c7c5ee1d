"""The pipeline that failure tests run: every hop checks each record, the failing map follows a schedule.

source → map → key_by → stateful → shift partitioner → failing map → partitioner by chunks → sink
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import BufferConfig, CheckpointConfig, KeyedOperator, Operator, Pipeline, RestartStrategy, ValueState
from pipeline.testing.sink import TestingSink
from sources import END, Source, SourceContext, SourceReader

MAGIC = 0x77EB1DEA
KEYS = 40


def check(record: dict[str, Any]) -> dict[str, Any]:
    """Each hop: corruption is seen where it happens."""
    if record.get("magic") != MAGIC:
        raise AssertionError(f"corrupted record {record!r}")
    return record


def stamp(record: dict[str, Any]) -> dict[str, Any]:
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
        """How many records the source has emitted in all, once it has ended."""
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

    def __init__(self, schedule: Schedule, partitions: int):
        self.schedule = schedule
        self.partitions = partitions

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
                (self._source.schedule.folder / f"end-{k}").write_text(str((i - k) // self._source.partitions))
            return END
        k = min(self._next, key=lambda k: self._next[k])
        first = self._next[k]
        ids = range(first, first + min(max_records, 20) * self._source.partitions, self._source.partitions)
        self._polled, self._next[k] = (k, first), ids.stop
        return [{"id": i, "partition": k} for i in ids]

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

    def process(self, value: dict[str, Any], ctx: Any) -> Any:
        check(value)
        self.count.value += 1
        yield {**value, "number": self.count.value}


class FailingMap(Operator):
    """Attempt 0 the map raises after ¼ of the checkpoints; 1 `snapshot` after ½; 2 the map after ¾; 3 `open`;
    4 `close`; then it ends."""

    def __init__(self, schedule: Schedule):
        self.schedule = schedule

    def open(self, ctx: Any) -> None:
        self._attempt = self.schedule.attempt()
        if self._attempt == 3 and self.schedule.failures > 3:
            self.schedule.fail(3, "open")

    def process(self, value: dict[str, Any], ctx: Any) -> Any:
        check(value)
        if (
            self._attempt in (0, 2)
            and self.schedule.failures > self._attempt
            and self.schedule.completed() >= self.schedule.checkpoints * (self._attempt + 1) / 4
        ):
            self.schedule.fail(self._attempt, "map")
        yield value

    def snapshot(self, checkpoint_id: int) -> Any:
        if (
            self._attempt == 1
            and self.schedule.failures > 1
            and self.schedule.completed() >= self.schedule.checkpoints / 2
        ):
            self.schedule.fail(1, "snapshot")
        return None

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.schedule.note_complete(checkpoint_id)

    def close(self) -> None:
        # Not when it only leaves because another subtask's `open` failed, and it opened after that.
        regular = self.schedule.completed() >= self.schedule.checkpoints
        if self._attempt == 4 and self.schedule.failures == 4 and regular:
            self.schedule.fail(4, "close")


class SlowSink(TestingSink):
    """A sink that takes its time with each record."""

    def __init__(self, seconds_per_record: float):
        super().__init__()
        self.seconds_per_record = seconds_per_record

    def create_writer(self, ctx: Any) -> Any:
        writer = super().create_writer(ctx)
        seconds, write = self.seconds_per_record, writer.write

        def slow_write(value: Any, context: Any) -> None:
            time.sleep(seconds)
            write(check(value), context)

        writer.write = slow_write
        return writer


def shift(record: dict[str, Any], n: int) -> int:
    return int(record["id"] + 1) % n


def by_chunks(record: dict[str, Any], n: int) -> int:
    return int(record["id"] // 50) % n


def build(
    name: str,
    folder: Path,
    sink: TestingSink,
    schedule: Schedule,
    parallelism: int,
    **checkpoints: Any,
) -> Pipeline:
    options = {"interval": 0.2, "timeout": 60.0, "tolerable_failures": 100, **checkpoints}
    p = Pipeline(
        name,
        parallelism=parallelism,
        checkpoints=CheckpointConfig(folder.as_uri(), **options),
        restart=RestartStrategy.fixed_delay(attempts=20, delay=0.05),
        buffers=BufferConfig(target=0.1),
    )
    (
        p.source("numbers", UntilSource(schedule, partitions=parallelism))
        .map(stamp)
        .key_by("key")
        .process("count", CountPerKey())
        .partition_custom(shift)
        .process("failing", FailingMap(schedule))
        .partition_custom(by_chunks)
        .sink("out", sink)
    )
    return p


@dataclass(frozen=True)
class Findings:
    """What a validator sees in the output."""

    lost: int
    duplicated: int
    corrupted: int
    misnumbered: int
    """Records whose number differs from their place among those of their key: state lost, doubled or out of order."""

    @property
    def clean(self) -> bool:
        return self == Findings(0, 0, 0, 0)


def validate(outputs: list[dict[str, Any]], records: int) -> Findings:
    """An invariant over all records: ids are unique over the whole source, and numbers follow the order of ids."""
    corrupted = sum(record.get("magic") != MAGIC for record in outputs)
    times = Counter(record["id"] for record in outputs)
    by_key: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in outputs:
        by_key[record["key"]].append(record)
    misnumbered = 0
    for of_key in by_key.values():
        of_key.sort(key=lambda record: record["id"])
        misnumbered += sum(record["number"] != place for place, record in enumerate(of_key, 1))
    return Findings(
        lost=records - len(times),
        duplicated=sum(n - 1 for n in times.values()),
        corrupted=corrupted,
        misnumbered=misnumbered,
    )
