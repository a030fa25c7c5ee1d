"""Records in an order: the first, the last, the top."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint.codec import check
from checkpoint.options import flag, named_arguments, whole_number
from checkpoint.shown import shown
from pipeline.aggregates.base import Aggregate, Unfit, python_values
from pipeline.aggregates.extremes import is_before, is_nan
from pipeline.aggregates.selectors import (
    SKIPPED,
    Read,
    Selector,
    WhenMissing,
    check_selector,
    reading,
    shown_selector,
)
from pipeline.errors import PipelineError

Ranked: TypeAlias = tuple[Any, int | None, Any]
"""A value, behind what it is ranked by: the value of `by`, or `None` without one, and the timestamp."""


class _Ranking(Aggregate):
    checks = True

    def __init__(
        self,
        of: Selector,
        by: Selector,
        missing: WhenMissing,
        where: Callable[[Any], Any] | None,
    ) -> None:
        super().__init__(of, missing=missing, where=where)
        check_selector(f"{type(self).__name__}: by", by)
        self.by = by

    def reader(self, label: str) -> Read:
        read = reading(self.of, self.missing, label)
        if self.by is None:

            def read_timed(record: Any, timestamp: int | None) -> Any:
                value = read(record, timestamp)
                return value if value is SKIPPED else (None, timestamp, value)

            return read_timed
        read_rank = reading(self.by, self.missing, f"{label} by {shown_selector(self.by)}")

        def read_ranked(record: Any, timestamp: int | None) -> Any:
            value, rank = read(record, timestamp), read_rank(record, timestamp)
            return SKIPPED if value is SKIPPED or rank is SKIPPED else (rank, timestamp, value)

        return read_ranked

    def _checked(self, one: Ranked) -> Ranked:
        if self.by is not None and is_nan(one[0]):
            raise Unfit(f"{shown(one[0])} has no place in an order")
        check(one[0])
        check(one[2])
        return one


def _is_earlier(a: Ranked, b: Ranked) -> bool:
    """By timestamp. Records without one come in the order of their arrival."""
    if (a[1] is None) is not (b[1] is None):
        raise Unfit("some of its records have a timestamp and some have none, so there is no order between them")
    return a[1] is not None and b[1] is not None and a[1] < b[1]


def _goes_before(a: Ranked, b: Ranked) -> bool:
    if is_before(a[0], b[0]):
        return True
    return not is_before(b[0], a[0]) and _is_earlier(a, b)


class _End(_Ranking):
    def __init__(
        self,
        of: Selector = None,
        *,
        by: Selector = None,
        missing: WhenMissing = "fail",
        where: Callable[[Any], Any] | None = None,
    ) -> None:
        """
        Args:
            of: what of the record it gives; `None` = the record.
            by: what records are ordered by, a field name, an index or a function; `None` = their timestamps. What is
                equal goes by timestamp, then by arrival.
            missing, where: see `Aggregate`.
        """
        super().__init__(of, by, missing, where)

    def create(self) -> Ranked | None:
        return None

    def add(self, acc: Ranked | None, value: Ranked) -> Ranked:
        one = self._checked(value)
        return one if acc is None or self._replaces(one, acc) else acc

    def merge(self, a: Ranked | None, b: Ranked | None) -> Ranked | None:
        return a if b is None else self.add(a, b)

    def result(self, acc: Ranked | None) -> Any:
        return None if acc is None else acc[2]

    def _before(self, a: Ranked, b: Ranked) -> bool:
        return _is_earlier(a, b) if self.by is None else _goes_before(a, b)

    def _replaces(self, one: Ranked, acc: Ranked) -> bool:
        raise NotImplementedError

    def _place(self, timestamps: pa.Array) -> int:
        """The row that a column comes to."""
        raise NotImplementedError

    def add_batch(self, acc: Any, batch: pa.RecordBatch, timestamps: pa.Array, label: str) -> Any:
        of = self.of
        if (
            not len(batch)
            or self.by is not None
            or self.where is not None
            or not (isinstance(of, str) and of in batch.schema.names and not batch.column(of).null_count)
            or timestamps.null_count not in (0, len(batch))
        ):
            return super().add_batch(acc, batch, timestamps, label)
        row = self._place(timestamps)
        (value,) = python_values(batch.column(of).slice(row, 1))
        try:
            return self.add(acc, (None, timestamps[row].as_py(), value))
        except Unfit as error:
            raise Unfit(f"{label}: {error}") from None


@named_arguments
class First(_End):
    """The first record, or a field of it: `First("price")` is that of the least timestamp.

    Of equal timestamps the one that arrived first counts. Of no record it is `None`. `First("product", by="price")` is
    the product of the least price.
    """

    def _replaces(self, one: Ranked, acc: Ranked) -> bool:
        return self._before(one, acc)

    def _place(self, timestamps: pa.Array) -> int:
        return 0 if timestamps.null_count else int(pc.index(timestamps, pc.min(timestamps)).as_py())


@named_arguments
class Last(_End):
    """The last record, or a field of it: `Last("price")` is that of the greatest timestamp.

    Of equal timestamps the one that arrived last counts. Of no record it is `None`. `Last("product", by="price")` is
    the product of the greatest price.
    """

    def _replaces(self, one: Ranked, acc: Ranked) -> bool:
        return not self._before(one, acc)

    def _place(self, timestamps: pa.Array) -> int:
        last = len(timestamps) - 1
        return last if timestamps.null_count else last - int(pc.index(timestamps[::-1], pc.max(timestamps)).as_py())


@named_arguments
class Top(_Ranking):
    """The n records that are greatest by a field, greatest first: `Top(3, "product", by="amount")` is a list.

    What is equal goes by timestamp, then by arrival. Of no record it is an empty list.
    """

    def __init__(
        self,
        n: int,
        of: Selector = None,
        *,
        by: Selector,
        smallest: bool = False,
        missing: WhenMissing = "fail",
        where: Callable[[Any], Any] | None = None,
    ) -> None:
        """
        Args:
            n: how many at most.
            of: what of a record it gives; `None` = the record.
            by: what records are ordered by: a field name, an index or a function.
            smallest: the least ones, least first.
            missing, where: see `Aggregate`.
        """
        super().__init__(of, by, missing, where)
        if by is None:
            raise PipelineError("Top: by must be a field name, an index or a function")
        try:
            self.n = whole_number(n, "n", 1)
            self.smallest = flag(smallest, "smallest")
        except ValueError as error:
            raise PipelineError(f"Top: {error}") from None

    @property
    def kept_as(self) -> str:
        return f"Top({self.n}{', smallest=True' if self.smallest else ''})"

    def create(self) -> tuple[Ranked, ...]:
        return ()

    def add(self, acc: tuple[Ranked, ...], value: Ranked) -> tuple[Ranked, ...]:
        one = self._checked(value)
        place = len(acc)
        while place and self._beats(one, acc[place - 1]):
            place -= 1
        return acc if place == self.n else (*acc[:place], one, *acc[place : self.n - 1])

    def merge(self, a: tuple[Ranked, ...], b: tuple[Ranked, ...]) -> tuple[Ranked, ...]:
        for one in b:
            a = self.add(a, one)
        return a

    def result(self, acc: tuple[Ranked, ...]) -> list[Any]:
        return [value for _, _, value in acc]

    def _beats(self, one: Ranked, other: Ranked) -> bool:
        greater, less = (one[0], other[0]) if self.smallest else (other[0], one[0])
        return is_before(greater, less) or (not is_before(less, greater) and _is_earlier(one, other))
