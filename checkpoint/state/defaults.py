"""What a state may have as its default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checkpoint.codec import EncodingError, check
from checkpoint.state.errors import StateAccessError
from checkpoint.state.private_copy import is_changeable


def check_kept(value: Any, what: str) -> None:
    """
    Raises:
        EncodingError: no checkpoint can hold the value; `what` names it.
    """
    try:
        check(value)
    except EncodingError as error:
        raise EncodingError(f"{what} can't be kept in a checkpoint: {error}") from None


def check_factory(factory: Callable[[], Any], what: str) -> None:
    """
    Raises:
        EncodingError: as `check_kept`, of what the function makes.
        StateAccessError: it makes the same object each time, and that can be changed.
    """
    value = factory()
    check_kept(value, what)
    if is_changeable(value) and factory() is value:
        raise StateAccessError(
            f"{what} is the same {type(value).__name__} for all keys; the function must make a new one each time"
        )


def safely_changeable(default: Any) -> bool:
    """Whether a default is an object that can be changed; one that is refused anyway counts as none."""
    try:
        return is_changeable(default)
    except TypeError:
        return False  # `check` refuses it
