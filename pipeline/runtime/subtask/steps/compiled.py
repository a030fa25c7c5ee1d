"""What is known of a step before it is compiled, and what the chain gets of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from checkpoint.state import BroadcastStates, KeyedBackend, OperatorLists
from pipeline.operators import Operator
from pipeline.plan import PlannedStep
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.event_time.domains import TimeDomain
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.sink_driver import SinkDriver
from pipeline.runtime.subtask.steps.failed_records import FailedRecords

if TYPE_CHECKING:
    from pipeline.runtime.subtask.steps.async_calls import AsyncCalls

Push: TypeAlias = Callable[[Any], None]
"""Takes a record through a step and all that is behind it."""
Timestamps: TypeAlias = list[int | None] | None
"""One a row; `None` = none has any."""
PushBatch: TypeAlias = Callable[[pa.RecordBatch, Timestamps], None]
"""As `Push`, for a batch. `RecordInProgress.row` is the source's record that its first row is, if it is one."""


@dataclass(frozen=True)
class Site:
    """A step and its place in the chain, for its compiler."""

    step: PlannedStep
    record: RecordInProgress
    context: Context
    """For the step's user code."""
    domain: TimeDomain
    """The one that the step emits into."""
    downstream: Push
    downstream_batch: PushBatch | None
    """Takes what `downstream` would as a whole; `None` if no step behind does."""
    sides: Mapping[str, Push]
    """Side outputs that somebody reads, by tag."""
    backend: KeyedBackend | None
    """Keyed state, if the step is the head and a keyed operator."""
    sink: SinkDriver | None
    """What drives the sink, if the step is one."""
    clock: Callable[[], float]
    """In seconds; measures what functions take."""
    interrupt: Callable[[], None]
    """Makes the task leave its record loop and look around."""
    failed: FailedRecords | None = None
    """What to do with records that it fails on; `None`: nothing, the attempt fails."""


class Pacer(Protocol):
    """A step that lets so many records pass a second."""

    what: str
    """What it waits for; reads on from "waits for"."""

    def seconds_left(self, now: float) -> float:
        """How long the next record must wait; 0 = not at all."""

    def waits_since(self, now: float) -> float | None:
        """Since when it holds records up, a clock value; `None` = it lets them pass."""


@dataclass(frozen=True)
class CompiledStep:
    push: Push
    """For the records of its main input."""
    runs: Any = None
    """What `step_of` knows the step's frames by: the user's function or operator, or what drives it."""
    push_connected: Push | None = None
    """For those of its second input; `None` if it has none."""
    push_batch: PushBatch | None = None
    """For record batches; `None` if it takes none."""
    on_timer: Push | None = None
    """Takes the time of a timer of the current key."""
    on_watermark: Push | None = None
    """Takes a watermark, if the step wants to know."""
    flush: Callable[[], None] | None = None
    """Hands over what the step holds back."""
    pacer: Pacer | None = None
    """Says when the next record may come."""
    operator: Operator | None = None
    broadcast: BroadcastStates | None = None
    lists: OperatorLists | None = None
    calls: AsyncCalls | None = None
    """Its requests, if it is a `map_async` step."""
