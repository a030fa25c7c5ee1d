"""Sums without rounding, so that no order of adding and no way of merging changes them.

A sum is one of

| it is             | of                                                                             |
|-------------------|--------------------------------------------------------------------------------|
| an int            | ints, or nothing                                                               |
| a `Decimal`       | Decimals, and ints                                                             |
| a tuple of n, k   | floats, and ints; it is n / 2**k. Every float is such a number                 |
| a float           | floats of which one at least is infinite or NaN; the sum is that, too          |
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact
from typing import Any, Final, TypeAlias, cast

from checkpoint.shown import shown
from pipeline.aggregates.base import Unfit

Number: TypeAlias = int | float | Decimal
ExactSum: TypeAlias = int | float | Decimal | tuple[int, int]

DIGITS: Final = 1000
"""So many digits a sum of Decimals may have. Nothing is rounded: one that needs more is an error."""
EXACTLY: Final = Context(prec=DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact])
ROUNDED: Final = Context(prec=28, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
"""For what is divided."""
_NORMAL: Final = 2.0**-1000
"""Floats above are rounded once, however they are made."""


def added(total: Any, value: Any) -> ExactSum:
    """An `ExactSum` and one more number.

    Raises:
        Unfit: the value is no number, or none that fits those before; or the sum of Decimals has too many digits.
    """
    kind = type(value)
    before = type(total)
    if kind is int:
        if before is int:
            return cast(int, total + value)
        if before is tuple:
            return (total[0] + (value << total[1]), total[1])
        return cast(float, total) if before is float else _decimals(total, value)
    if kind is float:
        try:
            numerator, denominator = value.as_integer_ratio()
        except (ValueError, OverflowError):  # NaN, infinite
            return merged(total, value)
        bits = denominator.bit_length() - 1
        if before is tuple:
            n, k = total
            return (n + (numerator << k - bits), k) if bits <= k else ((n << bits - k) + numerator, bits)
        return merged(total, (numerator, bits))
    return merged(total, value if kind is Decimal else exact(value))


def merged(a: Any, b: Any) -> ExactSum:
    """The sum of two `ExactSum`s.

    Raises:
        Unfit: one is of floats and the other of Decimals; or as `added`.
    """
    if type(a) is int and type(b) is int:
        return a + b
    if type(a) is Decimal or type(b) is Decimal:
        if type(a) in (int, Decimal) and type(b) in (int, Decimal):
            return _decimals(a, b)
        raise Unfit(f"Decimals and floats have no common sum: {shown(_number(a))} and {shown(_number(b))}")
    if type(a) is float or type(b) is float:
        return cast(float, a + b) if type(a) is type(b) else a if type(a) is float else cast(float, b)
    n, k = a if type(a) is tuple else (a, 0)
    m, j = b if type(b) is tuple else (b, 0)
    return (n + (m << k - j), k) if j <= k else ((n << j - k) + m, j)


def exact(value: Any) -> ExactSum:
    """The sum of one number.

    Raises:
        Unfit: it is none. A bool isn't.
    """
    if isinstance(value, bool):
        raise Unfit(f"{value} is no number; count such records by Count(where=…)")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return float(value)
        numerator, denominator = value.as_integer_ratio()
        return numerator, denominator.bit_length() - 1
    if isinstance(value, Decimal):
        return Decimal(value)
    raise Unfit(f"expected an int, float or Decimal, not {type(value).__name__}: {shown(value)}")


def squared(one: ExactSum) -> ExactSum:
    """
    Raises:
        Unfit: as `added`.
    """
    if type(one) is tuple:
        return one[0] * one[0], 2 * one[1]
    if type(one) is Decimal:
        try:
            return EXACTLY.multiply(one, one)
        except Inexact:
            raise Unfit(_too_long(one)) from None
    product: int | float = cast(Any, one) * one
    return product


def rounded(total: Any) -> Number:
    """An `ExactSum` as a number: of floats the float that is nearest.

    Raises:
        Unfit: it is too large for a float.
    """
    if type(total) is not tuple:
        return cast(Number, total)
    n, k = total
    try:
        near = math.ldexp(float(n), -k)
        if near > _NORMAL or near < -_NORMAL:
            return near
    except OverflowError:
        pass  # n alone may be too large
    return quotient(n, 1 << k)


def quotient(n: int, m: int) -> float:
    """The float that is nearest to n / m.

    Raises:
        Unfit: it is too large for one.
    """
    try:
        return n / m
    except OverflowError:
        raise Unfit("the result is too large for a float") from None


def _number(total: Any) -> Number:
    try:
        return rounded(total)
    except Unfit:
        return math.inf


def _decimals(a: Any, b: Any) -> Decimal:
    try:
        return EXACTLY.add(a, b)
    except Inexact:
        raise Unfit(_too_long(b)) from None


def _too_long(value: Any) -> str:
    return f"Decimals aren't rounded, and more than {DIGITS} digits would be needed with {shown(value)}"
