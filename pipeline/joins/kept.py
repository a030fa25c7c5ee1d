"""Records of one key from one input, in order of time (pure).

They are a value of state: lists side by side, the times first, so that finding a time takes no look at records. Equal
times are in the order in which they came.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any, Final, TypeAlias

Kept: TypeAlias = list[list[Any]]
"""Times, records, and further lists with something of each."""
TIMES: Final = 0
RECORDS: Final = 1


def kept(at: int, *columns: Any) -> Kept:
    """One record.

    Args:
        columns: the record, and what else is known of it.
    """
    return [[at], *([one] for one in columns)]


def insert(into: Kept, at: int, *columns: Any) -> int:
    """Add a record behind those of its time. Returns its position."""
    times = into[TIMES]
    if at >= times[-1]:
        index = len(times)
        times.append(at)
        for column, one in zip(into[RECORDS:], columns, strict=True):
            column.append(one)
        return index
    index = bisect_right(times, at)
    times.insert(index, at)
    for column, one in zip(into[RECORDS:], columns, strict=True):
        column.insert(index, one)
    return index


def span(of: Kept, lower: int, upper: int) -> tuple[int, int]:
    """The position of the first record from `lower` to `upper`, both included, and that behind the last."""
    times = of[TIMES]
    return bisect_left(times, lower), bisect_right(times, upper)


def count_until(of: Kept, at: int) -> int:
    """How many records have that time or an earlier one."""
    return bisect_right(of[TIMES], at)


def split_off(of: Kept, count: int) -> Kept:
    """Take out the first `count` records, and return them."""
    taken = [column[:count] for column in of]
    for column in of:
        del column[:count]
    return taken
