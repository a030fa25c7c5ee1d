"""What a function of two records makes of the records of a window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checkpoint.codec import check, copied
from pipeline.aggregates import Aggregate


class Reduced(Aggregate):
    """What a function makes of the records; of none `None`. The accumulator is a tuple of it, or `None`.

    The function may change what it gets, as that of a running `reduce` may: it gets copies of what is kept, since other
    windows have the same panes.
    """

    checks = True

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self._function = function

    def create(self) -> Any:
        return None

    def add(self, acc: Any, value: Any) -> Any:
        return _kept(value if acc is None else self._function(copied(acc[0]), value))

    def merge(self, a: Any, b: Any) -> Any:
        if a is None or b is None:
            return b if a is None else a
        return _kept(self._function(copied(a[0]), copied(b[0])))

    def result(self, acc: Any) -> Any:
        return None if acc is None else acc[0]


def _kept(value: Any) -> tuple[Any]:
    check(value)
    return (value,)
