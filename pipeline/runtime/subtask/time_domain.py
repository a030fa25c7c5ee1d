"""Where in a chain which watermark holds: from its head or an `assign_timestamps` step up to the next such steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checkpoint.errors import Explained
from checkpoint.shown import shown
from checkpoint.watermark_generator import NO_RECORD, WatermarkGenerator
from checkpoint.watermarks import MAX_WATERMARK
from pipeline.graph import PlannedStep, StepKind, Vertex
from pipeline.runtime.subtask.context import Context
from pipeline.watermarks import WatermarkStrategy

Push = Callable[[Any], None]


class TimeDomain:
    """What the steps that share a watermark have in common."""

    def __init__(self, step: str, generator: WatermarkGenerator | None = None, by_split: bool = False) -> None:
        self.step = step
        """Id of the step that it begins with."""
        self.generator = generator
        """Of an `assign_timestamps` step; `None` where the watermark comes from the input."""
        self.by_split = by_split
        """The generator is asked for the split that the source read the record from."""
        self.watermark: int | None = None
        """The last one passed on."""
        self.idle = False
        """What was told downstream."""
        self.since = 0.0
        """When the last watermark was passed on, or the subtask began, by the task's clock."""
        self.late = 0
        """Records that an `assign_timestamps` step has found at or below its watermark."""
        self.children: list[TimeDomain] = []
        """Domains that begin with a step of this one."""
        self.on_watermark: list[Push] = []
        """The operators that want to know, in the order of the chain."""
        self.wake: Callable[[], None] = lambda: None
        """Called before the first record after idleness."""


class TimeDomains:
    """All domains of a vertex."""

    def __init__(self, vertex: Vertex, clock: Callable[[], float]) -> None:
        steps = {step.id: step for step in vertex.steps}
        self.head = TimeDomain(vertex.head.id)
        """Of the input. If the vertex begins with `assign_timestamps`, no step emits into it."""
        self.of: dict[str, TimeDomain] = {}
        """The domain that each step emits into, by step id."""
        self.generated: list[TimeDomain] = []
        """Those with a generator, in the order of the chain."""
        for step in vertex.steps:
            domain = self.head if step.chained_to is None else self.of[step.chained_to]
            if step.kind is StepKind.ASSIGN_TIMESTAMPS:
                strategy: WatermarkStrategy = step.payload
                generator = WatermarkGenerator(
                    strategy.lateness, strategy.idle_after, clock(), strategy.quiet_after, strategy.max_ahead
                )
                child = TimeDomain(step.id, generator, _sees_splits(step, steps))
                domain.children.append(child)
                self.generated.append(child)
                domain = child
            self.of[step.id] = domain


def reads_by_split(vertex: Vertex) -> bool:
    """Whether the source has to tell which split a record comes from."""
    steps = {step.id: step for step in vertex.steps}
    return any(step.kind is StepKind.ASSIGN_TIMESTAMPS and _sees_splits(step, steps) for step in vertex.steps)


def _sees_splits(step: PlannedStep, steps: dict[str, PlannedStep]) -> bool:
    """Whether the record in progress is still the source's: `map_batches` hands on others."""
    one: PlannedStep = step
    while one.chained_to is not None:
        one = steps[one.chained_to]
        if one.kind is StepKind.MAP_BATCHES:
            return False
    return one.kind is StepKind.SOURCE


class BadTimestamp(Explained, ValueError):
    """A record from which no timestamp could be taken."""


def assigner(step: str, strategy: WatermarkStrategy, context: Context, domain: TimeDomain, downstream: Push) -> Push:
    """Hands records on with their timestamps, and shows those to the domain's generator."""
    timestamp_of, generator, by_split = _extractor(step, strategy), domain.generator, domain.by_split
    assert generator is not None
    max_ahead = generator.max_ahead
    last: Any = None
    split = generator.split(None) if not by_split else None

    def push(value: Any) -> None:
        nonlocal last, split
        at = timestamp_of(value)
        if type(at) is not int or not NO_RECORD < at < MAX_WATERMARK:
            raise BadTimestamp(
                f"assign_timestamps {step!r}: the timestamp of a record is {shown(at)}, but must be an int, in "
                f"milliseconds since the epoch; the record: {shown(value, 200)}"
            )
        if by_split:
            splits = context.source_splits
            id = splits[context.row] if type(splits) is list else splits
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
        outer_timestamp, outer_watermark = context.timestamp, context.watermark
        context.timestamp, context.watermark = at, watermark
        downstream(value)
        context.timestamp, context.watermark = outer_timestamp, outer_watermark

    return push


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
