"""Copies of values that share nothing mutable with the original."""

from __future__ import annotations

from copy import deepcopy
from datetime import datetime, time
from typing import Any, Final

from checkpoint.codec import SCALARS

IMMUTABLE: Final = SCALARS | {datetime, time}
"""Types whose values a snapshot may share with the running operator."""


def private_copy(value: Any) -> Any:
    """A copy that shares nothing mutable with `value`."""
    kind = type(value)
    if kind in IMMUTABLE:
        return value
    if kind is list:
        return value.copy() if IMMUTABLE.issuperset(map(type, value)) else [private_copy(item) for item in value]
    if kind is dict:
        if IMMUTABLE.issuperset(map(type, value.values())):
            return value.copy()
        return {key: private_copy(item) for key, item in value.items()}
    if kind is tuple:
        return value if IMMUTABLE.issuperset(map(type, value)) else tuple(private_copy(item) for item in value)
    if kind is set or kind is bytearray:
        return value.copy()
    if kind is frozenset:
        return value
    return deepcopy(value)
