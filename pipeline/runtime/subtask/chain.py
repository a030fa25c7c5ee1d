"""The operators of one subtask, joined into functions that push a record from one to the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from traceback import walk_tb
from types import FrameType, FunctionType
from typing import Any, cast

from checkpoint.codec import copied
from checkpoint.errors import Explained
from checkpoint.shown import shown
from checkpoint.state import BroadcastStates, FrozenLists, HeapBackend, OperatorLists, bind
from pipeline.graph import BatchFunction, PlannedStep, StepKind, Vertex
from pipeline.operators import KeyedOperator, Operator
from pipeline.runtime import error_text
from pipeline.runtime.subtask import record_batches
from pipeline.runtime.subtask.batch_driver import BatchDriver
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.record_batches import PushBatch
from pipeline.runtime.subtask.sink_driver import SinkDriver
from pipeline.runtime.subtask.time_domain import TimeDomain, TimeDomains, assigner

Push = Callable[[Any], None]


class Chain:
    """The steps of a vertex in one subtask.

    `push` takes a record of the head step's main input (for a source vertex: a record of the source) through all of
    them, depth first, so that between two records nothing is in progress, save what `flush_batches` hands over. What
    one step hands to the next is copied as a channel would copy it, so that chaining changes no result.
    """

    def __init__(
        self,
        vertex: Vertex,
        context: Context,
        sinks: dict[str, SinkDriver],
        outputs: dict[tuple[str, str | None], list[Push]],
        backend: HeapBackend | None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """
        Args:
            sinks: the sink steps' drivers, by step id.
            outputs: emitters of the outgoing edges by (step id, side output tag or None).
            backend: keyed state of the head, if it is a keyed operator.
            clock: in seconds; measures what the functions of `map_batches` take.
        """
        self.context = context
        self.head = vertex.head.id
        self._steps = vertex.steps
        self._sinks = sinks
        self.operators: dict[str, Operator] = {}
        """By step id, last first."""
        self._opened: list[str] = []
        self._clock = clock
        self._broadcast: dict[str, BroadcastStates] = {}
        """Of the steps that declare some."""
        self._lists: dict[str, OperatorLists] = {}
        """Of the steps that declare some."""
        self._batches: list[tuple[BatchDriver, TimeDomain]] = []
        """Last first."""
        self.time = TimeDomains(vertex, clock)
        """Where in the chain which watermark holds."""
        self.on_timer: Push | None = None
        """Takes the time of a timer of the current key; `None` if the head has no timers."""
        self._connected: dict[str, Push] = {}
        """Second inputs."""
        self._pushes: dict[str, Push] = {}
        self._push_batches: dict[str, PushBatch] = {}
        """Of the steps that take record batches."""
        for step in reversed(vertex.steps):
            self._pushes[step.id] = self._compile(step, vertex, sinks, outputs, self._pushes, backend)
        self.push = self._pushes[vertex.head.id]
        self.push_batch = self._push_batches.get(vertex.head.id)
        """As `push`, for a record batch; `None` if no step that would get it takes batches."""
        self.push_connected = self._connected.get(vertex.head.id)
        """For the head's second input; `None` if it has none."""

    def _compile(
        self,
        step: PlannedStep,
        vertex: Vertex,
        sinks: dict[str, SinkDriver],
        outputs: dict[tuple[str, str | None], list[Push]],
        pushes: dict[str, Push],
        backend: HeapBackend | None,
    ) -> Push:
        fresh = _is_fresh(step)

        def targets(tag: str | None) -> Push:
            chained = [pushes[s.id] for s in vertex.steps if s.chained_to == step.id and s.tag == tag]
            return _fan_out(outputs.get((step.id, tag), []), chained, fresh)

        downstream = targets(None)
        payload = step.payload
        downstream_batch: PushBatch | None = None
        if step.kind in (StepKind.SOURCE, StepKind.MAP_BATCHES):
            downstream_batch = self._batch_targets(step, vertex, outputs)
        match step.kind:
            case StepKind.SOURCE:
                if downstream_batch is not None:
                    self._push_batches[step.id] = downstream_batch
                return downstream
            case StepKind.MAP:
                return _map(payload, downstream)
            case StepKind.FILTER:
                return _filter(payload, downstream)
            case StepKind.FLAT_MAP:
                return _flat_map(payload, downstream)
            case StepKind.SINK:
                return sinks[step.id].push
            case StepKind.MAP_BATCHES:
                schema = payload.schema if isinstance(payload, BatchFunction) else None
                driver = BatchDriver(step.id, payload, downstream, self.context, self._clock, downstream_batch, schema)
                self._batches.append((driver, self.time.of[step.id]))
                self._push_batches[step.id] = driver.push_batch
                return driver.push
            case StepKind.ASSIGN_TIMESTAMPS:
                return assigner(step.id, payload, self.context, self.time.of[step.id], downstream)
            case StepKind.PROCESS:
                self.operators[step.id] = payload
                broadcast, lists = BroadcastStates(), OperatorLists()
                bind(payload, backend if isinstance(payload, KeyedOperator) else None, broadcast, lists)
                if broadcast.declared:
                    self._broadcast[step.id] = broadcast
                if lists.declared:
                    self._lists[step.id] = lists
                tags = {s.tag for s in vertex.steps if s.chained_to == step.id} | {
                    tag for (id, tag) in outputs if id == step.id
                }
                sides = {tag: targets(tag) for tag in tags if tag is not None}
                if isinstance(payload, KeyedOperator) and any(s.chained_to == step.id for s in vertex.steps):
                    downstream = _without_timers(self.context, downstream)
                    sides = {tag: _without_timers(self.context, side) for tag, side in sides.items()}
                pushes_of: list[Push] = []
                for number, name in enumerate(("process", "process_connected")[: 1 + step.connected]):
                    push = _process(payload, name, self.context, downstream, sides)
                    pushes_of.append(_writing(broadcast, push) if number in step.broadcast_inputs else push)
                if step.connected:
                    self._connected[step.id] = pushes_of[1]
                self._compile_time(step.id, payload, downstream, sides, backend)
                return pushes_of[0]
            case StepKind.UNION:
                raise AssertionError("unions are dissolved in the plan")

    def _batch_targets(
        self, step: PlannedStep, vertex: Vertex, outputs: dict[tuple[str, str | None], list[Push]]
    ) -> PushBatch | None:
        """What takes record batches from `step`; `None` if none of its targets does."""
        chained = [s.id for s in vertex.steps if s.chained_to == step.id]
        whole = [self._push_batches[id] for id in chained if id in self._push_batches]
        if not whole:
            return None
        by_row = [self._pushes[id] for id in chained if id not in self._push_batches]
        return record_batches.fan_out(self.context, whole, [*outputs.get((step.id, None), []), *by_row])

    def _compile_time(
        self, id: str, operator: Operator, downstream: Push, sides: dict[str, Push], backend: HeapBackend | None
    ) -> None:
        watermark: Push | None = None
        domain = self.time.of[id]
        # Steps behind it have not got the watermark yet that it is told of, or that set its timers off.
        downstream = _behind(self.context, domain, downstream)
        sides = {tag: _behind(self.context, domain, side) for tag, side in sides.items()}
        if isinstance(operator, KeyedOperator):
            self.on_timer = _process(operator, "on_timer", self.context, downstream, sides)
            self.context.backend = backend
            if type(operator).on_watermark is not Operator.on_watermark:
                watermark = _emitting_nothing(operator, self.context)
        elif type(operator).on_watermark is not Operator.on_watermark:
            watermark = _process(operator, "on_watermark", self.context, downstream, sides)
        if watermark is not None:
            domain.on_watermark.insert(0, watermark)  # steps are compiled last first

    def entry(self, step: str, number: int) -> Push:
        """What takes a record that was in flight towards a step of this chain; `number` 0: its main input, 1: its
        connected one.

        Raises:
            LookupError: the chain has no such input.
        """
        push = (self._pushes if number == 0 else self._connected).get(step)
        if push is None:
            raise LookupError(f"the chain of {self.head!r} has no input {number} of step {step!r}")
        return push

    def flush_batches(self) -> None:
        """Hand over what `map_batches` steps have buffered, the first step first, since it may fill the next."""
        context = self.context
        kept = context.watermark
        for driver, domain in reversed(self._batches):
            context.watermark = domain.watermark
            driver.flush()
        context.watermark = kept

    def open(self, on_step: Callable[[str], None] = lambda step: None) -> None:
        """Open the operators, last first, so that each finds those behind it ready. `on_step`: told before each."""
        for id, operator in self.operators.items():
            self._opened.append(id)
            on_step(id)
            operator.open(self.context)

    def close(self) -> None:
        """Close what was opened, the head first.

        Raises:
            Exception: what a `close` raised, after all others were closed.
        """
        with ExitStack() as stack:
            for id in self._opened:
                stack.callback(self.operators[id].close)
            self._opened = []

    def step_of(self, error: BaseException) -> str | None:
        """The step whose code an exception came from; `None` where that can't be told, or there is one step only."""
        if len(self._steps) == 1:
            return None
        owners = {id(self.operators.get(step.id, step.payload)): step.id for step in self._steps}
        owners |= {id(sink): step for step, sink in self._sinks.items()}
        functions = {s.payload.__code__: s.id for s in self._steps if isinstance(s.payload, FunctionType)}
        found = None
        # The innermost counts: a step's frames lie below those of the steps that it gets its records from.
        for frame, _ in walk_tb(error_text.traceback_of(error)):
            found = functions.get(frame.f_code) or _held_by(frame, owners) or found
        return found

    def snapshot(self, checkpoint_id: int) -> dict[str, Any]:
        """Operators' own state by step id; steps without are left out."""
        states = {id: operator.snapshot(checkpoint_id) for id, operator in self.operators.items()}
        return {id: state for id, state in states.items() if state is not None}

    def broadcast_snapshot(self) -> dict[str, dict[str, dict[bytes, bytes]]]:
        """Broadcast state by step id, encoded; later changes don't touch it. Steps that have none are left out."""
        states = {id: broadcast.snapshot() for id, broadcast in self._broadcast.items()}
        return {id: state for id, state in states.items() if state}

    def restore_broadcast(
        self, step: str, states: Mapping[str, Mapping[bytes, bytes]], allow_unclaimed: bool = False
    ) -> None:
        """Take over what `broadcast_snapshot` gave for a step; comes before `open`.

        Raises:
            StateRestoreError: the operator doesn't declare one of the states.
        """
        self._broadcast.get(step, BroadcastStates()).restore(states, allow_unclaimed)

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
        for operator in self.operators.values():
            if completed:
                operator.on_checkpoint_complete(checkpoint_id)
            else:
                operator.on_checkpoint_aborted(checkpoint_id)


def _is_fresh(step: PlannedStep) -> bool:
    """Whether nobody has what the step emits but those that get it."""
    if step.kind is StepKind.ASSIGN_TIMESTAMPS:
        return not callable(step.payload.timestamp)  # a record that only passes, and was the step's alone
    return step.kind is StepKind.SOURCE and bool(step.payload.fresh_records)


def _fan_out(emitters: list[Push], chained: list[Push], fresh: bool) -> Push:
    """Hands a record to all. Emitters encode it at once. A chained step gets what a channel would have brought it: the
    step that emits it, and the others that get it, may keep it and change it.

    Args:
        fresh: nobody else has the record (`_is_fresh`), so the last step needs no copy.
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
        downstream(copied(value))

    return push


def _without_timers(context: Context, downstream: Push) -> Push:
    """For the steps behind a keyed operator, which share its context: timers are that operator's alone."""

    def push(value: Any) -> None:
        backend, context.backend = context.backend, None
        downstream(value)
        context.backend = backend

    return push


def _behind(context: Context, domain: TimeDomain, downstream: Push) -> Push:
    def push(value: Any) -> None:
        kept, context.watermark = context.watermark, domain.watermark
        downstream(value)
        context.watermark = kept

    return push


def _emitting_nothing(operator: Operator, context: Context) -> Push:
    def on_watermark(timestamp: Any) -> None:
        for output in operator.on_watermark(timestamp, context) or ():
            raise TypeError(
                f"{type(operator).__name__}.on_watermark emitted {shown(output, 200)}; a KeyedOperator has no current "
                "key there, so nothing it emits could keep its place behind the key's records. Set timers with "
                "ctx.timer and emit in on_timer"
            )

    return on_watermark


def _map(function: Callable[[Any], Any], downstream: Push) -> Push:
    def push(value: Any) -> None:
        downstream(function(value))

    return push


def _filter(function: Callable[[Any], bool], downstream: Push) -> Push:
    def push(value: Any) -> None:
        if function(value):
            downstream(value)

    return push


def _flat_map(function: Callable[[Any], Any], downstream: Push) -> Push:
    def push(value: Any) -> None:
        outputs = function(value)
        if outputs is not None:
            if type(outputs) in _NO_OUTPUTS:
                raise NotRecords("flat_map", outputs)
            try:
                for output in outputs:
                    downstream(output)
            except TypeError:
                _check_outputs("flat_map", outputs)
                raise

    return push


def _held_by(frame: FrameType, owners: dict[int, str]) -> str | None:
    """The step that a frame belongs to: that of its own code, or of what calls it and hands on what it has returned."""
    held, file = frame.f_locals, frame.f_code.co_filename
    mine = held.get("self")
    if isinstance(mine, BatchDriver):
        return mine.step
    if file == assigner.__code__.co_filename and frame.f_code.co_name == "push":
        return cast(str, held["step"])
    if file == __file__ and mine is None:
        mine = getattr(held.get("process"), "__self__", held.get("function"))
    return owners.get(id(mine))


_NO_OUTPUTS = frozenset({dict, str, bytes})
"""They can be iterated, but whoever returns one means it as one record."""


class NotRecords(Explained, TypeError):
    """A step has returned one record where any number is expected."""

    def __init__(self, who: str, outputs: Any):
        kind = type(outputs).__name__
        why = (
            "which would be taken apart into records" if type(outputs) in _NO_OUTPUTS else "which is no list of records"
        )
        article = "an" if kind[0] in "aeiouAEIOU" else "a"
        super().__init__(
            f"{who} returned {article} {kind}, {why} ({shown(outputs, 200)}): yield it, or return it in a list"
        )


def _check_outputs(who: str, outputs: Any) -> None:
    """Once something has failed: records pay nothing for it."""
    if not isinstance(outputs, Iterable) and not hasattr(outputs, "__getitem__"):
        raise NotRecords(who, outputs) from None


def _writing(broadcast: BroadcastStates, downstream: Push) -> Push:
    """For records that every subtask gets: they may change broadcast state."""
    if not broadcast.declared:
        return downstream

    def push(value: Any) -> None:
        broadcast.writable = True
        try:
            downstream(value)
        finally:
            broadcast.writable = False

    return push


def _process(operator: Operator, method: str, context: Context, downstream: Push, sides: dict[str, Push]) -> Push:
    process: Callable[[Any, Context], Iterable[Any] | None] = getattr(operator, method)
    name = f"{type(operator).__name__}.{method}"

    def push(value: Any) -> None:
        outputs = process(value, context)
        if outputs is not None:
            if type(outputs) in _NO_OUTPUTS:
                raise NotRecords(name, outputs)
            try:
                for output in outputs:
                    downstream(output)
            except TypeError:
                _check_outputs(name, outputs)
                raise

    if not sides:
        return push

    def shielded(side: Push) -> Push:
        def push_side(value: Any) -> None:
            context.side_outputs = {}
            side(value)
            context.side_outputs = table

        return push_side

    table = {tag: shielded(side) for tag, side in sides.items()}

    def push_with_sides(value: Any) -> None:
        # The table is this step's alone: steps downstream, and those that read a side output, have their own or none.
        context.side_outputs = table
        outputs: Iterable[Any] | None = ()
        try:
            outputs = process(value, context)
            if outputs is not None:
                if type(outputs) in _NO_OUTPUTS:
                    raise NotRecords(name, outputs)
                for output in outputs:
                    context.side_outputs = {}
                    downstream(output)
                    context.side_outputs = table
        except TypeError:
            _check_outputs(name, outputs)
            raise
        finally:
            context.side_outputs = {}

    return push_with_sides
