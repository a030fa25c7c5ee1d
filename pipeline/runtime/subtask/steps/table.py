"""Which compiler each kind of step has. A new kind is added here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pipeline.graph import StepKind
from pipeline.runtime.subtask.steps import async_calls, batches, functions, operators, pacing, timestamps
from pipeline.runtime.subtask.steps.compiled import CompiledStep, Site


def _source(site: Site) -> CompiledStep:
    return CompiledStep(site.downstream, push_batch=site.downstream_batch)


def _sink(site: Site) -> CompiledStep:
    assert site.sink is not None
    return CompiledStep(site.sink.push, runs=site.sink)


COMPILERS: Final[Mapping[StepKind, Callable[[Site], CompiledStep]]] = {
    StepKind.SOURCE: _source,
    StepKind.MAP: functions.compile_map,
    StepKind.FILTER: functions.compile_filter,
    StepKind.FILTER_NOT: functions.compile_filter_not,
    StepKind.PEEK: functions.compile_peek,
    StepKind.SPLIT: functions.compile_split,
    StepKind.LIMIT_RATE: pacing.compile_limit_rate,
    StepKind.FLAT_MAP: functions.compile_flat_map,
    StepKind.PROCESS: operators.compile_process,
    StepKind.MAP_BATCHES: batches.compile_map_batches,
    StepKind.MAP_ASYNC: async_calls.compile_map_async,
    StepKind.ASSIGN_TIMESTAMPS: timestamps.compile_assign_timestamps,
    StepKind.SINK: _sink,
}
"""Unions are dissolved in the plan."""
