"""The operators of one subtask, joined into functions that push a record from one to the next."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from checkpoint.state import HeapBackend, bind
from checkpoint.state.groups import private_copy
from pipeline.graph import PlannedStep, StepKind, Vertex
from pipeline.operators import KeyedOperator, Operator
from pipeline.runtime.context import Context
from pipeline.runtime.sink_driver import SinkDriver

Push = Callable[[Any], None]


class Chain:
    """The steps of a vertex in one subtask.

    `push` takes a record of the head step (for a source vertex: a record of the source) through all of them, depth
    first, so that between two records nothing is in hand.
    """

    def __init__(
        self,
        vertex: Vertex,
        context: Context,
        sinks: dict[str, SinkDriver],
        outputs: dict[tuple[str, str | None], list[Push]],
        backend: HeapBackend | None,
    ):
        """
        Args:
            sinks: the sink steps' drivers, by step id.
            outputs: emitters of the outgoing edges by (step id, side output tag or None).
            backend: keyed state of the head, if it is a keyed operator.
        """
        self.context = context
        self.head = vertex.head.id
        self.operators: dict[str, Operator] = {}
        """By step id, last first."""
        self._opened: list[str] = []
        pushes: dict[str, Push] = {}
        for step in reversed(vertex.steps):
            pushes[step.id] = self._compile(step, vertex, sinks, outputs, pushes, backend)
        self.push = pushes[vertex.head.id]

    def _compile(
        self,
        step: PlannedStep,
        vertex: Vertex,
        sinks: dict[str, SinkDriver],
        outputs: dict[tuple[str, str | None], list[Push]],
        pushes: dict[str, Push],
        backend: HeapBackend | None,
    ) -> Push:
        def targets(tag: str | None) -> Push:
            chained = [pushes[s.id] for s in vertex.steps if s.chained_to == step.id and s.tag == tag]
            return _fan_out(outputs.get((step.id, tag), []), chained)

        downstream = targets(None)
        payload = step.payload
        match step.kind:
            case StepKind.SOURCE:
                return downstream
            case StepKind.MAP:
                return _map(payload, downstream)
            case StepKind.FILTER:
                return _filter(payload, downstream)
            case StepKind.FLAT_MAP:
                return _flat_map(payload, downstream)
            case StepKind.SINK:
                return sinks[step.id].push
            case StepKind.PROCESS:
                self.operators[step.id] = payload
                if isinstance(payload, KeyedOperator):
                    assert backend is not None
                    bind(payload, backend)
                tags = {s.tag for s in vertex.steps if s.chained_to == step.id} | {
                    tag for (id, tag) in outputs if id == step.id
                }
                sides = {tag: targets(tag) for tag in tags if tag is not None}
                if isinstance(payload, KeyedOperator) and any(s.chained_to == step.id for s in vertex.steps):
                    # What a keyed operator emits may lie in its state, too, and be changed there by its next record
                    # while a chained step still holds it.
                    downstream = _copied(downstream)
                    sides = {tag: _copied(side) for tag, side in sides.items()}
                return _process(payload, self.context, downstream, sides)
            case StepKind.UNION:
                raise AssertionError("unions are dissolved in the plan")

    def open(self) -> None:
        """Open the operators, last first, so that each finds those behind it ready."""
        for id, operator in self.operators.items():
            self._opened.append(id)
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

    def snapshot(self, checkpoint_id: int) -> dict[str, Any]:
        """Operators' own state by step id; steps without are left out."""
        states = {id: operator.snapshot(checkpoint_id) for id, operator in self.operators.items()}
        return {id: state for id, state in states.items() if state is not None}

    def notify(self, checkpoint_id: int, completed: bool) -> None:
        """Tell the operators how a checkpoint ended."""
        for operator in self.operators.values():
            if completed:
                operator.on_checkpoint_complete(checkpoint_id)
            else:
                operator.on_checkpoint_aborted(checkpoint_id)


def _fan_out(emitters: list[Push], chained: list[Push]) -> Push:
    """Hands a record to all. Emitters encode it at once; of the chained steps each but the last gets a copy, since any
    of them may change it in place."""
    if len(emitters) + len(chained) == 1:
        return (emitters or chained)[0]
    targets = [*emitters, *(_copied(step) for step in chained[:-1]), *chained[-1:]]

    def push(value: Any) -> None:
        for target in targets:
            target(value)

    return push


def _copied(downstream: Push) -> Push:
    """Hands copies on."""

    def push(value: Any) -> None:
        downstream(private_copy(value))

    return push


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
                raise _not_outputs("flat_map", outputs)
            for output in outputs:
                downstream(output)

    return push


_NO_OUTPUTS = frozenset({dict, str, bytes})
"""They can be iterated, but whoever returns one means it as one record."""


def _not_outputs(who: str, outputs: Any) -> TypeError:
    kind = type(outputs).__name__
    return TypeError(
        f"{who} returned a {kind}, which would be taken apart into records: yield the {kind}, or return it in a list"
    )


def _process(operator: Operator, context: Context, downstream: Push, sides: dict[str, Push]) -> Push:
    process = operator.process

    def push(value: Any) -> None:
        outputs = process(value, context)
        if outputs is not None:
            if type(outputs) in _NO_OUTPUTS:
                raise _not_outputs(f"{type(operator).__name__}.process", outputs)
            for output in outputs:
                downstream(output)

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
        try:
            outputs = process(value, context)
            if outputs is not None:
                if type(outputs) in _NO_OUTPUTS:
                    raise _not_outputs(f"{type(operator).__name__}.process", outputs)
                for output in outputs:
                    context.side_outputs = {}
                    downstream(output)
                    context.side_outputs = table
        finally:
            context.side_outputs = {}

    return push_with_sides
