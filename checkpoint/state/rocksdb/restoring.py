"""Rows of a snapshot become rows of RocksDB without being decoded, where that tells enough of them."""

from __future__ import annotations

from typing import Final

from checkpoint.state.descriptors import KeyedStateDescriptor
from checkpoint.state.rocksdb.rows import RowCodec
from checkpoint.state.snapshot_format import StateBatch

_STAMP: Final = 8
_LISTS: Final = frozenset({*range(0x90, 0xA0), 0xDC, 0xDD})
_MAPS: Final = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
_EXTENSIONS: Final = frozenset({0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9)})
"""First bytes in msgpack. Values of users' classes are extensions; whether they fit is seen when they are decoded."""


def rows_of(batch: StateBatch, descriptor: KeyedStateDescriptor, rows: RowCodec) -> list[bytes] | None:  # type: ignore[type-arg]
    """The rows of a batch with encoded values; `None`: it takes a closer look at them.

    Args:
        rows: of the state.
    """
    if batch.namespaces is not None:
        return None
    values, content = batch.values, descriptor.content
    members = content in (list, dict)
    firsts = {value[0] for value in values}
    if not firsts <= (_LISTS if content is list else _MAPS) if members else firsts & _EXTENSIONS:
        return None
    if descriptor.ttl is None:
        return values
    written = batch.written if batch.clock == descriptor.ttl.time and batch.written else [None] * len(values)
    found = []
    for value, stamps in zip(values, written, strict=True):
        count = _members(value) if members else 1
        if count == 0 or (stamps is not None and len(stamps) != _STAMP * count):
            return None
        found.append(rows.join(value, stamps, count))
    return found


def _members(value: bytes) -> int:
    """Of an encoded list or map."""
    first = value[0]
    if first < 0xA0:
        return first & 0x0F
    return int.from_bytes(value[1:3] if first in (0xDC, 0xDE) else value[1:5], "big")
