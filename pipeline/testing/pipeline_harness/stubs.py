"""What stands in for parts of a job that a harness hasn't: sinks, threads, processes with code of their own."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from threading import Condition
from typing import Any

from checkpoint.codec import copied
from checkpoint.state import KeyedBackend
from checkpoint.state.changelog.snapshot import LoggedState
from checkpoint.storage.handles import StateFile
from checkpoint.storage.storage import CheckpointStorage
from pipeline.errors import PipelineError
from pipeline.graph import StepKind
from pipeline.plan import Plan, PlannedStep, Vertex
from pipeline.runtime import error_text
from pipeline.runtime.class_pickler import ClassPickler
from pipeline.runtime.subtask.state_log import open_log
from pipeline.runtime.subtask.task_metrics import TaskMetrics


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


def log_of(
    backend: KeyedBackend | None,
    restored: Sequence[StateFile],
    folder: CheckpointStorage | None,
    subtask: str,
    metrics: TaskMetrics,
) -> LoggedState | None:
    """The log of changes of a subtask's keyed state, if it has one. Files are merged at once."""
    if backend is None or folder is None:
        return None
    return open_log(backend, restored, True, folder, 1, subtask, "none", Inline(), metrics, Condition)


def pickled_code(plan: Plan) -> dict[str, bytes]:
    """Functions and operators by step, as they travel to the subtasks of a job; none of sources and sinks, which don't
    run in a harness.

    Raises:
        PipelineError: one can't be pickled; names the step.
    """
    pickled = {}
    for step in (step for vertex in plan.vertices for step in vertex.steps):
        if step.kind not in (StepKind.SOURCE, StepKind.SINK):
            out = io.BytesIO()
            pickler: Any = ClassPickler(out, set())
            try:
                pickler.dump(step.payload)
            except Exception as error:
                why = error_text.summary(error)
                raise PipelineError(f"step {step.id!r} can't be copied to its subtasks: {why}") from error
            pickled[step.id] = out.getvalue()
    return pickled


def with_own_code(vertex: Vertex, code: Mapping[str, bytes]) -> Vertex:
    """The vertex with functions and operators of its own, as each subtask of a job has them."""

    def copy(step: PlannedStep) -> PlannedStep:
        pickled = code.get(step.id)
        return step if pickled is None else replace(step, payload=pickle.loads(pickled))  # made just now

    return replace(vertex, steps=tuple(map(copy, vertex.steps)))


def lateness_of(vertex: Vertex, step: str) -> int:
    """Milliseconds by which the watermarks of an `assign_timestamps` step lie behind."""
    strategy = next(one.payload for one in vertex.steps if one.id == step)
    lateness: int = strategy.lateness
    return lateness
