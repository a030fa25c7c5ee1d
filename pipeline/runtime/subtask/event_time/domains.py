"""Where in a chain which watermark holds: from its head or an `assign_timestamps` step up to the next such steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from checkpoint.event_time.generator import WatermarkGenerator
from pipeline.graph import StepKind
from pipeline.plan import PlannedStep, Vertex
from pipeline.runtime.subtask.context import Context
from pipeline.watermarks import WatermarkStrategy


class TimeDomain:
    """What the steps that share a watermark have in common."""

    def __init__(self, step: str, generator: WatermarkGenerator | None = None, by_split: bool = False) -> None:
        self.step = step
        """Id of the step that it begins with."""
        self.generator = generator
        """Makes the watermarks, if the domain begins with `assign_timestamps`; `None` = they come from the input."""
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
        self.contexts: list[Context] = []
        """Those of its steps."""
        self.listeners: list[tuple[Context, Callable[[Any], None]]] = []
        """Steps that want to know of each watermark, in the order of the chain: each one's context and `on_watermark`.
        """
        self.wake: Callable[[], None] = lambda: None
        """Called before the first record after idleness."""

    def show(self, watermark: int | None) -> None:
        """Have the steps see this watermark."""
        for context in self.contexts:
            context.watermark = watermark


class TimeDomains:
    """All domains of a vertex."""

    def __init__(self, vertex: Vertex, contexts: Mapping[str, Context], clock: Callable[[], float]) -> None:
        steps = {step.id: step for step in vertex.steps}
        self.head = TimeDomain(vertex.head.id)
        """The one that the input leads into. If the vertex begins with `assign_timestamps`, no step emits into it."""
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
            domain.contexts.append(contexts[step.id])


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
