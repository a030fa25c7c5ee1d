"""Record batches on their way through a chain: whole to the steps that take them, row by row to the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from formats.arrow_rows import rows
from pipeline.runtime.subtask.context import Context

Push = Callable[[Any], None]
Timestamps = list[int | None] | None
"""One a row; `None` = none has any."""
PushBatch = Callable[[pa.RecordBatch, Timestamps], None]
"""Takes a batch through a step; `Context.row` is the source's record that its first row is, if it is one."""


def fan_out(context: Context, whole: list[PushBatch], by_row: list[Push]) -> PushBatch:
    """Hands a batch to all."""
    targets = [*whole, *(_by_row(context, push) for push in by_row)]
    if len(targets) == 1:
        return targets[0]

    def push_batch(batch: pa.RecordBatch, timestamps: Timestamps) -> None:
        for target in targets:
            target(batch, timestamps)

    return push_batch


def _by_row(context: Context, push: Push) -> PushBatch:
    def push_rows(batch: pa.RecordBatch, timestamps: Timestamps) -> None:
        first, kept = context.row, context.timestamp
        for i, row in enumerate(rows(batch)):
            context.row = first + i
            context.timestamp = None if timestamps is None else timestamps[i]
            push(row)
        context.row, context.timestamp = first, kept

    return push_rows
