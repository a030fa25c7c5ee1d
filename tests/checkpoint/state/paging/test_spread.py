"""Keys that are equal in a dict have the same number, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag, StrEnum
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checkpoint.state.paging.spread import spread
from tests.support.values import EDGES


class Number(IntEnum):
    ONE = 1


class Bits(IntFlag):
    ONE = 1


class Text(StrEnum):
    A = "a"


class Mixed(str, Enum):  # noqa: UP042  # a text, as older programs have them
    A = "a"


class Plain(Enum):
    A = "a"


Pair = namedtuple("Pair", "a b")


class Odd(tuple[Any, ...]):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = tuple.__hash__


@dataclass(frozen=True)
class Point:
    x: int


BERLIN = ZoneInfo("Europe/Berlin")
NUMBERS = [0, 0.0, -0.0, 1, True, 1.0, Decimal("1.00"), Decimal(1), -1, -1.0, 2**61 - 1, 2**70, float(2**70), 0.5]
NUMBERS += [Decimal("0.50"), float("inf"), Decimal("Infinity"), Number.ONE, Bits.ONE, Decimal("0.1"), 0.1]
OTHERS: list[Any] = ["a", Text.A, Mixed.A, b"a", None, (), (1, 2), (1.0, True + 1), Pair(1, 2), Pair(True, 2.0)]
OTHERS += [datetime(2020, 1, 1, 12), datetime(2020, 1, 1, 12, fold=1), datetime(2020, 1, 1, 12, tzinfo=UTC)]
OTHERS += [datetime(2020, 1, 1, 13, tzinfo=BERLIN), datetime(2020, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))]
OTHERS += [date(2020, 1, 1), datetime(2020, 1, 1), time(1), time(1, fold=1), timedelta(days=1), timedelta(hours=24)]
OTHERS += [UUID(int=1), ((1, "a"), None), ((1.0, Text.A), None)]


@given(st.sampled_from([*NUMBERS, *OTHERS]), st.sampled_from([*NUMBERS, *OTHERS]))
@example(1, Decimal("1.00"))
def test_what_is_equal_has_one_number(one: Any, other: Any) -> None:
    assert spread(one) is not None
    if one == other:
        assert spread(one) == spread(other)


def _can_be_a_key(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def test_all_that_are_equal_in_a_dict_have_one_number() -> None:
    found: dict[Any, int] = {}
    for key in [*NUMBERS, *OTHERS, *filter(_can_be_a_key, EDGES)]:
        number = spread(key)
        if number is not None:
            assert found.setdefault(key, number) == number
    assert len(set(found.values())) > 0.8 * len(found)  # some numbers have equal hashes


@pytest.mark.parametrize(
    "key", [Point(1), Plain.A, frozenset([1]), Odd((1,)), (1, Point(1)), time(1, tzinfo=UTC), Fraction(1, 2)]
)
def test_what_only_a_class_can_compare_has_none(key: Any) -> None:
    assert spread(key) is None


def test_it_is_the_same_in_every_process() -> None:
    keys = ["a", b"a", 7, 0.5, (1, "x"), None]
    program = f"from checkpoint.state.paging.spread import spread; print(list(map(spread, {keys})))"
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert told == {f"{list(map(spread, keys))}\n"}
    # As it lies in checkpoints.
    assert spread("a") == 16629034431890738719
    assert spread(7) == 9324454920402081455
