"""`a.join(b, within=(lower, upper))`: pairs of records whose times are near each other."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, cast

from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.state import ValueState
from checkpoint.state.stores import PagedStore
from pipeline.errors import PipelineError
from pipeline.joins.options import (
    LEFT,
    LOWEST,
    MOST_AT_ONCE,
    RIGHT,
    How,
    Select,
    checked_how,
    checked_within,
    clamped,
    output_of,
    timestamp_of,
    too_late,
)
from pipeline.operators import KeyedOperator, OperatorContext
from pipeline.paged.timeline import TIMES, Spot, Stretch, Timeline
from pipeline.windows.durations import later_by

_RECORDS = 1
_MATCHED = 2
"""The list that tells of each record whether it has found a partner, where it matters."""


class _Side:
    """One input, as records of it look for partners in the other one."""

    def __init__(self, name: str, lower: int, upper: int, outer: bool) -> None:
        """
        Args:
            lower, upper: in milliseconds, where partners are from the time of a record on, both included.
            outer: a record without a partner is a result.
        """
        self.name = name
        self.lower = lower
        self.upper = upper
        self.outer = outer
        self.kept: Timeline
        """The records of the current key that partners may come for."""

    def last_partner(self, at: int) -> int:
        """At this watermark no partner can come any more for a record of that time."""
        return clamped(at + self.upper)

    def alone_at(self, at: int) -> int:
        """The timestamp of a result without a partner: when that is certain, and not before the record."""
        return max(at, self.last_partner(at))


class IntervalJoin(KeyedOperator):
    """Joins a left record of time t with the right ones from t + lower to t + upper, both included.

    A pair is emitted by the one of both that comes last. A record is kept until the watermark reaches the last time at
    which it could find a partner; there it is emitted alone, if it is to be and has found none.

    A record with more than `MOST_AT_ONCE` partners waits, and so do all of its key that come behind it. Timers that are
    due at once join them, so many pairs at a time, so that a barrier waits for no more. There are two of them: event
    time does not pass the first one, and the second one, of processing time, fires where event time stands still.
    """

    needs_event_time: ClassVar[str] = "joins records by their times"
    _inputs = (LEFT, RIGHT)
    _timers_can_be_left_out = False  # one lets many records go
    _timers_end = True

    left: ValueState[Any] = ValueState()
    right: ValueState[Any] = ValueState()
    waiting: ValueState[Any] = ValueState()
    """Records that are not joined yet, in order of arrival: whether it is a left one, its time and itself."""
    begun: ValueState[Any] = ValueState()
    """Where records wait: the watermark behind which they have come, and where the partners of the first one are that
    it has not been joined with; `None` = it hasn't been joined at all."""

    def __init__(
        self,
        within: Any,
        how: How = "inner",
        select: Select | None = None,
        who: str = "join",
        whole: bool = False,
    ) -> None:
        """
        Args:
            within: the bounds, in seconds or as `timedelta`.
            who: names the join in errors.
            whole: all pairs of a record come in one piece, so that it can be taken back if `select` fails on one.

        Raises:
            PipelineError: an argument has a value that it can't have.
        """
        self._who = who
        self._how = checked_how(who, how)
        lower, upper = checked_within(who, within)
        self._output = output_of(who, select)
        self._left = _Side(LEFT, lower, upper, how in ("left", "full"))
        self._right = _Side(RIGHT, -upper, -lower, how in ("right", "full"))
        self._whole = whole
        self._behind: set[bytes] = set()
        """Keys of which records wait, and perhaps some others."""

    def open(self, ctx: OperatorContext) -> None:
        self._left.kept = Timeline(self.left)
        self._right.kept = Timeline(self.right)
        self._waiting = Timeline(self.waiting)
        begun = cast(PagedStore, self.begun.store)
        for _ in begun.each_key():
            self._behind.add(begun.key)

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        return self._take(self._left, value, ctx)

    def process_connected(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        return self._take(self._right, value, ctx)

    def on_timer(self, timestamp: int, ctx: OperatorContext) -> Iterable[Any]:
        is_second = ctx.timestamp is None
        if self._is_behind():
            yield from self._go_on(ctx)
            if self.begun.value is not None:
                return
        if is_second:
            return
        watermark = ctx.key_watermark
        assert watermark is not None
        for side in (self._left, self._right):
            for at, record in self._let_go(side, watermark, ctx):
                ctx.emit_at(side.alone_at(at))
                yield self._alone(side, record, ctx)

    def snapshot(self, checkpoint_id: int) -> Any:
        return {"within": [self._left.lower, self._left.upper], "how": self._how}

    def restore(self, state: Any) -> None:
        if "within" not in state:
            self._refuse(f"window={state['window']}", "it is one by within now")
        lower, upper = state["within"]
        if (lower, upper) != (self._left.lower, self._left.upper):
            self._refuse(f"within=({lower / 1000:g}, {upper / 1000:g})", "what it would need is gone")
        if state["how"] != self._how:
            self._refuse(f"how={state['how']!r}", "which of its records have found a partner isn't known of both sides")

    def _keeps(self) -> tuple[str, ...]:
        return tuple(
            f"a record of the {side.name} stream is kept until the watermark passes {later_by('its time', side.upper)}"
            for side in (self._left, self._right)
        )

    # -- inside -------------------------------------------------------------------------------------------------

    def _other(self, side: _Side) -> _Side:
        return self._right if side is self._left else self._left

    def _take(self, own: _Side, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        at, watermark = timestamp_of(self._who, own.name, value, ctx), ctx.key_watermark
        if watermark is not None and at <= watermark:
            too_late(own.name, value, ctx)
            return ()
        if self._is_behind():
            self._waiting.insert(0, own is self._left, at, value)
            return ()
        most = sys.maxsize if self._whole else MOST_AT_ONCE
        partners, more = self._other(own).kept.some_near(at + own.lower, at + own.upper, most)
        if more is None:
            return self._begin(own, value, at, watermark, partners, ctx)
        self._behind.add(self.begun.store.key)
        self._waiting.insert(0, own is self._left, at, value)
        self._go_on_later(watermark, None, ctx)
        return ()

    def _begin(
        self, own: _Side, value: Any, at: int, watermark: int | None, partners: Sequence[Stretch], ctx: OperatorContext
    ) -> Iterable[Any]:
        """Keep a record, and join it with the first of its partners, of which there are some if it has any."""
        until = own.last_partner(at)
        if watermark is None or until > watermark:
            columns = (value, bool(partners)) if own.outer else (value,)
            if own.kept.insert(at, *columns):
                ctx.timer(until)
        elif own.outer and not partners:
            ctx.emit_at(own.alone_at(at))
            return (self._alone(own, value, ctx),)
        return self._pairs(own, value, at, partners, ctx) if partners else ()

    def _is_behind(self) -> bool:
        """Whether records of the current key wait."""
        if not self._behind or (key := self.begun.store.key) not in self._behind:
            return False
        if self.begun.value is not None:
            return True
        self._behind.remove(key)  # only here: what a failed record has changed is taken back in state
        return False

    def _go_on(self, ctx: OperatorContext) -> Iterator[Any]:
        """Join records of the current key that wait, the first one first, with no more than `MOST_AT_ONCE` partners."""
        watermark, spot = self.begun.value
        left = MOST_AT_ONCE
        while left > 0:
            first = next(self._waiting.from_on(0, 0), None)
            if first is None:
                self.begun.clear()
                return
            _, _, (_, is_left, times, records), i = first
            own, at, value = self._left if is_left[i] else self._right, times[i], records[i]
            start = (0, 0) if spot is None else spot
            partners, more = self._other(own).kept.some_near(at + own.lower, at + own.upper, left, start)
            if spot is None:
                yield from self._begin(own, value, at, watermark, partners, ctx)
            else:
                yield from self._pairs(own, value, at, partners, ctx)
            left -= 1 + sum(one.stop - one.first for one in partners)
            spot = more
            if more is None:
                self._waiting.drop(1)
        self._go_on_later(watermark, spot, ctx)

    def _go_on_later(self, watermark: int | None, spot: Spot | None, ctx: OperatorContext) -> None:
        self.begun.value = (watermark, spot)
        ctx.timer(LOWEST)  # fires before event time goes on
        ctx.processing_timer(ctx.processing_time)

    def _pairs(
        self, own: _Side, value: Any, at: int, partners: Sequence[Stretch], ctx: OperatorContext
    ) -> Iterator[Any]:
        key, output, other = ctx.key, self._output, self._other(own).kept
        if self._other(own).outer:
            for one in partners:
                if False in one.columns[_MATCHED][one.first : one.stop]:
                    other.fill(one, _MATCHED, True)
        for one in partners:
            times, records = one.columns[TIMES], one.columns[_RECORDS]
            for i in range(one.first, one.stop):
                ctx.emit_at(max(at, times[i]))
                yield output(key, value, records[i]) if own is self._left else output(key, records[i], value)

    def _let_go(self, side: _Side, watermark: int, ctx: OperatorContext) -> Iterable[tuple[int, Any]]:
        """Remove the current key's records that no partner can come for, and set a timer for the next ones.

        Returns:
            Those that are to be emitted alone.
        """
        # At the end of event time no partner can come, wherever the bounds are.
        until = watermark if watermark == MAX_WATERMARK else watermark - side.upper
        gone = side.kept.drop(side.kept.count_until(until, MOST_AT_ONCE))
        for following in side.kept.first():
            ctx.timer(side.last_partner(following))
        if not side.outer or not gone:
            return ()
        rows = zip(gone[TIMES], gone[_RECORDS], gone[_MATCHED], strict=True)
        return [(at, record) for at, record, matched in rows if not matched]

    def _alone(self, side: _Side, record: Any, ctx: OperatorContext) -> Any:
        if side is self._left:
            return self._output(ctx.key, record, None)
        return self._output(ctx.key, None, record)

    def _refuse(self, before: str, why: str) -> None:
        raise PipelineError(
            f"{self._who}: the checkpoint's state is that of a join with {before}, and {why}: give the step another "
            "id, so that it begins anew, or leave its options as they were"
        )
