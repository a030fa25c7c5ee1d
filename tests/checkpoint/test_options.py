"""What an option may be, at its bounds, and what is said of others."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any

import pytest

from checkpoint.options import (
    flag,
    is_number,
    is_whole,
    limit,
    named_arguments,
    named_options,
    nearest,
    one_of,
    seconds,
    whole_number,
)


@pytest.mark.parametrize(
    ("value", "least", "found"),
    [
        (2, 2.0, 2.0),
        (2.0, 2.0, 2.0),
        (0, 0.0, 0.0),
        (timedelta(milliseconds=1500), 1.5, 1.5),
        (math.inf, 1.0, math.inf),
    ],
)
def test_a_duration_at_its_bound_is_taken(value: Any, least: float, found: float) -> None:
    taken = seconds(value, "pause", least)
    assert (taken, type(taken)) == (found, float)


@pytest.mark.parametrize(
    ("value", "more", "message"),
    [
        (1.9, {"least": 2.0}, "pause must be at least 2 s, not 1.9"),
        (-0.1, {}, "pause must be at least 0 s, not -0.1"),
        (timedelta(seconds=-1), {}, "pause must be at least 0 s, not -1"),
        (math.nan, {}, "pause must be at least 0 s, not nan"),
        (math.inf, {"finite": True}, "pause must be a finite number of seconds"),
        (True, {}, "pause must be seconds or a timedelta, not True"),
        (None, {}, "pause must be seconds or a timedelta, not None"),
        ("1", {}, "pause must be seconds or a timedelta, not '1'"),
    ],
)
def test_what_is_no_duration_or_too_short_is_refused(value: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        seconds(value, "pause", **more)


def test_a_whole_number_at_its_bounds_is_taken() -> None:
    assert [whole_number(value, "n", 1, 3) for value in (1, 3)] == [1, 3]
    assert whole_number(10**30, "n", 1) == 10**30


@pytest.mark.parametrize(
    ("value", "bounds", "message"),
    [
        (0, {"least": 1, "most": 3}, "n must be a whole number from 1 to 3, not 0"),
        (4, {"least": 1, "most": 3}, "n must be a whole number from 1 to 3, not 4"),
        (-1, {"least": 0}, "n must be a whole number of at least 0, not -1"),
        (7, {"least": 8, "unit": "bytes"}, "n must be a whole number of bytes, at least 8, not 7"),
        (1.0, {"least": 1}, "n must be a whole number of at least 1, not 1.0"),
        (True, {"least": 0}, "n must be a whole number of at least 0, not True"),
    ],
)
def test_another_number_is_refused_with_its_bounds(value: Any, bounds: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        whole_number(value, "n", **bounds)


def test_a_limit_is_at_least_one_or_none() -> None:
    assert [limit(value, "most") for value in (1, 2, None)] == [1, 2, None]
    for value in (0, -1, 1.5, False, "1"):
        with pytest.raises(ValueError, match="most must be a whole number of at least 1, or None for no limit; not"):
            limit(value, "most")


def test_a_switch_is_true_or_false_and_nothing_like_it() -> None:
    assert (flag(True, "on"), flag(False, "on")) == (True, False)
    for value in (0, 1, None, "yes"):
        with pytest.raises(ValueError, match=f"on must be True or False, not {value!r}"):
            flag(value, "on")


def test_a_choice_is_one_of_those_that_are_named() -> None:
    one_of("a", "mode", iter(("a", "b")))
    with pytest.raises(ValueError, match=r"^mode must be one of a, 2, not 'c'$"):
        one_of("c", "mode", iter(("a", 2)))


def test_bools_are_no_numbers() -> None:
    assert [is_whole(value) for value in (0, -3, True, False, 1.0, "1", None)] == [True, True, *[False] * 5]
    assert [is_number(value) for value in (0, 1.5, True, False, "1", None, 1j)] == [True, True, *[False] * 5]


def test_only_a_name_that_is_near_is_suggested() -> None:
    assert nearest("intervall", ["timeout", "interval"]) == "; did you mean 'interval'?"
    assert nearest("xyz", ["timeout", "interval"]) == ""


@named_options
class Options:
    def __init__(self, first: int, second: int = 2, *, third: int = 3) -> None:
        self.all = (first, second, third)

    def change(self, first: int) -> int:
        return first + "a" if first == 0 else first  # type: ignore[operator]

    @classmethod
    def of(cls, first: int) -> Options:
        return cls(first)

    @staticmethod
    def doubled(number: int) -> int:
        return 2 * number

    def anything(self, **options: int) -> dict[str, int]:
        return options

    def _own(self, first: int) -> int:
        return first


def test_calls_as_they_are_meant_come_through() -> None:
    assert Options(1).all == Options.of(1).all == (1, 2, 3)
    assert Options(1, 5, third=6).all == (1, 5, 6)
    assert Options.doubled(2) == 4
    assert Options(1).anything(x=1) == {"x": 1}
    assert Options(1).change(first=7) == 7


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Options(1, secnd=2),
            "Options has no option 'secnd'; did you mean 'second'? Its options: first, second, third",
        ),
        (lambda: Options(1, x=2), "Options has no option 'x'. Its options: first, second, third"),
        (
            lambda: Options(),
            "Options: missing a required argument: 'first'; it is called as Options(first, second=2, third=3)",
        ),
        (
            lambda: Options(1).change(),
            "Options.change: missing a required argument: 'first'; it is called as change(first)",
        ),
        (lambda: Options.of(frst=1), "Options.of has no option 'frst'; did you mean 'first'? Its options: first"),
        (
            lambda: Options.doubled(),
            "Options.doubled: missing a required argument: 'number'; it is called as doubled(number)",
        ),
        (lambda: Options(1).change(0), "unsupported operand type(s) for +: 'int' and 'str'"),
    ],
)
def test_a_call_that_cannot_be_says_what_was_meant(call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        call()


def test_methods_of_ones_own_and_those_that_run_for_every_record_are_not_looked_at() -> None:
    @named_arguments
    class Quick:
        def __init__(self, first: int) -> None: ...

        def called(self, first: int) -> None: ...

    with pytest.raises(TypeError, match=r"it is called as Quick\(first\)"):
        Quick()  # type: ignore[call-arg]
    for call in (lambda: Quick(1).called(frst=1), lambda: Options(1)._own(frst=1)):  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="unexpected keyword argument 'frst'"):
            call()
