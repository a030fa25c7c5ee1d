"""`distinct`: the first record of each key, and no other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from checkpoint.options import Seconds
from checkpoint.state import TTL, MapState, ValueState
from checkpoint.state.ttl import ClockName
from pipeline.by_event_time import LATE
from pipeline.by_key.common import timestamp_of
from pipeline.errors import PipelineError
from pipeline.operators import KeyedOperator, OperatorContext
from pipeline.windows.durations import milliseconds

_NOTHING: Final = ()


class Distinct(KeyedOperator):
    """Goes by the order in which records come."""

    seen: ValueState[bool] = ValueState(default=False)

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        seen = self.seen
        if seen.value:
            return _NOTHING
        seen.value = True
        return (value,)


class DistinctByTime(KeyedOperator):
    """Goes by the records' timestamps, so that the watermark decides nothing but what is too late.

    Of each record that has passed its time is kept until no record can come any more that lies within reach of it and
    isn't late.
    """

    needs_event_time: ClassVar[str] = "tells duplicates by event time"

    seen: MapState[int, bool]

    def __init__(self, within: int, lateness: int) -> None:
        """Args: in milliseconds."""
        self._within = within
        self._lateness = lateness

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        at, within, seen = timestamp_of("distinct", value, ctx), self._within, self.seen
        for other in seen:
            if -within < other - at < within:
                return _NOTHING
        watermark = ctx.key_watermark
        if watermark is not None and at <= watermark - self._lateness:
            ctx.side_output(LATE, value)  # one that it repeats may be forgotten
            return _NOTHING
        seen[at] = True
        return (value,)


def distinct(within: Seconds | None, time: ClockName, lateness: Seconds) -> KeyedOperator:
    """See `KeyedStream.distinct`.

    Raises:
        PipelineError: the options don't go together.
    """
    if time not in ("event", "processing"):
        raise PipelineError(f'distinct: time must be "event" or "processing", not {time!r}')
    late = milliseconds(lateness, "distinct: lateness", 0)
    if late and (within is None or time != "event"):
        raise PipelineError(
            "distinct: lateness says how late by event time a record may be, so it goes with within=… and "
            'time="event" only'
        )
    if within is None:
        return Distinct()
    span = milliseconds(within, "distinct: within")

    if time == "processing":

        class DistinctWithin(Distinct):
            seen = ValueState(default=False, ttl=TTL(span / 1000))

        return DistinctWithin()

    class DistinctWithinTime(DistinctByTime):
        seen: MapState[int, bool] = MapState(ttl=TTL((span + late) / 1000, time="event"))

    return DistinctWithinTime(span, late)
