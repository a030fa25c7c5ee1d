"""What stands in for parts of a job that a harness hasn't: sinks, threads, processes with code of their own."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

from checkpoint.codec import copied
from pipeline.errors import PipelineError
from pipeline.graph import PlannedStep, StepKind, Vertex
from pipeline.runtime import error_text
from pipeline.runtime.class_pickler import ClassPickler


class Kept:
    """In place of a sink: keeps what comes."""

    def __init__(self, records: list[Any]) -> None:
        self._records = records

    def push(self, value: Any) -> None:
        self._records.append(copied(value))


class Inline(Executor):
    """Does at once what it is given."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def with_own_code(vertex: Vertex) -> Vertex:
    """The vertex with functions and operators of its own, as each subtask of a job has them."""

    def copy(step: PlannedStep) -> PlannedStep:
        if step.kind in (StepKind.SOURCE, StepKind.SINK):
            return step  # which don't run
        out = io.BytesIO()
        try:
            pickler: Any = ClassPickler(out, set())
            pickler.dump(step.payload)
        except Exception as error:
            why = error_text.summary(error)
            raise PipelineError(f"step {step.id!r} can't be copied to its subtasks: {why}") from error
        return replace(step, payload=pickle.loads(out.getvalue()))  # made just now

    return replace(vertex, steps=tuple(map(copy, vertex.steps)))


def lateness_of(vertex: Vertex, step: str) -> int:
    """Milliseconds by which the watermarks of an `assign_timestamps` step lie behind."""
    strategy = next(one.payload for one in vertex.steps if one.id == step)
    lateness: int = strategy.lateness
    return lateness
