"""`a.join(b, window=Tumbling(60))`: pairs of records that are in one window."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from functools import partial
from heapq import merge
from itertools import islice
from typing import Any, ClassVar, TypeAlias

from checkpoint.state import ValueState
from pipeline.errors import PipelineError
from pipeline.joins.options import (
    LEFT,
    MOST_AT_ONCE,
    RIGHT,
    How,
    Output,
    Select,
    checked_how,
    output_of,
    pair,
    timestamp_of,
    too_late,
)
from pipeline.joins.window_assigners import DueWindow, assigner_of
from pipeline.operators import KeyedOperator, OperatorContext
from pipeline.paged import directory
from pipeline.paged.timeline import Timeline
from pipeline.windows import Window

Place: TypeAlias = tuple[int, int]
"""Of a record among those of its side: its time, and how many of that time are in front of it."""

Pair: TypeAlias = tuple[Place, Place, Any, Any]
"""A result: the places of its records, and the records. `None`: the other one is alone."""


class WindowJoin(KeyedOperator):
    """Joins each left record with each right one that is in the same window, for every window that has both.

    All results of a window come when it closes. A timer gives some of them, and sets itself once more as long as there
    are others, so that a barrier waits for no more. So does one that looks for the end of a session.
    """

    needs_event_time: ClassVar[str] = "joins the records of windows"
    _inputs = (LEFT, RIGHT)
    _timers_can_be_left_out = False  # one lets many records go
    _timers_end = True

    left: ValueState[Any] = ValueState()
    right: ValueState[Any] = ValueState()
    begun: ValueState[Any] = ValueState()
    """The window of which some results are out, or some records gone: the fields of its `DueWindow`, and the places of
    the next left and right record."""
    looked: ValueState[Any] = ValueState()
    """The time up to which all records are known to be in the first session."""

    def __init__(self, window: Window, how: How = "inner", select: Select | None = None, who: str = "join") -> None:
        """
        Args:
            who: names the join in errors.

        Raises:
            PipelineError: an argument has a value that it can't have.
        """
        self._who = who
        self._how = checked_how(who, how)
        self._assigner = assigner_of(who, window)
        self._window = window.shown
        self._output = output_of(who, select)

    def open(self, ctx: OperatorContext) -> None:
        self._lefts, self._rights = self._sides = [Timeline(one) for one in (self.left, self.right)]

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        return self._keep(LEFT, self._lefts, value, ctx)

    def process_connected(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        return self._keep(RIGHT, self._rights, value, ctx)

    def on_timer(self, timestamp: int, ctx: OperatorContext) -> Iterable[Any]:
        after = timestamp - 1
        while True:
            if self.begun.value is None:
                due = self._due(after, timestamp, ctx)
                if due is None:
                    return
                few = self._few(due)
                if few is not None:
                    yield from self._give_few(few, due, ctx)
                    after = max(timestamp, due.last)  # at the very end of time several windows close
                    continue
                self.begun.value = (*due, *_start(due), *_start(due))
            due = yield from self._give(ctx)
            if self.begun.value is not None:
                ctx.timer(timestamp)
                return
            after = max(timestamp, due.last)

    def snapshot(self, checkpoint_id: int) -> Any:
        return {"window": self._window}

    def restore(self, state: Any) -> None:
        if state.get("window") != self._window:
            raise PipelineError(
                f"{self._who}: the checkpoint's state is that of a join by {state.get('window', 'within')}, whose "
                f"timers are set, and the step has {self._window} now: give the step another id, so that it begins anew"
            )

    def _keeps(self) -> tuple[str, ...]:
        return (f"a record of either stream is kept until the watermark passes {self._assigner.frees}",)

    # -- inside -------------------------------------------------------------------------------------------------

    def _keep(self, side: str, kept: Timeline, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        at, watermark = timestamp_of(self._who, side, value, ctx), ctx.key_watermark
        closes = self._assigner.closes(at, watermark)
        if closes is None:
            too_late(side, value, ctx)
            return ()
        if watermark is not None and at <= watermark and self.begun.value is not None:
            return self._give_and_keep(kept, at, closes, value, ctx)
        if kept.insert(at, value):
            ctx.timer(closes)  # those of later windows are set one by one
        return ()

    def _give_and_keep(self, kept: Timeline, at: int, closes: int, value: Any, ctx: OperatorContext) -> Iterator[Any]:
        """For a record in time for a window, and perhaps within another one of which some results are out, for which it
        is late. It comes where the subtask's watermark has gone back, behind a rescale, so that the timer waits."""
        due = yield from self._give(ctx)
        while self.begun.value is not None:
            yield from self._give(ctx)
        ctx.delete_timer(due.closes)
        earliest = self._earliest()
        if earliest is not None:
            # Of a session this may be too early. Then the timer sets the next one.
            closes = min(closes, self._assigner.due(earliest, earliest, max(due.closes, due.last)).closes)
        kept.insert(at, value)
        ctx.timer(closes)

    def _earliest(self) -> int | None:
        """The time of the current key's first record."""
        return min((at for one in self._sides for at in one.first()), default=None)

    def _due(self, after: int, timestamp: int, ctx: OperatorContext) -> DueWindow | None:
        """The first window of the current key with records of which some end behind `after`, if it closes at
        `timestamp` or before. Else sets the timer for it, if there is one."""
        earliest = self._earliest()
        if earliest is None:
            return None
        due = self._assigner.due(earliest, earliest, after)
        if due.closes <= timestamp and self._assigner.gap is not None:
            last = self._last(earliest, self._assigner.gap)
            if last is None:
                ctx.timer(timestamp)
                return None
            due = self._assigner.due(earliest, last, after)
            if due.closes <= timestamp:
                self.looked.clear()
        if due.closes > timestamp:
            ctx.timer(due.closes)
            return None
        return due

    def _last(self, earliest: int, gap: int) -> int | None:
        """The time of the last record of the session that begins then; `None` = there are more to be looked at. No
        record can come in front of it any more, so what is known of it stays true."""
        looked = self.looked.value
        last: int = earliest if looked is None else looked
        times = list(islice(merge(*(one.times(last) for one in self._sides)), MOST_AT_ONCE))
        for at in times:
            if at > last + gap:
                return last
            last = at
        if len(times) < MOST_AT_ONCE:
            return last
        self.looked.value = last
        return None

    def _few(self, due: DueWindow) -> list[list[Any]] | None:
        """The left and the right records of a window, if they have few results, which need no places."""
        if max(map(len, self._sides)) > directory.MOST:
            return None
        records = [
            [one for found in side.near(due.first, due.last) for one in found.columns[1][found.first : found.stop]]
            for side in self._sides
        ]
        return records if (len(records[0]) or 1) * (len(records[1]) or 1) <= MOST_AT_ONCE else None

    def _give_few(self, few: list[list[Any]], due: DueWindow, ctx: OperatorContext) -> Iterator[Any]:
        for side in self._sides:
            side.drop(side.count_until(due.frees - 1))
        ctx.emit_at(due.closes)
        key, output, (lefts, rights) = ctx.key, self._output_of(due), few
        for left in lefts:
            for right in rights:
                yield output(key, left, right)
        if not rights and self._how in ("left", "full"):
            for left in lefts:
                yield output(key, left, None)
        if not lefts and self._how in ("right", "full"):
            for right in rights:
                yield output(key, None, right)

    def _output_of(self, due: DueWindow) -> Output:
        return partial(_of_window, due) if self._output is pair else self._output

    def _give(self, ctx: OperatorContext) -> Generator[Any, None, DueWindow]:
        """Give the next results of the window that has begun; behind the last one let its records go. Then none has
        begun any more.

        Returns:
            The window.
        """
        *fields, left_time, left_number, right_time, right_number = self.begun.value
        due = DueWindow(*fields)
        ctx.emit_at(due.closes)
        key, output = ctx.key, self._output_of(due)
        for given, (left_at, right_at, left, right) in enumerate(
            self._pairs(due, (left_time, left_number), (right_time, right_number))
        ):
            if given == MOST_AT_ONCE:
                self.begun.value = (*due, *left_at, *right_at)
                return due
            yield output(key, left, right)
        counts = [side.count_until(due.frees - 1, MOST_AT_ONCE + 1) for side in self._sides]
        for side, count in zip(self._sides, counts, strict=True):
            side.drop(min(count, MOST_AT_ONCE))
        if max(counts) <= MOST_AT_ONCE:
            self.begun.clear()
        else:
            self.begun.value = (*due, *_behind(due), *_behind(due))
        return due

    def _pairs(self, due: DueWindow, left_from: Place, right_from: Place) -> Iterator[Pair]:
        """The results of a window, from a place on."""
        start = _start(due)
        if left_from == _behind(due):
            return
        has_lefts, has_rights = (next(_records(one, due, start), None) is not None for one in self._sides)
        if has_lefts and has_rights:
            for left_at, left in _records(self._lefts, due, left_from):
                for right_at, right in _records(self._rights, due, right_from):
                    yield left_at, right_at, left, right
                right_from = start
        elif has_lefts and self._how in ("left", "full"):
            for left_at, left in _records(self._lefts, due, left_from):
                yield left_at, start, left, None
        elif has_rights and self._how in ("right", "full"):
            for right_at, right in _records(self._rights, due, right_from):
                yield start, right_at, None, right


def _start(due: DueWindow) -> Place:
    return due.first, 0


def _behind(due: DueWindow) -> Place:
    """Where all results of a window are out."""
    return due.last + 1, 0


def _of_window(due: DueWindow, key: Any, left: Any, right: Any) -> dict[str, Any]:
    """A result without `select`."""
    return {"key": key, "start": due.first, "end": due.end, LEFT: left, RIGHT: right}


def _records(of: Timeline, due: DueWindow, start: Place) -> Iterator[tuple[Place, Any]]:
    """Those of a window from a place on."""
    at, number = start
    for time, before, columns, i in of.from_on(at, due.last, number):
        yield (time, before), columns[1][i]
