"""How many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from checkpoint.options import named_arguments
from pipeline.aggregates.base import Aggregate, Step


@named_arguments
class Count(Aggregate):
    """How many records: `Count()`, or `Count(where=lambda order: order["paid"])`."""

    checks = True
    result_is_accumulator = True

    def __init__(self, *, where: Callable[[Any], Any] | None = None) -> None:
        """
        Args:
            where: a function of the record; only those for which it is true are counted.
        """
        super().__init__(where=where)

    def create(self) -> int:
        return 0

    def add(self, acc: int, value: Any) -> int:
        return acc + 1

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, acc: int) -> int:
        return acc

    def step(self, label: str) -> Step:
        return (lambda acc, record, timestamp: acc + 1) if self.where is None else super().step(label)

    def add_batch(self, acc: int, batch: pa.RecordBatch, timestamps: pa.Array, label: str) -> int:
        if self.where is None:
            return acc + len(batch)
        return int(super().add_batch(acc, batch, timestamps, label))
