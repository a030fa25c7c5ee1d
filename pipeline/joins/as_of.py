"""`a.join_as_of(b)`: each record with what was known at its time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, cast

from checkpoint.options import flag
from checkpoint.state import ValueState
from checkpoint.state.stores import PagedStore
from pipeline.errors import PipelineError
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
from pipeline.paged.timeline import Timeline
from pipeline.windows.durations import FOR_EVER, later_by


class AsOfJoin(KeyedOperator):
    """Joins a left record with the newest right one, a *version*, that is not newer than it.

    A left record waits until the watermark reaches it, so that all versions up to it are there. Versions are kept back
    to the newest one that the watermark has reached.
    """

    needs_event_time: ClassVar[str] = "joins each record with what was known at its time"
    _inputs = (LEFT, RIGHT)
    _timers_can_be_left_out = False  # one lets many records go
    _timers_end = True

    waiting: ValueState[Any] = ValueState()
    """Left records above the watermark."""
    versions: ValueState[Any] = ValueState()

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
        self._outlived = False
        """There may be versions that have no timer, or one for later than `max_age` has it."""

    def open(self, ctx: OperatorContext) -> None:
        self._waiting = Timeline(self.waiting)
        self._versions = Timeline(self.versions)
        if self._outlived:
            for _ in cast(PagedStore, self.versions.store).each_key():
                self._time_next(ctx)

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        at, watermark = timestamp_of(self._who, LEFT, value, ctx), ctx.key_watermark
        if watermark is not None and at <= watermark:
            too_late(LEFT, value, ctx)
        elif not self._wait:
            return self._joined(at, value, ctx)
        elif self._waiting.insert(at, value):
            ctx.timer(at)
        return ()

    def process_connected(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        at, watermark = timestamp_of(self._who, RIGHT, value, ctx), ctx.key_watermark
        if watermark is not None and at <= watermark:
            too_late(RIGHT, value, ctx)
            return ()
        versions = self._versions
        if versions.insert(at, value) or at <= versions.first(2)[-1]:
            self._time_next(ctx)
        return ()

    def on_timer(self, timestamp: int, ctx: OperatorContext) -> Iterable[Any]:
        watermark = ctx.key_watermark
        assert watermark is not None
        reached = watermark
        if gone := self._waiting.drop(self._waiting.count_until(watermark, MOST_AT_ONCE)):
            for following in self._waiting.first():
                reached = min(reached, following - 1)
                ctx.timer(following)
            for at, record in zip(*gone, strict=True):
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
        self._outlived |= before != self._max_age

    def _keeps(self) -> tuple[str, ...]:
        waits = "is kept until the watermark passes its time" if self._wait else "is not kept"
        until = "a newer one is below the watermark"
        if self._max_age is None:
            last = f"the newest one {FOR_EVER}, unless a record None takes one away"
        else:
            last = f"the newest one until the watermark passes {later_by('its time', self._max_age)}"
        return (f"a record of the left stream {waits}", f"a version of the right stream is kept until {until}, {last}")

    # -- inside -------------------------------------------------------------------------------------------------

    def _joined(self, at: int, record: Any, ctx: OperatorContext) -> Iterable[Any]:
        """The result of a left record, by the versions that are there."""
        found = self._versions.last(at)
        version = None
        if found is not None and (self._max_age is None or at - found[0] <= self._max_age):
            version = found[1]
        if version is None and not self._outer:
            return ()
        return (self._output(ctx.key, record, version),)

    def _let_go(self, reached: int, ctx: OperatorContext) -> None:
        """Remove versions that no record above `reached` can need, no more than `MOST_AT_ONCE`."""
        versions = self._versions
        count = versions.count_until(reached, MOST_AT_ONCE + 1)
        if count > MOST_AT_ONCE:
            count = MOST_AT_ONCE
        elif (newest := versions.last(reached)) is not None:
            since, version = newest
            count -= self._lasts(since, version, reached)
        if count:  # else those that are there have their timers
            versions.drop(count)
            self._time_next(ctx)

    def _lasts(self, since: int, version: Any, reached: int) -> bool:
        """Whether a record above `reached` may need a version, if no newer one is below it."""
        if version is None:
            return False
        return self._max_age is None or clamped(since + self._max_age) > reached

    def _time_next(self, ctx: OperatorContext) -> None:
        """Set a timer for when the oldest version may go."""
        times = self._versions.first(2)
        if not times:
            return
        oldest = self._versions.last(times[0])
        if oldest is not None and oldest[1] is None:
            ctx.timer(times[0])
        elif self._max_age is not None:
            ctx.timer(clamped(times[0] + self._max_age))
        if len(times) > 1:
            ctx.timer(times[1])
