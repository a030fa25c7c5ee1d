"""`assign_timestamps`. In `push` the user's code is called by the name `function` (see `blame`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checkpoint.errors import Explained
from checkpoint.event_time.bounds import MAX_WATERMARK, NO_RECORD
from checkpoint.shown import shown
from pipeline.runtime.subtask.steps.compiled import CompiledStep, Site
from pipeline.watermarks import WatermarkStrategy


class BadTimestamp(Explained, ValueError):
    """A record from which no timestamp could be taken."""


def compile_assign_timestamps(site: Site) -> CompiledStep:
    """Hands records on with their timestamps, and shows those to the generator of the domain that begins here."""
    step, record, domain, downstream = site.step.id, site.record, site.domain, site.downstream
    function, generator, by_split = _extractor(step, site.step.payload), domain.generator, domain.by_split
    assert generator is not None
    max_ahead = generator.max_ahead
    last: Any = None
    split = generator.split(None) if not by_split else None

    def push(value: Any) -> None:
        nonlocal last, split
        at = function(value)
        if type(at) is not int or not NO_RECORD < at < MAX_WATERMARK:
            raise BadTimestamp(
                f"assign_timestamps {step!r}: the timestamp of a record is {shown(at)}, but must be an int, in "
                f"milliseconds since the epoch; the record: {shown(value, 200)}"
            )
        if by_split:
            splits = record.source_splits
            id = splits[record.row] if type(splits) is list else splits
            if split is None or id is not last:
                last, split = id, generator.split(id)
        assert split is not None
        if not split.touched:
            generator.touch(split, at)
            if domain.idle:
                domain.wake()
        largest = split.largest
        if at > largest:
            if at - largest <= max_ahead and at <= generator.horizon:
                split.largest = at
            else:
                generator.jump(split, at)
        watermark = domain.watermark
        if watermark is not None and at <= watermark:
            domain.late += 1
        outer, record.timestamp = record.timestamp, at
        downstream(value)
        record.timestamp = outer

    return CompiledStep(push, runs=function)


def _extractor(step: str, strategy: WatermarkStrategy) -> Callable[[Any], Any]:
    field = strategy.timestamp
    if callable(field):
        return field

    def timestamp_of(value: Any) -> Any:
        try:
            return value[field]
        except (KeyError, IndexError, TypeError) as error:
            raise BadTimestamp(
                f"assign_timestamps {step!r}: the record has no {field!r}: {shown(value, 200)}; filter such records "
                "out before it, or give it a function that has an answer for them"
            ) from error

    return timestamp_of
