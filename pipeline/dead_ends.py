"""Steps that would run without any effect, as far as that can be seen before the start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.graph import BatchFunction, Graph, Step, StepKind
from pipeline.on_error import ERRORS
from pipeline.operators import KeyedOperator, Operator
from pipeline.user_code import returns_nothing

_FUNCTIONS = (StepKind.MAP, StepKind.FLAT_MAP, StepKind.MAP_BATCHES)


def dead_ends(graph: Graph) -> Iterator[str]:
    """What leads nowhere in a pipeline, with what to do about it."""
    if not any(step.kind is StepKind.SINK for step in graph.steps):
        yield (
            "the pipeline has no sink, so nothing that it computes would come out: end a stream with "
            ".sink(id, …), for instance .sink('out', PrintSink())"
        )
    readers = _readers(graph)
    for step in graph.steps:
        read = [(reader, tag) for reader, tag in readers.get(step.index, []) if tag != ERRORS]
        nothing = _emits_nothing(step)
        if nothing is not None:
            to = [str(reader) for reader, tag in read if tag is None]
            if to:
                yield f"{step}: {nothing}, so nothing ever comes to {', '.join(dict.fromkeys(to))}"
        elif not read and step.kind is not StepKind.SINK:
            what = "a union" if step.kind is StepKind.UNION else f"{step} ({step.kind.value})"
            yield f"{what} is read by no step, so what it emits is dropped: put a sink behind it, or leave it out"


def unused_streams(graph: Graph) -> Iterator[str]:
    """Streams and branches that no step reads; harmless where a program makes several and chooses one."""
    for stream in graph.derived:
        if not stream.used:
            yield (
                f"what {stream.made_by} behind {graph.steps[stream.step_index]} returned is not used and does nothing: "
                "it returns a new stream, on which the next step must be called"
            )
    readers = _readers(graph)
    for step in graph.steps:
        if step.kind is StepKind.SPLIT:
            read = {tag for _, tag in readers.get(step.index, [])}
            for name in step.payload:  # the rest is often not wanted
                if name not in read:
                    yield f"branch {name!r} of {step} is read by no step, so its records are dropped"


def _readers(graph: Graph) -> dict[int, list[tuple[Step, str | None]]]:
    """By index of a step the steps that read it, and which of its outputs."""
    found: dict[int, list[tuple[Step, str | None]]] = {}
    for step in graph.steps:
        for one in step.inputs:
            found.setdefault(one.step, []).append((step, one.tag))
    return found


def _emits_nothing(step: Step) -> str | None:
    """Why the step's main output stays empty; `None` if it needn't."""
    payload = step.payload.function if isinstance(step.payload, BatchFunction) else step.payload
    if step.kind in _FUNCTIONS and returns_nothing(payload):
        name = getattr(payload, "__name__", type(payload).__name__)
        return f"{name} returns nothing (return what it is to emit)"
    if isinstance(payload, Operator) and all(map(returns_nothing, _emitting(step, payload))):
        methods = " and ".join(getattr(method, "__qualname__", "process") for method in _emitting(step, payload))
        return f"{methods} neither yields nor returns anything (yield what it is to emit)"
    return None


def _emitting(step: Step, operator: Operator) -> list[Any]:
    """The methods that may emit."""
    kind = type(operator)
    found: list[Any] = [operator.process]  # which may be the instance's own
    if any(one.number == 1 for one in step.inputs):
        found.append(operator.process_connected)
    if isinstance(operator, KeyedOperator):
        if type(operator).on_timer is not KeyedOperator.on_timer or "on_timer" in vars(operator):
            found.append(operator.on_timer)
    elif kind.on_watermark is not Operator.on_watermark or "on_watermark" in vars(operator):
        found.append(operator.on_watermark)
    return found
