"""The least and the greatest value."""

from __future__ import annotations

from collections.abc import Callable
from operator import gt, lt
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint.codec import check
from checkpoint.options import named_arguments
from checkpoint.shown import shown
from pipeline.aggregates.base import Aggregate, Step, Unfit, python_values
from pipeline.aggregates.selectors import Selector, WhenMissing

_PLAIN: Final = frozenset({int, float, str})
"""Types whose values need no look."""
_UNORDERED = (set, frozenset)
"""Types in which `<` says something else."""


def is_before(a: Any, b: Any) -> bool:
    """a < b.

    Raises:
        Unfit: they have no order.
    """
    try:
        if isinstance(a, _UNORDERED):
            raise TypeError
        return bool(a < b)
    except (TypeError, ArithmeticError):
        raise Unfit(f"there is no order between {shown(a)} and {shown(b)}") from None


def is_nan(value: Any) -> bool:
    try:
        return bool(value != value)
    except ArithmeticError:  # a Decimal that signals
        return True


class _Extreme(Aggregate):
    """Of equal values the first one counts; a NaN makes the result NaN. Of no value it is `None`."""

    checks = True
    result_is_accumulator = True

    def __init__(
        self, of: Selector = None, *, missing: WhenMissing = "fail", where: Callable[[Any], Any] | None = None
    ) -> None:
        """See `Aggregate`."""
        super().__init__(of, missing=missing, where=where)

    _plainly_beats: ClassVar[Any]
    """Of `_PLAIN` types, and no NaN as the first."""

    @staticmethod
    def _beats(value: Any, acc: Any) -> bool:
        raise NotImplementedError

    def _step_of_field(self, add: Callable[[Any, Any], Any], label: str) -> Step:
        of_any, beats, field = super()._step_of_field(add, label), self._plainly_beats, self.of

        def step(acc: Any, record: Any, timestamp: int | None) -> Any:
            try:
                value = record[field]
            except (LookupError, TypeError):
                return of_any(acc, record, timestamp)
            if type(value) is type(acc) and type(value) in _PLAIN and value == value:
                return value if beats(value, acc) else acc
            return of_any(acc, record, timestamp)

        return step

    def create(self) -> Any:
        return None

    def add(self, acc: Any, value: Any) -> Any:
        if acc is None:
            self._beats(value, value)  # it has an order at all
            check(value)
            return value
        if is_nan(acc):
            return acc
        if is_nan(value) or self._beats(value, acc):
            check(value)
            return value
        return acc

    def merge(self, a: Any, b: Any) -> Any:
        return a if b is None else self.add(a, b)

    def result(self, acc: Any) -> Any:
        return acc

    def _in_column(self, values: pa.Array) -> Any:
        """What its values come to."""
        kind = values.type
        if pa.types.is_float16(kind):
            return None  # Arrow compares none
        if pa.types.is_floating(kind):
            nan = values.filter(pc.is_nan(values))
            if len(nan):
                return nan[0].as_py()
        elif not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            return None
        bounds = pc.min_max(values)
        best = bounds["min" if self._beats(0, 1) else "max"]
        return python_values(values.slice(pc.index(values, best).as_py(), 1))[0]

    def add_column(self, acc: Any, values: pa.Array, timestamps: pa.Array) -> Any:
        best = self._in_column(values) if len(values) else None
        return super().add_column(acc, values, timestamps) if best is None else self.add(acc, best)


@named_arguments
class Min(_Extreme):
    """The least value of a field: `Min("price")`. Values may be of any type that has an order, but not of several.

    Of equal values the first one counts; a NaN makes the result NaN. Of no value it is `None`.
    """

    _plainly_beats = staticmethod(lt)

    @staticmethod
    def _beats(value: Any, acc: Any) -> bool:
        return is_before(value, acc)


@named_arguments
class Max(_Extreme):
    """The greatest value of a field; otherwise as `Min`."""

    _plainly_beats = staticmethod(gt)

    @staticmethod
    def _beats(value: Any, acc: Any) -> bool:
        return is_before(acc, value)
