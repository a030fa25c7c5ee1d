"""How messages count things: `1 record`, `1,204 records`."""

from __future__ import annotations


def counted(number: float, one: str, more: str | None = None) -> str:
    """A number with what it counts.

    Args:
        number: rounded to a whole one.
        one: the words behind 1.
        more: those behind any other number.  [default: `one` with an `s`]
    """
    whole = round(number)
    return f"{whole:,} {one if whole == 1 else more or f'{one}s'}"
