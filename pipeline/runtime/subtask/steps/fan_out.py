"""Hands what a step emits to all that read it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from checkpoint.codec import copied, is_plain
from formats.arrow_rows import rows
from pipeline.graph import StepKind
from pipeline.plan import PlannedStep
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.steps.compiled import Push, PushBatch, Timestamps


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
