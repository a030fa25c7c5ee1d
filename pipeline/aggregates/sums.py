"""Sums and what is made of them. All are exact until they are read (see `exact_sums`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, Inexact
from typing import Any, TypeAlias

import pyarrow as pa

from checkpoint.options import flag, named_arguments
from pipeline.aggregates.base import Aggregate, Step, Unfit
from pipeline.aggregates.columns import sum_of_column
from pipeline.aggregates.exact_sums import (
    DIGITS,
    EXACTLY,
    ROUNDED,
    ExactSum,
    Number,
    added,
    exact,
    merged,
    quotient,
    rounded,
    squared,
)
from pipeline.aggregates.selectors import Selector, WhenMissing
from pipeline.errors import PipelineError

Part: TypeAlias = tuple[int, Any]
"""How many numbers, and their `ExactSum`."""
Moments: TypeAlias = tuple[int, Any, Any]
"""And that of their squares."""


@named_arguments
class Sum(Aggregate):
    """The sum of a field: `Sum("amount")`. Of no value it is 0.

    Of ints it is an int. Of floats, or floats and ints, it is the float that is nearest to the exact sum, whatever the
    order of the records; a NaN makes it NaN. Of Decimals, or Decimals and ints, it is a Decimal that isn't rounded.
    Decimals and floats don't mix.
    """

    checks = True

    def __init__(
        self, of: Selector, *, missing: WhenMissing = "fail", where: Callable[[Any], Any] | None = None
    ) -> None:
        """See `Aggregate`."""
        super().__init__(of, missing=missing, where=where)

    def create(self) -> ExactSum:
        return 0

    add = staticmethod(added)
    merge = staticmethod(merged)
    result = staticmethod(rounded)

    def _step_of_field(self, add: Callable[[Any, Any], Any], label: str) -> Step:
        of_any, field = super()._step_of_field(add, label), self.of

        def step(acc: Any, record: Any, timestamp: int | None) -> Any:
            try:
                value = record[field]
                kind = type(value)
                if kind is int and type(acc) is int:
                    return acc + value
                if kind is float:
                    return added(acc, value)
            except (LookupError, TypeError):
                pass  # told by what follows
            return of_any(acc, record, timestamp)

        return step

    def add_column(self, acc: ExactSum, values: pa.Array, timestamps: pa.Array) -> ExactSum:
        total = sum_of_column(values)
        return super().add_column(acc, values, timestamps) if total is None else merged(acc, total)


@named_arguments
class Mean(Aggregate):
    """The mean of a field: `Mean("amount")`. Of no value it is `None`.

    Of ints and floats it is the float that is nearest to the exact mean; a NaN makes it NaN. Of Decimals it is a
    Decimal of 28 digits at most.
    """

    checks = True

    def __init__(
        self, of: Selector, *, missing: WhenMissing = "fail", where: Callable[[Any], Any] | None = None
    ) -> None:
        """See `Aggregate`."""
        super().__init__(of, missing=missing, where=where)

    def create(self) -> Part:
        return 0, 0

    def add(self, acc: Part, value: Number) -> Part:
        return acc[0] + 1, added(acc[1], value)

    def merge(self, a: Part, b: Part) -> Part:
        return a[0] + b[0], merged(a[1], b[1])

    def result(self, acc: Part) -> float | Decimal | None:
        n, total = acc
        if not n:
            return None
        if type(total) is Decimal:
            return ROUNDED.divide(total, n)
        if type(total) is tuple:
            return quotient(total[0], n << total[1])
        return total if type(total) is float else quotient(total, n)

    def add_column(self, acc: Part, values: pa.Array, timestamps: pa.Array) -> Part:
        total = sum_of_column(values)
        if total is not None:
            return acc[0] + len(values), merged(acc[1], total)
        n, so_far = super().add_column(acc, values, timestamps)
        return n, so_far


@named_arguments
class Variance(Aggregate):
    """The variance of a field: `Variance("latency")`. Of fewer values than it takes it is `None`.

    It is made of exact sums of values and squares, so nothing cancels out. Of ints and floats it is the float that is
    nearest; a NaN or infinity makes it NaN. Of Decimals it is a Decimal of 28 digits at most.
    """

    checks = True

    def __init__(
        self,
        of: Selector,
        *,
        sample: bool = True,
        missing: WhenMissing = "fail",
        where: Callable[[Any], Any] | None = None,
    ) -> None:
        """
        Args:
            sample: the values are a sample: of n values it is divided by n - 1, else by n.
            missing, where: see `Aggregate`.
        """
        super().__init__(of, missing=missing, where=where)
        try:
            self.sample = flag(sample, "sample")
        except ValueError as error:
            raise PipelineError(f"{type(self).__name__}: {error}") from None

    def create(self) -> Moments:
        return 0, 0, 0

    def add(self, acc: Moments, value: Number) -> Moments:
        one = exact(value)
        return acc[0] + 1, merged(acc[1], one), merged(acc[2], squared(one))

    def merge(self, a: Moments, b: Moments) -> Moments:
        return a[0] + b[0], merged(a[1], b[1]), merged(a[2], b[2])

    def result(self, acc: Moments) -> float | Decimal | None:
        n, total, squares = acc
        degrees = n - self.sample
        if degrees < 1:
            return None
        if type(total) is float or type(squares) is float:
            return math.nan
        if type(total) is Decimal:
            return _of_decimals(n, total, squares, degrees)
        (m, k), (s, j) = ((one if type(one) is tuple else (one, 0)) for one in (total, squares))
        # n * s / 2**j - m * m / 2**2k, over n * degrees
        return quotient((n * s << 2 * k) - (m * m << j), n * degrees << 2 * k + j)


def _of_decimals(n: int, total: Decimal, squares: Any, degrees: int) -> Decimal:
    try:
        above = EXACTLY.subtract(EXACTLY.multiply(squares, n), EXACTLY.multiply(total, total))
    except Inexact:
        raise Unfit(f"the variance of these Decimals would need more than {DIGITS} digits on the way") from None
    return ROUNDED.divide(above, n * degrees)


class StandardDeviation(Variance):
    """The square root of the `Variance`."""

    def result(self, acc: Moments) -> float | Decimal | None:
        variance = super().result(acc)
        if type(variance) is Decimal:
            return ROUNDED.sqrt(variance)
        return None if variance is None else math.sqrt(variance)
