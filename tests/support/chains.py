"""The steps of one vertex, run without a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from checkpoint.state import KeyedBackend
from pipeline import Pipeline
from pipeline.runtime.subtask.chain import Chain
from pipeline.runtime.subtask.context import contexts_of
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.streams import Stream
from pipeline.testing import TestingSource

Build = Callable[[Stream], object]


def chain_of(
    build: Build,
    outputs: dict[tuple[str, str | None], list[Any]] | None = None,
    vertex: int = 0,
    backend: KeyedBackend | None = None,
    clock: Callable[[], float] = time.monotonic,
    interrupt: Callable[[], None] = lambda: None,
) -> tuple[Chain, RecordInProgress]:
    """The chain of one vertex; `outputs` collects what crosses its edges."""
    p = Pipeline("job")
    build(p.source("in", TestingSource()))
    planned, record = p.plan().vertices[vertex], RecordInProgress()
    contexts = contexts_of(planned, record, 0)
    return Chain(planned, record, contexts, {}, outputs or {}, backend, clock, interrupt), record


def run(build: Build, values: Sequence[Any], last: str, tag: str | None = None) -> list[Any]:
    """What step `last` emits for `values` of the source."""
    emitted: list[Any] = []
    chain, _ = chain_of(build, {(last, tag): [emitted.append]})
    for value in values:
        chain.push(value)
    return emitted


def run_chain(build: Build, values: Sequence[Any], *steps: str | tuple[str, str]) -> dict[Any, list[Any]]:
    """What several steps, or side outputs (step and tag), emit for `values` of the source."""
    emitted: dict[Any, list[Any]] = {step: [] for step in steps}
    outputs = {(step, None) if isinstance(step, str) else step: [emitted[step].append] for step in steps}
    chain, _ = chain_of(build, outputs)
    for value in values:
        chain.push(value)
    return emitted
