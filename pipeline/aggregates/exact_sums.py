"""Sums without rounding, so that no order of adding and no way of merging changes them.

A sum is one of

| it is                  | of                                                                                         |
|------------------------|--------------------------------------------------------------------------------------------|
| an int                 | ints, or nothing                                                                           |
| a `Decimal`            | Decimals, and ints                                                                         |
| a tuple (int, floats…) | floats and ints: the ints' sum, and floats whose exact sum is that of all floats (Shewchuk, |
|                        | "Adaptive Precision Floating-Point Arithmetic", 1997); or the one float that is not finite |
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact
from typing import Any, Final, TypeAlias

from checkpoint.shown import shown
from pipeline.aggregates.base import Unfit

Number: TypeAlias = int | float | Decimal
ExactSum: TypeAlias = int | Decimal | tuple[Any, ...]

DIGITS: Final = 1000
"""So many digits a sum of Decimals may have. Nothing is rounded: one that needs more is an error."""
_TOO_LARGE: Final = "the sum is too large for a float"
_EXACTLY: Final = Context(prec=DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact])


def added(total: ExactSum, value: Any) -> ExactSum:
    """
    Raises:
        Unfit: the value is no number, or none that fits those before; or the sum is too large for a float, or has more
            than `DIGITS` digits.
    """
    kind = type(value)
    if kind is float:
        if type(total) is tuple:
            return (total[0], *_grown(total[1:], value))
        if type(total) is int:
            return (total, value)
    elif kind is int:
        if type(total) is int:
            grown: int = total + value
            return grown
        if type(total) is tuple:
            return (total[0] + value, *total[1:])
        return _decimal(total, value)
    elif kind is Decimal:
        if type(total) is not tuple:
            return _decimal(total, value)
    else:
        return added(total, plain_number(value))
    before = "Decimals" if type(total) is Decimal else "floats"
    raise Unfit(f"it has added {before}, and {shown(value)} fits no sum of those")


def merged(a: ExactSum, b: ExactSum) -> ExactSum:
    """The sum of both.

    Raises:
        Unfit: as `added`.
    """
    if type(b) is not tuple:
        return added(a, b)
    if type(a) is tuple:
        partials: Iterable[float] = a[1:]
        for value in b[1:]:
            partials = _grown(partials, value)
        return (a[0] + b[0], *partials)
    return added(b, a)


def rounded(total: ExactSum) -> Number:
    """The sum as a number: of floats the float that is nearest.

    Raises:
        Unfit: it is too large for a float.
    """
    if not isinstance(total, tuple):
        return total
    whole, *partials = total
    try:
        return math.fsum((*_as_floats(whole), *partials)) if whole else math.fsum(partials)
    except OverflowError:
        raise Unfit(_TOO_LARGE) from None


def plain_number(value: Any) -> Number:
    """The value as an int, float or Decimal, of a class derived from one of them, too.

    Raises:
        Unfit: it is none.
    """
    if isinstance(value, bool):
        raise Unfit(f"{value} is no number; count such records by Count(where=…)")
    for kind in (int, float, Decimal):
        if isinstance(value, kind):
            number: Number = kind(value)
            return number
    raise Unfit(f"expected an int, float or Decimal, not {type(value).__name__}: {shown(value)}")


def _grown(partials: Iterable[float], value: float) -> list[float]:
    """Floats that have the exact sum of these and one more: none overlaps another, the largest comes last."""
    grown = []
    total = value
    for one in partials:
        larger, smaller = (total, one) if abs(total) >= abs(one) else (one, total)
        total = larger + smaller
        rest = smaller - (total - larger)
        if rest:
            grown.append(rest)
    if total - total:  # not finite
        lost = [one for one in (*partials, value) if not math.isfinite(one)]
        if not lost:
            raise Unfit(_TOO_LARGE)
        return [sum(lost)]
    grown.append(total)
    return grown


def _as_floats(whole: int) -> list[float]:
    """Floats whose exact sum is an int."""
    found = []
    while whole:
        one = float(whole)
        found.append(one)
        whole -= int(one)
    return found


def _decimal(total: Any, value: Any) -> Decimal:
    try:
        return _EXACTLY.add(total, value)
    except Inexact:
        raise Unfit(f"the sum of Decimals would need more than {DIGITS} digits with {shown(value)}") from None
