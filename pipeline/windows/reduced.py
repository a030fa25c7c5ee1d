"""What a function of two records makes of the records of a window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.aggregates import Aggregate


class Reduced(Aggregate):
    """What a function makes of the records; of none `None`. The accumulator is a tuple of it, or `None`."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self._function = function

    def create(self) -> Any:
        return None

    def add(self, acc: Any, value: Any) -> Any:
        return (value,) if acc is None else (self._function(acc[0], value),)

    def merge(self, a: Any, b: Any) -> Any:
        return b if a is None else a if b is None else (self._function(a[0], b[0]),)

    def result(self, acc: Any) -> Any:
        return None if acc is None else acc[0]
