"""Captured states for tests, made of records that say what they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from checkpoint.codec import encode, encode_key
from checkpoint.elements import ChannelName, Data, EdgeName, IdleStatus, InFlight, Watermark
from checkpoint.key_groups import key_group
from checkpoint.row_format import row_format

GROUPS = 16
EDGE = EdgeName("orders", "totals", "0.0")


def channel(upstream: int, downstream: int, edge: EdgeName = EDGE) -> ChannelName:
    return ChannelName(edge, upstream, downstream)


def data(values: Iterable[Any], keyed: bool = False, start: int = 0, timestamp: int | None = None) -> Data:
    """A batch; on a keyed edge each value is a list that begins with its key."""
    edge_format = row_format(keyed)
    builder = edge_format.builder()
    for value in values:
        if keyed:
            key = encode_key(value[0])
            builder.append_keyed(encode(value), timestamp, key, key_group(key, GROUPS))
        else:
            builder.append(encode(value), timestamp)
    n = builder.rows
    frame = edge_format.to_frame(builder.seal())
    return Data(frame, frame.size, n, start)


def shown(elements: Iterable[InFlight], keyed: bool = False) -> list[Any]:
    """Values of records still to be processed, one by one, `("watermark", t)`, `"idle"` and `"active"`."""
    found: list[Any] = []
    for element in elements:
        match element:
            case Watermark(timestamp):
                found.append(("watermark", timestamp))
            case IdleStatus(idle):
                found.append("idle" if idle else "active")
            case _:
                found += values(element, keyed)
    return found


def values(element: Data, keyed: bool) -> list[Any]:
    edge_format = row_format(keyed)
    batch = edge_format.from_frame(element.payload)
    assert batch.num_rows == element.rows
    batch.validate(full=True)
    return edge_format.rows(batch).values[element.start :]


def by_channel(sequence: Iterable[tuple[ChannelName, InFlight]]) -> dict[ChannelName, list[InFlight]]:
    found: dict[ChannelName, list[InFlight]] = {}
    for name, element in sequence:
        found.setdefault(name, []).append(element)
    return found


def key_of_group(groups: range, which: int = 0) -> int:
    """The `which`-th whole number whose key group is among `groups`."""
    fitting = [n for n in range(2000) if key_group(encode_key(n), GROUPS) in groups]
    return fitting[which]


def cut(items: Sequence[Any], sizes: Sequence[int]) -> list[Sequence[Any]]:
    """The items in pieces of these sizes, the rest in one."""
    found, at = [], 0
    for size in [*sizes, len(items)]:
        if items[at : at + size]:
            found.append(items[at : at + size])
        at += size
    return found
