"""Sums of columns, exact as those of values one by one."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.aggregates.exact_sums import ExactSum, merged

_LOW: int = (1 << 26) - 1
_MANTISSA: int = (1 << 52) - 1
_EXPONENT: int = 0x7FF


def sum_of_column(values: pa.Array) -> ExactSum | None:
    """The exact sum of ints or floats of 64 bits at most; `None` of what has another type.

    Args:
        values: none is null.
    """
    if not len(values):
        return 0
    if pa.types.is_integer(values.type):
        return _sum_of_ints(values)
    if pa.types.is_floating(values.type):
        return _sum_of_floats(values.cast(pa.float64()))
    return None


def _sum_of_ints(values: pa.Array) -> int:
    bounds = pc.min_max(values)
    largest = max(abs(bounds["min"].as_py()), abs(bounds["max"].as_py()))
    if largest * len(values) < 2**63:
        return int(pc.sum(values).as_py())
    high = pc.shift_right(values, pa.scalar(32, values.type))
    low = pc.bit_wise_and(values, pa.scalar(2**32 - 1, values.type))
    return (int(pc.sum(high).as_py()) << 32) + int(pc.sum(low).as_py())


def _sum_of_floats(values: pa.Array) -> ExactSum:
    """A float is sign * mantissa * 2**exponent. Mantissas of one sign and exponent are summed as ints."""
    finite = pc.is_finite(values)
    total: ExactSum = 0
    for special in values.filter(pc.invert(finite)).to_pylist():
        total = merged(total, special)
    if type(total) is float:
        return total
    bits = values.view(pa.int64())
    mantissas = pc.bit_wise_and(bits, _MANTISSA)
    table = pa.table(
        {
            "power": pc.shift_right(bits, 52),  # keeps the sign
            "high": pc.shift_right(mantissas, 26),
            "low": pc.bit_wise_and(mantissas, _LOW),
        }
    )
    total = (0, 0)
    for row in table.group_by("power").aggregate([("high", "sum"), ("low", "sum"), ("low", "count")]).to_pylist():
        exponent = row["power"] & _EXPONENT
        n = (row["high_sum"] << 26) + row["low_sum"]
        if exponent:
            n += row["low_count"] << 52
        else:
            exponent = 1  # subnormal
        if row["power"] < 0:
            n = -n
        power = exponent - 1075
        total = merged(total, (n, -power) if power < 0 else (n << power, 0))
    return total
