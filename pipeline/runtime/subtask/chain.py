"""The operators of one subtask, joined into functions that push a record from one to the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from checkpoint.codec import copied, is_plain
from checkpoint.edge_format import EdgeFormat
from checkpoint.metrics import MetricSink
from checkpoint.state import BroadcastStates, FrozenLists, KeyedBackend, OperatorLists
from checkpoint.state.contents import StateContent
from formats.arrow_rows import rows
from pipeline.graph import StepKind
from pipeline.on_error import ERRORS
from pipeline.plan import PlannedStep, Vertex
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.event_time.domains import TimeDomain, TimeDomains
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.sink_driver import SinkDriver
from pipeline.runtime.subtask.steps.compiled import CompiledStep, Push, PushBatch, Site, Timestamps
from pipeline.runtime.subtask.steps.failed_records import FailedRecords
from pipeline.runtime.subtask.steps.failed_step import step_of
from pipeline.runtime.subtask.steps.table import COMPILERS
from pipeline.runtime.subtask.task_metrics import TaskMetrics


def is_fresh(step: PlannedStep) -> bool:
    """Whether nobody has what the step emits but those that get it."""
    if step.on_error is not None:
        return True  # what is held back is copied
    if step.kind is StepKind.ASSIGN_TIMESTAMPS:
        return not callable(step.payload.timestamp)  # a record that only passes, and was the step's alone
    if step.kind in (StepKind.PEEK, StepKind.LIMIT_RATE):
        return True  # as above: the function of `peek` has a copy
    return step.kind is StepKind.SOURCE and bool(step.payload.fresh_records)


def fan_out(emitters: list[Push], chained: list[Push], fresh: bool) -> Push:
    """Hands a record to all. Emitters encode it at once. A chained step gets what a channel would have brought it: the
    step that emits it, and the others that get it, may keep it and change it.

    Args:
        fresh: nobody else has the record (`is_fresh`), so the last step needs no copy.
    """
    copies = chained[:-1] if fresh else chained
    targets = [*emitters, *map(_copied, copies), *chained[len(copies) :]]
    if len(targets) == 1:
        return targets[0]

    def push(value: Any) -> None:
        for target in targets:
            target(value)

    return push


def _copied(downstream: Push) -> Push:
    def push(value: Any) -> None:
        # `copied` in two thirds of the time for nearly all records.
        downstream(value.copy() if type(value) is dict and is_plain(value) else copied(value))

    return push


def fan_out_batches(record: RecordInProgress, whole: list[PushBatch], by_row: list[Push]) -> PushBatch:
    """Hands a record batch to all: whole to the steps that take it so, row by row to the others."""
    targets = [*whole, *(_by_row(record, push) for push in by_row)]
    if len(targets) == 1:
        return targets[0]

    def push_batch(batch: pa.RecordBatch, timestamps: Timestamps) -> None:
        for target in targets:
            target(batch, timestamps)

    return push_batch


def _by_row(record: RecordInProgress, push: Push) -> PushBatch:
    def push_rows(batch: pa.RecordBatch, timestamps: Timestamps) -> None:
        first, outer = record.row, record.timestamp
        for i, row in enumerate(rows(batch)):
            record.row = first + i
            record.timestamp = None if timestamps is None else timestamps[i]
            push(row)
        record.row, record.timestamp = first, outer

    return push_rows


Outputs: TypeAlias = Mapping[tuple[str, str | None], list[Push]]
"""Emitters of the outgoing edges by (step id, side output tag or None)."""


@dataclass(frozen=True)
class ChainEntry:
    """Where the records of an edge enter a subtask's chain."""

    push: Callable[[Any], None]
    format: EdgeFormat
    inside: TimeDomain | None = None
    """For what was in flight between steps that are chained now, the domain there; `None` = they enter at the head."""

    @property
    def at_head(self) -> bool:
        return self.inside is None


class Chain:
    """The steps of a vertex in one subtask.

    `push` takes a record of the head step's main input (for a source vertex: a record of the source) through all of
    them, depth first, so that between two records nothing is in progress, save what `flush` hands over. What one step
    hands to the next is copied as a channel would copy it, so that chaining changes no result.
    """

    def __init__(
        self,
        vertex: Vertex,
        record: RecordInProgress,
        contexts: Mapping[str, Context],
        sinks: Mapping[str, SinkDriver],
        outputs: Outputs,
        backend: KeyedBackend | None,
        clock: Callable[[], float] = time.monotonic,
        interrupt: Callable[[], None] = lambda: None,
        metrics: MetricSink | None = None,
    ):
        """
        Args:
            record: shared by the steps.
            contexts: of every step, by step id (`contexts_of`).
            sinks: the sink steps' drivers, by step id.
            backend: keyed state of the head, if it is a keyed operator.
            clock: in seconds; measures what the functions of `map_batches` take.
            interrupt: makes the task leave its record loop, since the next record has to wait.
            metrics: where failed records are counted; `None`: nobody asks.
        """
        self._metrics = metrics if metrics is not None else TaskMetrics(clock)
        self.head = vertex.head.id
        self.record = record
        self.contexts = contexts
        self.time = TimeDomains(vertex, contexts, clock)
        """Where in the chain which watermark holds."""
        self._steps: dict[str, CompiledStep] = {}
        """Last first."""
        self._opened: list[str] = []
        for step in reversed(vertex.steps):
            site = self._site(step, vertex, sinks.get(step.id), outputs, backend, clock, interrupt)
            self._steps[step.id] = compiled = COMPILERS[step.kind](site)
            if compiled.on_watermark is not None:
                self.time.of[step.id].listeners.insert(0, (self.contexts[step.id], compiled.on_watermark))
        self._flushes = [one.flush for one in reversed(self._steps.values()) if one.flush is not None]
        self.pacers = [one.pacer for one in self._steps.values() if one.pacer is not None]
        """Steps that may have the next record wait."""
        self.operators = {id: one.operator for id, one in self._steps.items() if one.operator is not None}
        """By step id, last first."""
        self._broadcast = {id: one.broadcast for id, one in self._steps.items() if one.broadcast is not None}
        self._lists = {id: one.lists for id, one in self._steps.items() if one.lists is not None}
        head = self._steps[self.head]
        self.push = head.push
        self.push_batch = head.push_batch
        """As `push`, for a record batch; `None` if no step that would get it takes batches."""
        self.push_connected = head.push_connected
        """For the head's second input; `None` if it has none."""
        self.calls = head.calls
        """The requests of the head, if it is a `map_async` step."""
        self.on_timer = head.on_timer
        """Takes the time of a timer of the current key; `None` if the head has no timers."""

    def _site(
        self,
        step: PlannedStep,
        vertex: Vertex,
        sink: SinkDriver | None,
        outputs: Outputs,
        backend: KeyedBackend | None,
        clock: Callable[[], float],
        interrupt: Callable[[], None],
    ) -> Site:
        """All that is behind the step is compiled."""
        behind = [one for one in vertex.steps if one.chained_to == step.id]
        fresh = is_fresh(step)

        def targets(tag: str | None) -> Push:
            chained = [self._steps[one.id].push for one in behind if one.tag == tag]
            return fan_out(outputs.get((step.id, tag), []), chained, fresh)

        tags = {one.tag for one in behind} | {tag for id, tag in outputs if id == step.id}
        sides = {tag: targets(tag) for tag in tags if tag is not None}
        context, failed = self.contexts[step.id], None
        if step.on_error is not None:
            failed = FailedRecords(
                step.id, step.on_error, context, self.record, sides.get(ERRORS), self._metrics, clock
            )
        return Site(
            step,
            self.record,
            context,
            self.time.of[step.id],
            targets(None),
            self._batch_targets(step, behind, outputs),
            sides,
            backend if step.id == self.head else None,
            sink,
            clock,
            interrupt,
            failed,
        )

    def _batch_targets(self, step: PlannedStep, behind: list[PlannedStep], outputs: Outputs) -> PushBatch | None:
        """What takes record batches from `step`; `None` if none of its targets does."""
        if step.kind not in (StepKind.SOURCE, StepKind.MAP_BATCHES):
            return None
        chained = [self._steps[one.id] for one in behind]
        whole = [one.push_batch for one in chained if one.push_batch is not None]
        if not whole:
            return None
        by_row = [one.push for one in chained if one.push_batch is None]
        return fan_out_batches(self.record, whole, [*outputs.get((step.id, None), []), *by_row])

    def entry(self, step: str, number: int) -> Push:
        """What takes a record that was in flight towards a step of this chain; `number` 0: its main input, 1: its
        connected one.

        Raises:
            LookupError: the chain has no such input.
        """
        compiled = self._steps.get(step)
        push = None if compiled is None else compiled.push if number == 0 else compiled.push_connected
        if push is None:
            raise LookupError(f"the chain of {self.head!r} has no input {number} of step {step!r}")
        return push

    def flush(self) -> None:
        """Have the steps hand over what they hold back, the first step first, since it may fill the next."""
        for flush in self._flushes:
            flush()

    def open(self, on_step: Callable[[str], None] = lambda step: None) -> None:
        """Open the operators, last first, so that each finds those behind it ready. `on_step`: told before each."""
        for id, operator in self.operators.items():
            self._opened.append(id)
            on_step(id)
            with self.record.mute():
                operator.open(self.contexts[id])
        if self.calls is not None:
            self._opened.append(self.head)
            on_step(self.head)
            self.calls.open()

    def close(self) -> None:
        """Close what was opened, the head first.

        Raises:
            Exception: what a `close` raised, after all others were closed.
        """
        with self.record.mute(), ExitStack() as stack:
            for id in self._opened:
                stack.callback(self._closing(id))
            self._opened = []

    def _closing(self, id: str) -> Callable[[], None]:
        if id == self.head and self.calls is not None:
            return self.calls.close
        return self.operators[id].close

    def step_of(self, error: BaseException) -> str | None:
        """The step whose code an exception came from; `None` where that can't be told, or there is one step only."""
        return None if len(self._steps) == 1 else step_of(error, self._steps)

    def snapshot(self, checkpoint_id: int) -> dict[str, Any]:
        """Operators' own state by step id; steps without are left out."""
        with self.record.mute():
            states = {id: operator.snapshot(checkpoint_id) for id, operator in self.operators.items()}
        return {id: state for id, state in states.items() if state is not None}

    def broadcast_snapshot(self) -> dict[str, dict[str, dict[bytes, bytes]]]:
        """Broadcast state by step id, encoded; later changes don't touch it. Steps that have none are left out."""
        states = {id: broadcast.snapshot() for id, broadcast in self._broadcast.items()}
        return {id: state for id, state in states.items() if state}

    def broadcast_contents(self) -> dict[str, dict[str, Any]]:
        """What the entries of `broadcast_snapshot` are (`StateContent.to_wire`), by step id and state."""
        found = {id: broadcast.contents() for id, broadcast in self._broadcast.items()}
        return {
            id: {name: content.to_wire() for name, content in contents.items()}
            for id, contents in found.items()
            if contents
        }

    def restore_broadcast(
        self,
        step: str,
        states: Mapping[str, Mapping[bytes, bytes]],
        allow_unclaimed: bool = False,
        contents: Mapping[str, Any] | None = None,
    ) -> None:
        """Take over what `broadcast_snapshot` and `broadcast_contents` gave for a step; comes before `open`.

        Raises:
            StateRestoreError: the operator doesn't declare one of the states, an entry doesn't fit it, or a `migrate`
                has failed.
        """
        known = {name: StateContent.from_wire(wire) for name, wire in (contents or {}).items()}
        self._broadcast.get(step, BroadcastStates()).restore(states, allow_unclaimed, known)

    def freeze_lists(self) -> dict[str, FrozenLists]:
        """Operator list and union state by step id; later changes don't touch it. Comes after `snapshot`, in which
        operators may bring them up to date."""
        return {id: lists.freeze() for id, lists in self._lists.items()}

    def restore_lists(
        self, step: str, stored: Mapping[str, Mapping[str, Iterable[Any]]], allow_unclaimed: bool = False
    ) -> None:
        """Take over what comes to a step of operator list and union state; comes before `Operator.restore` and `open`.

        Raises:
            StateRestoreError: the operator doesn't declare one of the states.
        """
        self._lists.get(step, OperatorLists()).restore(stored, allow_unclaimed)

    def notify(self, checkpoint_id: int, completed: bool) -> None:
        """Tell the operators how a checkpoint ended."""
        with self.record.mute():
            for operator in self.operators.values():
                if completed:
                    operator.on_checkpoint_complete(checkpoint_id)
                else:
                    operator.on_checkpoint_aborted(checkpoint_id)
