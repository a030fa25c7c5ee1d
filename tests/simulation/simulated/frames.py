"""Batches of rows: kept as Python lists while they travel, as Arrow frames only where production code reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from checkpoint.codec import encode, encode_key
from checkpoint.elements import ChannelName, Data, EdgeName, InFlight
from checkpoint.in_flight.captured import CapturedState
from checkpoint.row_format import row_format
from simulated.graph import Edge, Row, group_of


def batch(records: list[Row]) -> Data:
    return Data(b"", 10 * len(records), len(records), unpacked=records)


def records_of(data: Data, edge: Edge) -> list[Row]:
    """All rows of the payload, those already processed included."""
    if data.unpacked is None:
        edge_format = row_format(edge.carries_groups)
        values = edge_format.rows(edge_format.from_frame(data.payload)).values
        data.unpacked = [Row(split, sequence, tuple(path)) for split, sequence, path in values]
    found: list[Row] = data.unpacked
    return found


def with_frames(captured: CapturedState, edges: Mapping[EdgeName, Edge]) -> CapturedState:
    """The same, every batch with its Arrow frame."""
    done: dict[int, Data] = {}

    def framed(channel: ChannelName, element: InFlight) -> InFlight:
        if not isinstance(element, Data) or element.payload:
            return element
        if id(element.unpacked) not in done:
            done[id(element.unpacked)] = _framed(element, edges[channel.edge])
        return replace(done[id(element.unpacked)], start=element.start)

    def all_framed(channels: dict[ChannelName, list[InFlight]]) -> dict[ChannelName, list[InFlight]]:
        return {channel: [framed(channel, one) for one in elements] for channel, elements in channels.items()}

    restored = [(channel, framed(channel, one)) for channel, one in captured.restored]
    return CapturedState(restored, all_framed(captured.inputs), all_framed(captured.outputs))


def _framed(data: Data, edge: Edge) -> Data:
    builder = row_format(edge.carries_groups).builder()
    for row in data.unpacked:
        value = encode([row.split, row.sequence, list(row.path)])
        if edge.carries_groups:
            assert edge.key is not None
            key = edge.key.of(row.split, row.sequence)
            builder.append_keyed(value, row.timestamp, encode_key(key), group_of(key))
        else:
            builder.append(value, row.timestamp)
    frame = row_format(edge.carries_groups).to_frame(builder.seal())
    return Data(frame, frame.size, data.rows)


def count(elements: Iterable[InFlight]) -> int:
    return sum(one.rest for one in elements if isinstance(one, Data))
