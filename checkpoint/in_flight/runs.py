"""Runs: captured elements with the rows between two watermarks of a channel as one batch, and the way back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from checkpoint.edge_format import EdgeFormat
from checkpoint.elements import ChannelName, Data, EdgeName, IdleStatus, InFlight, Watermark
from checkpoint.in_flight.captured import CapturedState, Part

TARGET: Final = 64 * 1024
"""Bytes of a restored batch, unless a single row is larger."""
_RUN_BYTES: Final = 1 << 20

Content: TypeAlias = "pa.RecordBatch | Watermark | IdleStatus"


class Origin(NamedTuple):
    """Where rows were captured. Together with a row's number among those of its origin it names the row."""

    part: Part
    holder: int
    """Index of the old downstream subtask that had the rows, or that they were on their way to."""
    channel: ChannelName


@dataclass(frozen=True, slots=True)
class Run:
    origin: Origin
    first_row: int
    """Rows of the same origin before this run."""
    content: Content


FormatOf: TypeAlias = Callable[[EdgeName], EdgeFormat]
"""The format of an edge."""


def runs_of(captured: CapturedState, subtask: int, format_of: FormatOf) -> Iterator[Run]:
    """What a subtask captured, in order, with neighbouring batches of a channel joined.

    Args:
        subtask: its index within its vertex.
        format_of: gives the format of an edge, as it was when the elements were captured.
    """
    rows: Counter[Origin] = Counter()
    waiting: list[Any] = []
    waiting_bytes = 0
    at: Origin | None = None

    def join() -> Iterator[Run]:
        nonlocal waiting, waiting_bytes
        if waiting:
            assert at is not None
            batches, waiting, waiting_bytes = waiting, [], 0
            for batch in concatenated(batches):
                yield Run(at, rows[at], batch)
                rows[at] += batch.num_rows

    for part, channel, element in captured.elements():
        origin = origin_of(part, channel, subtask)
        if origin != at or waiting_bytes >= _RUN_BYTES or not isinstance(element, Data):
            yield from join()
        at = origin
        if not isinstance(element, Data):
            yield Run(origin, rows[origin], element)
        elif element.rest:
            edge_format = format_of(channel.edge)
            waiting.append(edge_format.rest(edge_format.from_frame(element.payload), element.start))
            waiting_bytes += element.size
    yield from join()


def origin_of(part: Part, channel: ChannelName, subtask: int) -> Origin:
    """`subtask`: index of the subtask that captured it."""
    return Origin(part, subtask if part is Part.RESTORED else channel.downstream, channel)


def concatenated(batches: list[Any]) -> list[Any]:
    """As few batches as hold the same rows: one, unless they exceed 2 GiB."""
    if len(batches) == 1:
        return batches
    found: list[Any] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return found


def to_elements(
    contents: Iterable[tuple[ChannelName, Content]], format_of: FormatOf, target: int = TARGET
) -> Iterator[tuple[ChannelName, InFlight]]:
    """Contents as elements again, in order; neighbouring rows of a channel joined and cut to `target` bytes.

    Args:
        format_of: gives the format of an edge, which the contents have.
    """
    waiting: list[Any] = []
    waiting_bytes = 0
    at: ChannelName | None = None

    def join() -> Iterator[tuple[ChannelName, InFlight]]:
        nonlocal waiting, waiting_bytes
        if waiting:
            assert at is not None
            batches, waiting, waiting_bytes = waiting, [], 0
            edge_format = format_of(at.edge)
            for batch in concatenated(batches):
                for piece in edge_format.pieces(batch, target):
                    frame = edge_format.to_frame(piece)
                    yield at, Data(frame, frame.size, piece.num_rows)

    for channel, content in contents:
        if channel != at or waiting_bytes >= _RUN_BYTES or isinstance(content, (Watermark, IdleStatus)):
            yield from join()
        at = channel
        if isinstance(content, (Watermark, IdleStatus)):
            yield channel, content
        elif content.num_rows:
            waiting.append(content)
            waiting_bytes += content.nbytes
    yield from join()
