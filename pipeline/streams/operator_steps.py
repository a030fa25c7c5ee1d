"""Adds a step that runs an operator, the user's or one of Weir's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkpoint.state_backends import StateBackend
from pipeline.graph import Input, Step, StepKind, Width
from pipeline.on_error import OnError, on_error_of
from pipeline.streams.checks import check_operator, state_backend_of
from pipeline.streams.failures import guard

if TYPE_CHECKING:
    from pipeline.job import Pipeline


def add_operator(
    pipeline: Pipeline,
    id: Any,
    operator: Any,
    inputs: list[Input],
    width: Width,
    state_backend: StateBackend | None,
    on_error: OnError,
    method: str | None = None,
) -> Step:
    """
    Args:
        width: its parallelism, and why it has that.
        method: of Weir's own operators, which may do without an id: the one that adds the step. Such a step is named
            after it: `window-1`.

    Raises:
        PipelineError: the operator can't run there, or an option can't be.
    """
    shown_id = method if id is None and method is not None else id
    check_operator(pipeline, shown_id, operator, inputs)
    backend = state_backend_of(shown_id, operator, state_backend)
    who = method or "process"
    policy = on_error_of(on_error, who if id is None else f"{who}({id!r})")
    step = pipeline._graph.add(StepKind.PROCESS, id, operator, width[0], inputs, method, width[1])
    step.state_backend = backend
    guard(pipeline, step, policy)
    return step
