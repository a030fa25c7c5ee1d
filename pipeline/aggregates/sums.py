"""Sums and what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checkpoint.options import named_options
from pipeline.aggregates.base import Aggregate
from pipeline.aggregates.exact_sums import ExactSum, Number, added, merged, rounded
from pipeline.aggregates.selectors import Selector, WhenMissing


@named_options
class Sum(Aggregate):
    """The sum of a field: `Sum("amount")`. Of no value it is 0.

    Of ints it is an int. Of floats, or floats and ints, it is the float that is nearest to the exact sum, whatever the
    order of the records. Of Decimals it is a Decimal that isn't rounded; those don't mix with floats.
    """

    def __init__(
        self, of: Selector, *, missing: WhenMissing = "fail", where: Callable[[Any], Any] | None = None
    ) -> None:
        """See `Aggregate`."""
        super().__init__(of, missing=missing, where=where)

    def create(self) -> ExactSum:
        return 0

    def add(self, acc: ExactSum, value: Number) -> ExactSum:
        return added(acc, value)

    def merge(self, a: ExactSum, b: ExactSum) -> ExactSum:
        return merged(a, b)

    def result(self, acc: ExactSum) -> Number:
        return rounded(acc)
