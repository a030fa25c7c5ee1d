"""Values in messages."""

from __future__ import annotations

from typing import Any


def shown(value: Any, most: int = 100) -> str:
    """`repr(value)`, cut to `most` characters. A message about a value that has none says so, and still comes out."""
    try:
        text = repr(value)
    except Exception as error:  # of an int of more than 4,300 digits, or of a class of the user's
        return f"<{type(value).__qualname__}, whose repr raises {type(error).__name__}>"
    return text if len(text) <= most else f"{text[:most]}…"


def no_field(record: Any, field: str | int, advice: str) -> str:
    """That `record` has no such item, and what to do: `advice`, or for an instance with a field of that name a function
    that takes it."""
    if any(field in vars(cls).get("__annotations__", {}) for cls in type(record).__mro__):
        name = type(record).__name__
        return (
            f"{field!r} names an item of a dict, and the record is an instance of {name}: {shown(record, 200)}; give a "
            f"function, such as lambda record: record.{field}"
        )
    return f"the record has no {field!r}: {shown(record, 200)}; {advice}"
