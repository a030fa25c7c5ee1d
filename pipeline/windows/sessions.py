"""Windows that end when a key has had no record for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from checkpoint.event_time.bounds import MAX_WATERMARK
from pipeline.aggregates import Aggregation
from pipeline.by_event_time import LATE
from pipeline.operators import OperatorContext
from pipeline.windows.durations import in_time, later_by
from pipeline.windows.kinds import Session
from pipeline.windows.operator import Options, TimeWindows
from pipeline.windows.session_set import OpenSession, SessionSet


class SessionWindows(TimeWindows):
    """`windows` has the open sessions of a key (see `SessionSet`).

    A session that has not fired has a timer somewhere within it. If it has grown since that was set, the timer sets the
    next one, so that a record sets none.
    """

    def __init__(self, window: Session, aggregation: Aggregation, options: Options) -> None:
        super().__init__(window.shown, aggregation, options)
        self._gap = window.gap_ms()
        self._frees = ("a session", later_by("the time of its last record", self._gap))

    def open(self, ctx: OperatorContext) -> None:
        super().open(ctx)
        self._sessions = SessionSet(self.windows, self._gap)

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any] | None:
        at = ctx.timestamp
        if at is None:
            self.refuse(value, ctx)
        reached = ctx.key_watermark
        found = self._sessions.around(at)
        if not found and reached is not None and reached >= self.closes(at + self._gap):
            ctx.side_output(LATE, value)
            return None
        begin = min(at, found[0].begin) if found else at
        last = max(at, found[-1].last) if found else at
        accumulators = self._with(value, at, found)
        self._sessions.put(begin, last, accumulators, found)
        if self._early:
            for one in found:
                if one.begin != begin:
                    self.forget(one.begin)
        end = last + self._gap
        if reached is not None and reached >= end - 1:
            ctx.timer(self.closes(end))
            return None if reached >= self.closes(end) else (self.result(begin, end, accumulators, False, ctx),)
        if not any(reached is None or reached < one.last + self._gap - 1 for one in found):
            ctx.timer(in_time(end - 1))
        return None if self._only_final else self.update(begin, ctx)

    def _with(self, value: Any, at: int, found: list[OpenSession]) -> Any:
        """The accumulators of sessions and a record that joins them."""
        if not found:
            return self._add(self._nothing, value, at)
        accumulators = self._add(found[0].accumulators, value, at)
        for one in found[1:]:
            accumulators = self._merge(accumulators, one.accumulators)
        return accumulators

    def fire(self, at: int, ctx: OperatorContext) -> Iterable[Any]:
        reached = ctx.key_watermark
        assert reached is not None
        if at == MAX_WATERMARK:
            due = self._sessions.all()
        else:
            holding = (self._sessions.holding(time) for time in (at - self._lateness, at))
            due = list({one.begin: one for one in holding if one is not None}.values())
        for one in due:
            yield from self._fire(one, at, reached, ctx)
        if not self._sessions:
            self.leave(ctx)

    def _fire(self, one: OpenSession, at: int, reached: int, ctx: OperatorContext) -> Iterator[Any]:
        end = one.last + self._gap
        if reached >= self.closes(end):
            self._sessions.remove(one.begin)
            self.forget(one.begin)
            yield self.result(one.begin, end, one.accumulators, True, ctx)
        elif at < end - 1:
            ctx.timer(in_time(end - 1))
        elif at == end - 1:
            ctx.timer(self.closes(end))
            yield self.result(one.begin, end, one.accumulators, False, ctx)

    def results_of(self, updates: Iterable[Any], ctx: OperatorContext) -> Iterable[Any]:
        reached = ctx.key_watermark
        told = set()
        for time in updates:
            one = self._sessions.holding(time)
            if one is None or one.begin in told:
                continue  # before there were pages, what had become part of another one stayed noted
            told.add(one.begin)
            end = one.last + self._gap
            if reached is None or reached < end - 1:
                yield self.result(one.begin, end, one.accumulators, False, ctx)
