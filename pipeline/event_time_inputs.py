"""Which inputs of a step bring watermarks, and what is refused because one that the step waits for never will."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from typing import Any, Final

from checkpoint.elements import EdgeName
from pipeline.errors import PipelineError
from pipeline.graph import StepKind
from pipeline.operators import KeyedOperator, Operator
from pipeline.partitioners import Distribution
from pipeline.plan import Plan, PlannedEdge, Vertex

_MOST_FUNCTIONS: Final = 200
"""Functions of an operator that are looked at."""


class TimedInputs:
    """Whether watermarks come over an edge, for every edge of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._timed_heads: dict[int, bool] = {}
        """By vertex, whether its input brings watermarks."""
        for vertex in plan.vertices:  # a vertex comes behind those that it reads
            self._timed_heads[vertex.index] = any(self.timed(edge) for edge in plan.inputs_of(vertex.index))

    def timed(self, edge: PlannedEdge) -> bool:
        """Whether watermarks come before the end of its records: there is an `assign_timestamps` upstream."""
        upstream = self._plan.vertices[edge.upstream]
        return self._assigns(upstream, edge.upstream_step) or self._timed_heads[upstream.index]

    def left_out(self, vertex: Vertex) -> frozenset[EdgeName]:
        """Its inputs that the watermark doesn't wait for: they only broadcast, and make none, and others do."""
        inputs = self._plan.inputs_of(vertex.index)
        if not any(map(self.timed, inputs)):
            return frozenset()
        return frozenset(edge.name for edge in inputs if not self.timed(edge) and _broadcasts(edge))

    def held_back(self, vertex: Vertex) -> list[PlannedEdge]:
        """Its inputs for whose end the watermark has to wait, though others make some."""
        inputs = self._plan.inputs_of(vertex.index)
        if not any(map(self.timed, inputs)):
            return []
        return [edge for edge in inputs if not self.timed(edge) and not _broadcasts(edge)]

    def ends(self, edge: PlannedEdge) -> bool:
        """Whether all sources of its records are bounded, so that a last watermark comes over it."""
        upstream = self._plan.vertices[edge.upstream]
        if upstream.is_source:
            return bool(upstream.head.payload.bounded)
        return all(map(self.ends, self._plan.inputs_of(upstream.index)))

    def origins(self, edge: PlannedEdge) -> list[str]:
        """Ids of the sources of an edge that makes no watermarks."""
        upstream = self._plan.vertices[edge.upstream]
        if upstream.is_source:
            return [upstream.head.id]
        found = [id for one in self._plan.inputs_of(upstream.index) for id in self.origins(one)]
        return list(dict.fromkeys(found))

    def users(self, vertex: Vertex) -> Iterator[tuple[str, str]]:
        """Steps that use the watermark of the vertex' input, there and downstream, each with what of it."""
        assigned = {step.id for step in vertex.steps if self._assigns(vertex, step.id)}
        for step in vertex.steps:
            if step.kind is StepKind.PROCESS and step.id not in assigned:
                what = uses_event_time(step.payload)
                if what is not None:
                    yield step.id, what
        for edge in self._plan.outputs_of(vertex.index):
            downstream = self._plan.vertices[edge.downstream]
            if edge.upstream_step not in assigned and edge.name not in self.left_out(downstream):
                yield from self.users(downstream)

    @staticmethod
    def _assigns(vertex: Vertex, step: str) -> bool:
        """Whether what the step emits has passed an `assign_timestamps` of its vertex."""
        steps = {one.id: one for one in vertex.steps}
        at: str | None = step
        while at is not None:
            if steps[at].kind is StepKind.ASSIGN_TIMESTAMPS:
                return True
            at = steps[at].chained_to
        return False


def check_event_time(plan: Plan) -> None:
    """Refuse a plan in which event time would stand still for a step that uses it.

    Raises:
        PipelineError: an input makes no watermarks and doesn't end, and the steps that wait for it use them.
    """
    inputs = TimedInputs(plan)
    for vertex in plan.vertices:
        used = next(inputs.users(vertex), None)
        if used is None:
            continue
        edges = plan.inputs_of(vertex.index)
        waits_for = inputs.held_back(vertex) if any(map(inputs.timed, edges)) else edges
        endless = [edge for edge in waits_for if not inputs.ends(edge)]
        if endless:
            # Broadcast inputs are left out once another one makes watermarks.
            _refuse(inputs, next((edge for edge in waits_for if not _broadcasts(edge)), endless[0]), *used)


def event_time_notes(plan: Plan) -> Iterator[str]:
    """What `weir plan` says of inputs without watermarks that a start accepts."""
    inputs = TimedInputs(plan)
    for vertex in plan.vertices:
        for edge in inputs.held_back(vertex):
            yield (
                f"event time of step {edge.downstream_step!r} stands still until its input from {edge.upstream_step!r} "
                "ends, which makes no watermarks: put assign_timestamps(…) directly behind the source"
            )


def _refuse(inputs: TimedInputs, edge: PlannedEdge, user: str, what: str) -> None:
    sources = " and ".join(f"source {id!r}" for id in inputs.origins(edge))
    broadcast = "" if _broadcasts(edge) else "; or broadcast() it, if all subtasks need all of its records"
    raise PipelineError(
        f"step {user!r} {what}, but the input of step {edge.downstream_step!r} from {edge.upstream_step!r} ({sources}) "
        "makes no watermarks, so event time would stand still there and no timer would ever fire: put "
        f"assign_timestamps(…) directly behind {sources}{broadcast}"
    )


def _broadcasts(edge: PlannedEdge) -> bool:
    return edge.partitioner.distribution is Distribution.BROADCAST


def uses_event_time(operator: Operator) -> str | None:
    """What an operator needs watermarks for, in words; `None` if nothing can be seen.

    It is one of Weir's own that says so; or it implements `on_watermark`; or it implements `on_timer`, and its methods,
    or functions that they call by name, take `timer` of a local variable, as in `ctx.timer(at)`. One that only sets
    processing timers doesn't.
    """
    cls = type(operator)
    needs: str | None = getattr(cls, "needs_event_time", None)
    if needs is not None:
        return needs
    if cls.on_watermark is not Operator.on_watermark:
        return "implements on_watermark"
    if not isinstance(operator, KeyedOperator) or type(operator).on_timer is KeyedOperator.on_timer:
        return None
    return "sets event timers (ctx.timer)" if any(map(_sets_timers, _codes(cls))) else None


def _codes(cls: type) -> Iterator[types.CodeType]:
    """The code of the methods of a class, of what is defined inside them, and of the functions that they call."""
    framework = set(KeyedOperator.__mro__)
    to_do: list[Any] = [value for one in cls.__mro__ if one not in framework for value in vars(one).values()]
    seen: set[types.CodeType] = set()
    while to_do and len(seen) < _MOST_FUNCTIONS:
        function = _unwrapped(to_do.pop())
        code = getattr(function, "__code__", None)
        if not isinstance(code, types.CodeType) or code in seen:
            continue
        seen.add(code)
        inside = [code]
        while inside:
            one = inside.pop()
            yield one
            inside += [constant for constant in one.co_consts if isinstance(constant, types.CodeType)]
            scope = getattr(function, "__globals__", {})
            to_do += [scope[name] for name in one.co_names if isinstance(scope.get(name), types.FunctionType)]


def _sets_timers(code: types.CodeType) -> bool:
    """Whether it takes the attribute `timer` of a local variable; other things have timers as well."""
    if "timer" not in code.co_names:
        return False
    before: dis.Instruction | None = None
    for one in dis.get_instructions(code):
        if one.opname in ("LOAD_ATTR", "LOAD_METHOD") and one.argval == "timer" and before is not None:
            names = before.argval if isinstance(before.argval, tuple) else (before.argval,)
            local = before.opname.startswith("LOAD_FAST") or before.opname == "LOAD_DEREF"
            if local and names[-1] not in ("self", "cls"):
                return True
        if one.opname != "CACHE":
            before = one
    return False


def _unwrapped(value: Any) -> Any:
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    return getattr(value, "__wrapped__", value)
