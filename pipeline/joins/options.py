"""What joins are told, checked, and what they make of a pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias, get_args

from checkpoint.codec import copied
from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.options import one_of
from checkpoint.shown import shown
from pipeline.by_event_time import LATE, NoTimestamp
from pipeline.errors import PipelineError
from pipeline.operators import OperatorContext
from pipeline.user_code import is_async, is_generator, takes
from pipeline.windows.durations import milliseconds

How: TypeAlias = Literal["inner", "left", "right", "full"]
Select: TypeAlias = Callable[[Any, Any], Any]
"""Makes a result of a left and a right record; `None` stands for one that is missing."""
Output: TypeAlias = Callable[[Any, Any, Any], Any]
"""Makes a result of a key, a left and a right record."""

LEFT: Final = "left"
RIGHT: Final = "right"
MOST_AT_ONCE: Final = 1000
"""Records of a key that one timer lets go or looks at, and results that it gives. A barrier waits for no more."""
LOWEST: Final = -(2**63)
"""The first time that 64 bits can hold."""


def clamped(at: int) -> int:
    """The nearest time that 64 bits can hold."""
    return max(LOWEST, min(at, MAX_WATERMARK))


def checked_how(who: str, how: Any, allowed: tuple[str, ...] = get_args(How)) -> How:
    """
    Raises:
        PipelineError: it is none of those.
    """
    try:
        one_of(how, f"{who}: how", allowed)
    except ValueError as error:
        hint = '; an outer join of both sides is "full"' if how == "outer" and "full" in allowed else ""
        raise PipelineError(f"{error}{hint}") from None
    checked: How = how
    return checked


def checked_within(who: str, within: Any) -> tuple[int, int]:
    """Lower and upper bound in milliseconds.

    Args:
        within: both as seconds or `timedelta`.

    Raises:
        PipelineError: it is something else, or the lower one is above the upper one.
    """
    if not isinstance(within, tuple | list) or len(within) != 2:
        raise PipelineError(
            f"{who}: within is a pair of bounds, in seconds or as timedelta, such as (-5, 5); not {within!r}"
        )
    lower, upper = (milliseconds(one, f"{who}: within", None) for one in within)
    if lower > upper:
        raise PipelineError(f"{who}: within has the lower bound first, not {within!r}")
    return lower, upper


def checked_age(who: str, max_age: Any) -> int | None:
    """In milliseconds.

    Raises:
        PipelineError: it is no duration.
    """
    return None if max_age is None else milliseconds(max_age, f"{who}: max_age", 0)


def output_of(who: str, select: Select | None) -> Output:
    """What makes the results of a join.

    Raises:
        PipelineError: `select` is no function of two records that returns a value.
    """
    if select is None:
        return pair
    if not callable(select) or is_async(select) or is_generator(select) or not takes(select, 2):
        raise PipelineError(
            f"{who}: select must be a plain function of a left and a right record that returns a result, not {select!r}"
        )
    return Selected(select)


def pair(key: Any, left: Any, right: Any) -> dict[str, Any]:
    """A result without `select`."""
    return {"key": key, LEFT: left, RIGHT: right}


class Selected:
    """Results are what a function of the user's returns."""

    def __init__(self, function: Select) -> None:
        self._function = function

    def __call__(self, key: Any, left: Any, right: Any) -> Any:
        # It may change what it gets, and these may be in state.
        return self._function(copied(left), copied(right))


def timestamp_of(who: str, side: str, value: Any, ctx: OperatorContext) -> int:
    """When the record in progress has happened.

    Raises:
        NoTimestamp: nobody knows.
    """
    at = ctx.timestamp
    if at is None:
        raise NoTimestamp(
            f"{who}: a record of the {side} stream has no timestamp, so nothing tells which records belong to it: put "
            f"assign_timestamps(…) directly behind its source. The record: {shown(value, 200)}"
        )
    return at


def too_late(side: str, value: Any, ctx: OperatorContext) -> None:
    """The record in progress comes too late: records that belong to it may be gone."""
    ctx.side_output(LATE, {"key": ctx.key, "side": side, "record": value})
