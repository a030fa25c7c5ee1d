"""`assign_timestamps`. In `push` the user's code is called by the name `function` (see `failed_step`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checkpoint.errors import Explained
from checkpoint.event_time.bounds import MAX_WATERMARK, NO_RECORD
from checkpoint.shown import no_field, shown
from pipeline.runtime.subtask.steps.compiled import CompiledStep, Push, Site
from pipeline.runtime.subtask.steps.guarded import guarded_choice
from pipeline.watermarks import WatermarkStrategy


class BadTimestamp(Explained, ValueError):
    """A record from which no timestamp could be taken."""


def compile_assign_timestamps(site: Site) -> CompiledStep:
    """Hands records on with their timestamps, and shows those to the generator of the domain that begins here."""
    function = _extractor(site.step.id, site.step.payload)
    if site.failed is None:
        return CompiledStep(_stamping(site, function), runs=function)
    known: list[int] = []
    """The timestamp of the record in progress."""
    stamp = _stamping(site, lambda value: known[0])

    def timed(value: Any) -> Push:
        at = function(value)
        _check(site.step.id, at, value)
        known[:] = (at,)
        return stamp

    return CompiledStep(guarded_choice(timed, site.failed), runs=timed)


def _stamping(site: Site, function: Callable[[Any], Any]) -> Push:
    step, record, domain, downstream = site.step.id, site.record, site.domain, site.downstream
    generator, by_split = domain.generator, domain.by_split
    assert generator is not None
    max_ahead = generator.max_ahead
    last: Any = None
    split = generator.split(None) if not by_split else None

    def push(value: Any) -> None:
        nonlocal last, split
        at = function(value)
        if type(at) is not int or not NO_RECORD < at < MAX_WATERMARK:
            _check(step, at, value)
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

    return push


def _check(step: str, at: Any, value: Any) -> None:
    if type(at) is not int or not NO_RECORD < at < MAX_WATERMARK:
        raise BadTimestamp(
            f"assign_timestamps {step!r}: the timestamp of a record is {shown(at)}, but must be an int, in "
            f"milliseconds since the epoch; the record: {shown(value, 200)}"
        )


def _extractor(step: str, strategy: WatermarkStrategy) -> Callable[[Any], Any]:
    field = strategy.timestamp
    if callable(field):
        return field

    def timestamp_of(value: Any) -> Any:
        try:
            return value[field]
        except (KeyError, IndexError, TypeError) as error:
            advice = "filter such records out before it, or give it a function that has an answer for them"
            raise BadTimestamp(f"assign_timestamps {step!r}: {no_field(value, field, advice)}") from error

    return timestamp_of
