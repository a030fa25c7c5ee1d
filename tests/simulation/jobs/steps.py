"""Users' code of simulated jobs: sources of numbered records, operators that remember what they saw, and sinks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.state import BroadcastState, ListState, ValueState
from jobs.graph import TIMER_SPLITS, Row, Step, timestamp_of
from jobs.world import WORLDS, World, sent
from pipeline.operators import KeyedOperator, Operator
from sources.source import END, Source, SourceBatch, SourceContext, SourceReader


def event_time(value: list[Any]) -> int:
    return timestamp_of(value[1])


class SpanTooLong(AssertionError):
    """A source has emitted more between two barriers than its gate allows."""


class KeyOf:
    """A key function of records."""

    def __init__(self, factor: int, keys: int) -> None:
        self.factor = factor
        self.keys = keys
        self.__qualname__ = f"{type(self).__name__}({factor}, {keys})"

    def __call__(self, value: list[Any]) -> int:
        return (value[1] * self.factor + value[0]) % self.keys


class Choose(KeyOf):
    """A custom partitioner."""

    def __call__(self, value: list[Any], subtasks: int) -> int:  # type: ignore[override]
        return super().__call__(value) % subtasks


class Numbered(Source):
    """Splits of numbered records."""

    bounded = True
    fresh_records = True

    def __init__(self, world: str, step: Step, span: int | None) -> None:
        self.world = world
        self.step = step
        self.max_span_records = span

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        return _Reader(WORLDS[self.world], self.step, ctx, self.max_span_records)


class _Reader(SourceReader):
    def __init__(self, world: World, step: Step, ctx: SourceContext, limit: int | None) -> None:
        self._world = world
        self._step = step
        offsets = {split: offset for state in ctx.restored or () for split, offset in state}
        own = step.splits[ctx.subtask :: ctx.parallelism]
        self._offsets = {split: offsets.get(split, 0) for split in own}
        """Of the next row to poll, by split."""
        for split, offset in self._offsets.items():
            world.has_read(split, offset)
        self._polled: tuple[int, int] | None = None
        """Split and first row of the batch last polled."""
        self._limit = limit
        self._quiet_until = 0.0
        self._read_at_barrier = sum(self._offsets.values())
        self._paused = False

    def poll(self, max_records: int, timeout: float) -> Any:
        world = self._world
        if world.rng.random() < 0.2:
            world.pause()
        self._polled = None
        if self._paused or self._is_quiet(timeout):
            return None
        left = self._left()
        if not left:
            return END
        split = world.rng.choice(left)
        first = self._offsets[split]
        most = max_records if world.scheduler.calm else world.rng.randint(1, 4)
        count = min(max_records, most, self._step.records - first)
        self._offsets[split] += count
        world.has_read(split, first + count)
        self._polled = (split, first)
        rows = [Row(split, i) for i in range(first, first + count)]
        return SourceBatch(
            [sent(self._step.id, row) for row in rows], [row.timestamp for row in rows], size=20 * count, splits=split
        )

    def _is_quiet(self, timeout: float) -> bool:
        """Whether nothing comes, for so long that the source is idle."""
        world = self._world
        now = world.scheduler.now
        if world.idle_after is None or world.scheduler.calm:
            return False
        if now >= self._quiet_until and world.rng.random() < 0.1:
            self._quiet_until = now + 2 * world.idle_after
        if now >= self._quiet_until:
            return False
        world.scheduler.pause(timeout)
        return True

    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        offsets = dict(self._offsets)
        if self._polled is not None:
            split, first = self._polled
            offsets[split] = first + emitted
        self._check_span(sum(offsets.values()))
        return [[split, offset] for split, offset in offsets.items()]

    @property
    def _polled_rows(self) -> int:
        """In the batch last polled."""
        return 0 if self._polled is None else self._offsets[self._polled[0]] - self._polled[1]

    def _check_span(self, read: int) -> None:
        limit = self._limit
        if limit is not None and read - self._read_at_barrier > limit:
            raise SpanTooLong(f"{self._step.id}: {read - self._read_at_barrier} records in a span of {limit}")
        self._read_at_barrier = read

    def splits(self) -> list[int]:
        left = self._left()
        polled = self._polled
        if polled is not None and polled[0] not in left:
            left.append(polled[0])
        # Once all have ended the source would count as idle, and what timers behind it emit at the end as late.
        return left or list(self._offsets)

    def _left(self) -> list[int]:
        return [split for split, offset in self._offsets.items() if offset < self._step.records]

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False


class _Step(Operator):
    """What plain and keyed operators share."""

    def __init__(self, world: str, step: Step) -> None:
        self._name = world
        self._step = step

    def open(self, ctx: Any) -> None:
        self._world = WORLDS[self._name]
        self._subtask = ctx.subtask
        self._reached: int | None = None
        self._world.pause(0.3)

    def on_watermark(self, timestamp: int, ctx: Any) -> None:
        assert self._reached is None or timestamp > self._reached, f"{self._step.id}: event time goes back"
        if timestamp == MAX_WATERMARK:
            self._world.check_all_is_read(self._step)
        self._reached = timestamp

    def _pass_on(self, row: Row) -> list[Any]:
        self._world.pause(0.3, self._step.id)
        return sent(self._step.id, row)


class Plain(_Step):
    """Passes records on."""

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        _, row = self._world.received(self._step.id, value, ctx)
        yield self._pass_on(row)


class Rules:
    """What came on broadcast edges, and a record for each from every subtask."""

    rules: Any

    def process_connected(self, value: Any, ctx: Any) -> Iterator[Any]:
        _, row = self._world.received(self._step.id, value, ctx)  # type: ignore[attr-defined]
        key = f"{row.split}/{row.sequence}/{list(row.path)}"
        self.rules[key] = [*self.rules.get(key, []), len(self.rules)]
        row = row._replace(path=(*row.path, -1 - self._subtask))  # type: ignore[attr-defined]
        yield self._pass_on(row)  # type: ignore[attr-defined]


class PlainWithRules(Rules, Plain):
    rules = BroadcastState()


class Keyed(_Step, KeyedOperator):
    """Remembers what it saw, by key, and the timers that fired."""

    rows = ListState()
    fired = ListState()
    waits = ValueState(default=0)
    """Processing timers that are set."""

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        _, row = self._world.received(self._step.id, value, ctx)
        key = self._step.key
        assert key is not None
        assert ctx.key == key.of(row.split, row.sequence), f"{self._step.id}: {row} came under key {ctx.key}"
        self.rows.append([row.split, row.sequence, list(row.path)])
        if self._step.timer is not None and ctx.timestamp is not None:
            ctx.timer(ctx.timestamp + self._step.timer)
        if self._step.waits and not self.waits.value:
            self.waits.value = 1
            ctx.processing_timer(int(1000 * (self._world.scheduler.now + 0.2)) + 1_700_000_000_000)
        yield self._pass_on(row)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        if ctx.timestamp is None:
            assert self.waits.value == 1, f"{self._step.id}: a processing timer fired that was not set"
            self.waits.value = 0
            return
        assert not self._world.strict_time or timestamp not in list(self.fired), (
            f"{self._step.id}: timer {timestamp} of key {ctx.key} fired twice"
        )
        self.fired.append(timestamp)
        yield self._pass_on(Row(TIMER_SPLITS + 100 * self._step.number + ctx.key, timestamp, ()))


class KeyedWithRules(Rules, Keyed):
    rules = BroadcastState()
