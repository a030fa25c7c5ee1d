"""Rows of a snapshot that a keyed state is to take over: whether they are of its kind, and which stamps they bring."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from checkpoint.codec import decode_key, owner_of
from checkpoint.shown import shown
from checkpoint.state.descriptors import KeyedStateDescriptor
from checkpoint.state.errors import StateRestoreError
from checkpoint.state.paging.rows import is_row
from checkpoint.state.snapshot_format import StateBatch
from checkpoint.state.ttl import unpacked

TWICE: Final = "is in the checkpoint twice"


def check_rows(what: str, batch: StateBatch, values: list[Any], descriptor: KeyedStateDescriptor[Any]) -> None:
    """
    Args:
        what: the state as messages name it.
        values: of the batch, as the program has them now.

    Raises:
        StateRestoreError: they belong to another kind of state.
    """
    kind = type(descriptor).__name__
    if batch.namespaces is not None:
        i, namespace = next((i, one) for i, one in enumerate(batch.namespaces) if one is not None)
        refuse_row(what, batch.keys[i], f"has a namespace ({namespace!r}), which {kind} doesn't have")
    paged = None if batch.content is None else batch.content.paged
    if paged is not None:
        fits = [is_row(value, paged) for value in values]
    elif not all(issubclass(one, descriptor.content) for one in set(map(type, values))):
        fits = [isinstance(value, descriptor.content) for value in values]
    else:
        return
    if not all(fits):
        i = fits.index(False)
        refuse_row(what, batch.keys[i], f"is no {kind}; declare the state as it was when the checkpoint was taken")


def stamps_of(
    what: str, batch: StateBatch, values: list[Any], descriptor: KeyedStateDescriptor[Any]
) -> list[tuple[int, ...] | None] | None:
    """The stamps of the entries of each value, `None` for those that have none that mean anything here; `None` for a
    state without a time to live.

    Raises:
        StateRestoreError: a value has not one for each of its entries.
    """
    if descriptor.ttl is None:
        return None
    # Stamps of another clock mean nothing here.
    known = batch.written if batch.clock == descriptor.ttl.time else None
    members = descriptor.content in (list, dict)
    stamps = []
    for key, value, packed in zip(batch.keys, values, known or [None] * len(values), strict=True):
        one = None if packed is None else unpacked(packed, len(value) if members else 1)
        if packed is not None and one is None:
            refuse_row(what, key, "has no time for each of its entries; the checkpoint is damaged")
        stamps.append(one)
    return stamps


def refuse_row(what: str, key: bytes, problem: str) -> NoReturn:
    """
    Raises:
        StateRestoreError: in any case.
    """
    raise StateRestoreError(f"{what}: the value of key {shown(decode_key(owner_of(key)))} {problem}")
