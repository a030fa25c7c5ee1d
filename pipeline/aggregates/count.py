"""How many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checkpoint.options import named_options
from pipeline.aggregates.base import Aggregate


@named_options
class Count(Aggregate):
    """How many records: `Count()`, or `Count(where=lambda order: order["paid"])`."""

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
