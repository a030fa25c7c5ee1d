"""`a.join_as_of(b)`: each record with what was known at its time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, ClassVar, cast

from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.options import flag
from checkpoint.state import ValueState
from checkpoint.state.stores import MISSING, ValueStore
from pipeline.errors import PipelineError
from pipeline.joins.kept import RECORDS, TIMES, Kept, count_until, insert, kept, split_off
from pipeline.joins.options import (
    LEFT,
    MOST_AT_ONCE,
    RIGHT,
    How,
    Select,
    checked_age,
    checked_how,
    clamped,
    output_of,
    timestamp_of,
    too_late,
)
from pipeline.operators import KeyedOperator, OperatorContext


class AsOfJoin(KeyedOperator):
    """Joins a left record with the newest right one, a *version*, that is not newer than it.

    A left record waits until the watermark reaches it, so that all versions up to it are there. Versions are kept back
    to the newest one that the watermark has reached.
    """

    needs_event_time: ClassVar[str] = "joins each record with what was known at its time"
    _inputs = (LEFT, RIGHT)
    _timers_can_be_left_out = False  # one lets many records go

    waiting: ValueState[Kept | None] = ValueState()
    """Left records above the watermark."""
    versions: ValueState[Kept | None] = ValueState()

    def __init__(
        self,
        how: How = "inner",
        max_age: Any = None,
        wait: bool = True,
        select: Select | None = None,
        who: str = "join_as_of",
    ) -> None:
        """
        Args:
            how: "inner" or "left".
            max_age: by how much a version may be older than a record, in seconds or as `timedelta`; `None` = by any
                time.
            wait: whether a record waits until the watermark reaches it; `False` = it takes what is there.
            who: names the join in errors.

        Raises:
            PipelineError: an argument has a value that it can't have.
        """
        self._who = who
        self._outer = checked_how(who, how, ("inner", "left")) == "left"
        self._max_age = checked_age(who, max_age)
        try:
            self._wait = flag(wait, f"{who}: wait")
        except ValueError as error:
            raise PipelineError(str(error)) from None
        self._output = output_of(who, select)

    def open(self, ctx: OperatorContext) -> None:
        self._peek_waiting = cast(ValueStore, self.waiting.store).peek
        self._peek_versions = cast(ValueStore, self.versions.store).peek

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        at, watermark = timestamp_of(self._who, LEFT, value, ctx), ctx.key_watermark
        if watermark is not None and at <= watermark:
            too_late(LEFT, value, ctx)
        elif not self._wait:
            return self._joined(at, value, ctx)
        else:
            records = self.waiting.value
            if records is None:
                self.waiting.value = kept(at, value)
                ctx.timer(at)
            elif insert(records, at, value) == 0:
                ctx.timer(at)
        return ()

    def process_connected(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        at, watermark = timestamp_of(self._who, RIGHT, value, ctx), ctx.key_watermark
        if watermark is not None and at <= watermark:
            too_late(RIGHT, value, ctx)
            return ()
        versions = self.versions.value
        if versions is None:
            index = 0
            self.versions.value = versions = kept(at, value)
        else:
            index = insert(versions, at, value)
        if index <= 1:
            self._time_next(versions, ctx)
        return ()

    def on_timer(self, timestamp: int, ctx: OperatorContext) -> Iterable[Any]:
        watermark = ctx.key_watermark
        assert watermark is not None
        reached, waiting = watermark, self._peek_waiting()
        if waiting is not MISSING and waiting[TIMES][0] <= watermark:
            count = count_until(waiting, watermark)
            if watermark != MAX_WATERMARK:
                count = min(count, MOST_AT_ONCE)
            if count == len(waiting[TIMES]):
                self.waiting.clear()
            else:
                waiting = split_off(cast(Kept, self.waiting.value), count)
                following = self._peek_waiting()[TIMES][0]
                reached = min(reached, following - 1)
                ctx.timer(following)
            for at, record in zip(waiting[TIMES], waiting[RECORDS], strict=True):
                ctx.emit_at(at)
                yield from self._joined(at, record, ctx)
        self._let_go(reached, ctx)

    def snapshot(self, checkpoint_id: int) -> Any:
        return {"max_age": self._max_age}

    def restore(self, state: Any) -> None:
        before = state["max_age"]
        if before is not None and (self._max_age is None or before < self._max_age):
            raise PipelineError(
                f"{self._who}: the checkpoint's state is that of a join with max_age={before / 1000:g}, and older "
                "versions are gone: give the step another id, so that it begins anew, or leave max_age as it was"
            )

    # -- inside -------------------------------------------------------------------------------------------------

    def _joined(self, at: int, record: Any, ctx: OperatorContext) -> Iterable[Any]:
        """The result of a left record, by the versions that are there."""
        version, versions = None, self._peek_versions()
        if versions is not MISSING:
            i = bisect_right(versions[TIMES], at) - 1
            if i >= 0 and (self._max_age is None or at - versions[TIMES][i] <= self._max_age):
                version = versions[RECORDS][i]
        if version is None and not self._outer:
            return ()
        return (self._output(ctx.key, record, version),)

    def _let_go(self, reached: int, ctx: OperatorContext) -> None:
        """Remove versions that no record above `reached` can need."""
        versions = self._peek_versions()
        if versions is MISSING:
            return
        count = count_until(versions, reached)
        if count and self._lasts(versions, count - 1, reached):
            count -= 1
        if count == len(versions[TIMES]):
            self.versions.clear()
            return
        if count:
            split_off(cast(Kept, self.versions.value), count)
        self._time_next(self._peek_versions(), ctx)

    def _lasts(self, versions: Kept, i: int, reached: int) -> bool:
        """Whether a record above `reached` may need a version, if no newer one is below it."""
        if versions[RECORDS][i] is None:
            return False
        return self._max_age is None or clamped(versions[TIMES][i] + self._max_age) > reached

    def _time_next(self, versions: Kept, ctx: OperatorContext) -> None:
        """Set a timer for when the oldest version may go."""
        times = versions[TIMES]
        if versions[RECORDS][0] is None:
            ctx.timer(times[0])
        elif self._max_age is not None:
            ctx.timer(clamped(times[0] + self._max_age))
        if len(times) > 1:
            ctx.timer(times[1])
