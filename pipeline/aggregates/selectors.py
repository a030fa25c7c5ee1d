"""What an aggregate takes out of a record: a field, an index, what a function of it returns, or all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from checkpoint.errors import Explained
from checkpoint.options import is_whole
from checkpoint.shown import no_field, shown
from pipeline.errors import PipelineError
from pipeline.user_code import is_async, is_generator, takes

Selector: TypeAlias = str | int | Callable[[Any], Any] | None
"""A field name (of a dict), an index (of a list) or a function of the record; `None` = the record itself."""
WhenMissing: TypeAlias = Literal["fail", "skip"]
"""What becomes of a record that lacks the field, or has `None` there."""
Read: TypeAlias = Callable[[Any, int | None], Any]
"""From a record and its timestamp to what an aggregate adds. `SKIPPED`: the record is none of its."""
SKIPPED: Final[Any] = object()


class FieldMissing(Explained, LookupError):
    """A record without the field that an aggregate names, or with `None` there."""


def check_selector(who: str, selector: Any, what: str = "a field name, an index or a function") -> None:
    """
    Raises:
        PipelineError: it is no `Selector`, or a function that takes no record or returns no value.
    """
    if selector is None or isinstance(selector, str) or is_whole(selector):
        return
    if not callable(selector):
        raise PipelineError(f"{who} must be {what}, not {selector!r}")
    if is_async(selector) or is_generator(selector):
        raise PipelineError(f"{who}: {shown_selector(selector)} must be a plain def that returns a value")
    if not takes(selector, 1):
        raise PipelineError(f"{who}: {shown_selector(selector)} can't be called with (record)")


def shown_selector(selector: Selector) -> str:
    """As it is written in the call."""
    if callable(selector):
        return str(getattr(selector, "__name__", type(selector).__name__))
    return repr(selector)


def reading(selector: Selector, missing: WhenMissing, label: str) -> Read:
    """
    Args:
        label: names the aggregate in errors.
    """
    if selector is None:
        return lambda record, timestamp: record
    if callable(selector):
        return _by_function(selector, missing, label)
    skips = missing == "skip"

    def read(record: Any, timestamp: int | None) -> Any:
        try:
            value = record[selector]
        except (KeyError, IndexError, TypeError) as error:
            if skips and not isinstance(error, TypeError):
                return SKIPPED
            raise field_missing(label, selector, record) from error
        if value is None:
            if skips:
                return SKIPPED
            raise field_is_none(label, selector, record)
        return value

    return read


def _by_function(function: Callable[[Any], Any], missing: WhenMissing, label: str) -> Read:
    def read(record: Any, timestamp: int | None) -> Any:
        value = function(record)
        if value is not None:
            return value
        if missing == "skip":
            return SKIPPED
        raise field_is_none(label, function, record)

    return read


_ADVICE: Final = 'have such records left out by missing="skip", or filter them out before'


def field_missing(label: str, selector: str | int, record: Any) -> FieldMissing:
    return FieldMissing(f"{label}: {no_field(record, selector, _ADVICE)}")


def field_is_none(label: str, selector: Selector, record: Any) -> FieldMissing:
    what = f"{shown_selector(selector)} returned None for" if callable(selector) else f"{selector!r} is None in"
    return FieldMissing(f"{label}: {what} the record {shown(record, 200)}; {_ADVICE}")
