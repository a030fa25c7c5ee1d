"""Copies of values that share nothing mutable with the original."""

from __future__ import annotations

from copy import deepcopy
from datetime import datetime, time
from typing import Any, Final

from checkpoint.codec import SCALARS
from checkpoint.codec.records import form_of

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
        if not IMMUTABLE.issuperset(map(type, value)):
            return dict(zip(map(private_copy, value), map(private_copy, value.values()), strict=True))
        copy = value.copy()
        for key, item in value.items():
            if type(item) not in IMMUTABLE:
                copy[key] = private_copy(item)
        return copy
    if kind is tuple:
        return value if IMMUTABLE.issuperset(map(type, value)) else tuple(private_copy(item) for item in value)
    if kind is set or kind is frozenset:
        return value.copy() if IMMUTABLE.issuperset(map(type, value)) else kind(map(private_copy, value))
    if kind is bytearray:
        return value.copy()
    form = form_of(kind)
    return deepcopy(value) if form is None else form.copy(value, private_copy)


def is_changeable(value: Any) -> bool:
    """Whether a value, or what it holds, can be changed in place."""
    kind = type(value)
    if kind in IMMUTABLE:
        return False
    if kind is tuple or kind is frozenset:
        return any(map(is_changeable, value))
    if kind in (list, dict, set, bytearray):
        return True
    form = form_of(kind)
    if form is None or form.changeable:
        return form is not None
    content, more = form.take(value)
    return more is not None or (type(content) is dict and any(map(is_changeable, content.values())))
