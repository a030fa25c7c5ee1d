"""Aggregates that estimate, in little memory. They need `weir-streams[sketches]`.

No order of records and no merging changes what they give: a HyperLogLog of hashes, and counts of values by buckets of
DDSketch.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from types import ModuleType
from typing import Any, TypeAlias

from xxhash import xxh3_64_intdigest

from checkpoint.options import is_number, named_arguments, whole_number
from checkpoint.shown import shown
from pipeline.aggregates.base import Aggregate, Unfit
from pipeline.aggregates.collected import encoded_as_key
from pipeline.aggregates.selectors import Selector, WhenMissing
from pipeline.errors import PipelineError


def _library(module: str, who: str) -> ModuleType:
    """
    Raises:
        PipelineError: it isn't installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise PipelineError(
            f"{who} needs {name}, which can't be imported ({error}); pip install 'weir-streams[sketches]', on the "
            "driver and on the workers"
        ) from error


@named_arguments
class ApproxCountDistinct(Aggregate):
    """About how many different values a field has: `ApproxCountDistinct("user")`, by a HyperLogLog of Apache
    DataSketches.

    Up to some hundred values it is exact, nearly always. Its state takes 4 bytes a value and 2**precision bytes at
    most; it is read and written for each record, which takes about a microsecond. Values are compared as those of
    `CountDistinct`.
    """

    checks = True

    def __init__(
        self,
        of: Selector = None,
        *,
        precision: int = 12,
        missing: WhenMissing = "fail",
        where: Callable[[Any], Any] | None = None,
    ) -> None:
        """
        Args:
            precision: from 7 to 21. Two thirds of all results are within 1.04 / sqrt(2**precision) of the truth: 1.6 %
                with 12.
            missing, where: see `Aggregate`.

        Raises:
            PipelineError: `datasketches` isn't installed.
        """
        super().__init__(of, missing=missing, where=where)
        try:
            self.precision = whole_number(precision, "precision", 7, 21)
        except ValueError as error:
            raise PipelineError(f"ApproxCountDistinct: {error}") from None
        _library("datasketches", "ApproxCountDistinct")

    @property
    def kept_as(self) -> str:
        return f"ApproxCountDistinct(precision={self.precision})"

    def create(self) -> bytes:
        return b""

    def add(self, acc: bytes, value: Any) -> bytes:
        library = _datasketches()
        sketches = library.hll_sketch
        sketch = sketches.deserialize(acc) if acc else sketches(self.precision, library.HLL_8)
        sketch.update(xxh3_64_intdigest(encoded_as_key(value)))
        data: bytes = sketch.serialize_compact()
        return data

    def merge(self, a: bytes, b: bytes) -> bytes:
        if not (a and b):
            return a or b
        data: bytes = self._united(a, b).serialize_compact()
        return data

    def result(self, acc: bytes) -> int:
        # A sketch that nothing was merged into has a second estimate, which goes by the order of the values. Merged
        # with itself it gives the one that doesn't.
        return round(self._united(acc, acc).get_estimate()) if acc else 0

    def _united(self, *sketches: bytes) -> Any:
        library = _datasketches()
        union = library.hll_union(self.precision)
        for one in sketches:
            union.update(library.hll_sketch.deserialize(one))
        return union.get_result(library.HLL_8)


@cache
def _datasketches() -> Any:
    return _library("datasketches", "ApproxCountDistinct")


Buckets: TypeAlias = tuple[int, ...]
"""Numbers of buckets and how many values are in each, in turn. Buckets of negative values have negative numbers."""
_PENDING = 64
"""So many values wait to be counted, since that takes a copy of all counts."""


@named_arguments
class Quantiles(Aggregate):
    """The values at some quantiles of a field: `Quantiles("latency", [0.5, 0.99])` is a list of both, by the buckets of
    DDSketch.

    Each is a float within `accuracy` of the value that is there. Of no value it is `None`. A state takes some bytes for
    each bucket that has values: with 1 %, a factor of ten has 115 buckets.
    """

    checks = True

    def __init__(
        self,
        of: Selector,
        at: float | Sequence[float],
        *,
        accuracy: float = 0.01,
        missing: WhenMissing = "fail",
        where: Callable[[Any], Any] | None = None,
    ) -> None:
        """
        Args:
            at: from 0 to 1, one or several; of one the result is no list.
            accuracy: what a result may be off, relative to the value.
            missing, where: see `Aggregate`.

        Raises:
            PipelineError: an argument is none of these, or `ddsketch` isn't installed.
        """
        super().__init__(of, missing=missing, where=where)
        self.single = is_number(at)
        self.at = [at] if is_number(at) else list(at) if isinstance(at, list | tuple) else []
        if not self.at or not all(is_number(one) and 0 <= one <= 1 for one in self.at):
            raise PipelineError(f"Quantiles: at must be a number from 0 to 1, or a list of such, not {at!r}")
        if not (is_number(accuracy) and 0.0001 <= accuracy <= 0.5):
            raise PipelineError(f"Quantiles: accuracy must be a number from 0.0001 to 0.5, not {accuracy!r}")
        self.accuracy = float(accuracy)
        self._mapping = _library("ddsketch.mapping", "Quantiles").LogarithmicMapping(self.accuracy)
        self._least: float = self._mapping.min_possible
        self._greatest: float = self._mapping.max_possible
        self._below: int = 1 - self._mapping.key(self._least)
        """What makes the numbers of buckets positive."""

    @property
    def kept_as(self) -> str:
        return f"Quantiles(accuracy={self.accuracy})"

    def create(self) -> tuple[Buckets, tuple[int, ...]]:
        """Counted buckets, and those of values that aren't counted yet."""
        return (), ()

    def add(self, acc: tuple[Buckets, tuple[int, ...]], value: Any) -> tuple[Buckets, tuple[int, ...]]:
        counted, pending = acc
        pending = (*pending, self._bucket(value))
        return (counted, pending) if len(pending) < _PENDING else (_counted(counted, (), pending), ())

    def merge(
        self, a: tuple[Buckets, tuple[int, ...]], b: tuple[Buckets, tuple[int, ...]]
    ) -> tuple[Buckets, tuple[int, ...]]:
        return _counted(a[0], b[0], (*a[1], *b[1])), ()

    def result(self, acc: tuple[Buckets, tuple[int, ...]]) -> Any:
        buckets = _counted(acc[0], (), acc[1])
        library, stores = _library("ddsketch.ddsketch", "Quantiles"), _library("ddsketch.store", "Quantiles")
        positive, negative, zeros = stores.DenseStore(), stores.DenseStore(), 0
        for bucket, n in zip(buckets[::2], buckets[1::2], strict=True):
            if bucket:
                (positive if bucket > 0 else negative).add(abs(bucket) - self._below, n)
            else:
                zeros = n
        sketch = library.BaseDDSketch(self._mapping, positive, negative, zeros)
        found = [sketch.get_quantile_value(one) for one in self.at]
        values = [None if one is None else float(one) for one in found]
        return values[0] if self.single else values

    def _bucket(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise Unfit(f"expected an int, float or Decimal, not {type(value).__name__}: {shown(value)}")
        try:
            size = abs(float(value))
        except (OverflowError, ValueError):
            size = math.inf
        if not size < self._greatest:
            raise Unfit(f"{shown(value)} has no place among quantiles")
        if size <= self._least:
            return 0
        bucket: int = self._mapping.key(size) + self._below
        return bucket if value > 0 else -bucket


def _counted(a: Buckets, b: Buckets, more: tuple[int, ...]) -> Buckets:
    counts = dict(zip(a[::2], a[1::2], strict=True))
    for bucket, n in zip(b[::2], b[1::2], strict=True):
        counts[bucket] = counts.get(bucket, 0) + n
    for bucket in more:
        counts[bucket] = counts.get(bucket, 0) + 1
    return tuple(part for pair in sorted(counts.items()) for part in pair)
