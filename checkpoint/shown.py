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
