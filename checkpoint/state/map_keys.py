"""Which values can be keys of a map that is state: those that are found again once the map was written and read."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from checkpoint.codec import copied

_ALWAYS: Final = frozenset({str, int, bytes, bool, type(None), UUID, date, datetime, time, timedelta})
"""Types all of whose values are equal to copies of themselves; the most frequent ones."""


def problem_of_key(key: Any) -> str | None:
    """Why a key would not be found any more; `None` if it would.

    Python takes a key for found if it is the same object, even where it is equal to nothing. A checkpoint keeps no
    identity, nor does RocksDB.

    Raises:
        EncodingError: a checkpoint can't hold it.
    """
    kind = type(key)
    if kind in _ALWAYS:
        return None
    if kind is float or kind is Decimal:
        return None if key == key else f"{key!r} is equal to nothing; use None or a str in its place"
    if kind is tuple or kind is frozenset:
        return next((problem for one in key if (problem := problem_of_key(one)) is not None), None)
    if copied(key) == key:
        return None
    return f"it is equal to no copy of itself; give {kind.__qualname__} an __eq__ that compares what it holds"
