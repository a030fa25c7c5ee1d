"""Channel state on disk: what one subtask captured for a checkpoint, as an Arrow IPC file for any Arrow reader.

One row a record, watermark or idle status:

| column      | type             |                                                                                    |
|-------------|------------------|------------------------------------------------------------------------------------|
| `channel`   | int32            | index into the table of channels                                                   |
| `sequence`  | int64            | position within its part and channel; of restored data within the whole sequence   |
| `kind`      | int8             | 0 record, 1 watermark, 2 idle, 3 not idle any more                                 |
| `value`     | binary, nullable | msgpack; null if it isn't a record                                                 |
| `timestamp` | int64, nullable  | ms: event time of a record, or the watermark                                       |
| `key_group` | int16, nullable  | null where frames carry no keys                                                    |
| `key`       | binary, nullable | `codec.encode_key`                                                                 |

The schema's metadata holds, under `weir.channel_state`, JSON: `version`, and `channels` with `part` (`restored`,
`input` or `output`), `edge`, `upstream`, `downstream`, `keyed`, `rows` and `bytes` of each.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from checkpoint.counted import counted
from checkpoint.edge_format import EdgeFormat, StoredRows
from checkpoint.elements import ChannelName, Data, EdgeName, IdleStatus, Watermark
from checkpoint.in_flight.captured import CapturedState, Part
from checkpoint.in_flight.runs import Content, FormatOf, Run, origin_of, runs_of
from checkpoint.row_format import row_format
from checkpoint.storage.errors import DamagedFile
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.inline_files import InlineFile
from checkpoint.storage.storage import CheckpointStorage

_SCHEMA: Final = pa.schema(
    [
        pa.field("channel", pa.int32(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.int64()),
        pa.field("key_group", pa.int16()),
        pa.field("key", pa.binary()),
    ]
)
_METADATA: Final = b"weir.channel_state"
_VERSION: Final = 1
_RECORD, _WATERMARK, _IDLE, _ACTIVE = 0, 1, 2, 3
_KINDS: Final = 4
_BATCH_BYTES: Final = 1 << 20


class ChannelStateError(ValueError):
    """Bytes that are no channel state, or of a format that this version of Weir can't read."""


@dataclass(frozen=True, slots=True)
class CapturedChannel:
    """A channel in a file of channel state."""

    part: Part
    channel: ChannelName
    keyed: bool
    rows: int
    size: int
    """Bytes of the rows, as flow control counted them."""

    @property
    def format(self) -> EdgeFormat:
        """The format of the batches that are read from the file."""
        return row_format(self.keyed)

    def to_wire(self) -> dict[str, Any]:
        return {
            "part": self.part.value,
            "edge": list(self.channel.edge),
            "upstream": self.channel.upstream,
            "downstream": self.channel.downstream,
            "keyed": self.keyed,
            "rows": self.rows,
            "bytes": self.size,
        }

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> CapturedChannel:
        channel = ChannelName(EdgeName(*wire["edge"]), wire["upstream"], wire["downstream"])
        return cls(Part(wire["part"]), channel, wire["keyed"], wire["rows"], wire["bytes"])


def save(
    storage: CheckpointStorage,
    path: str,
    captured: CapturedState,
    format_of: FormatOf,
    compression: Literal["lz4", "zstd", "none"],
    inline_limit: int = 0,
) -> FileHandle:
    """Write what a subtask captured; durable on return, unless it is inline. Not for the task thread.

    Args:
        path: from `checkpoint.storage.naming`.
        format_of: gives the format of an edge.
        inline_limit: bytes up to which it is inline (see `checkpoint.storage.inline_files`).

    Raises:
        StorageError: nothing is left behind.
    """
    file = InlineFile(storage, path, inline_limit)
    try:
        file.write(encode(captured, format_of, compression))
        return file.close()
    except BaseException:
        file.abort()
        raise


def load(storage: CheckpointStorage, handle: FileHandle, subtask: int) -> list[Run]:
    """What `save` wrote, in order.

    Args:
        subtask: index, within its vertex, of the subtask that captured it.

    Raises:
        DamagedFile: the file is missing, truncated, altered or no channel state.
        StorageError: it can't be read.
    """
    data = storage.read_file(handle)
    try:
        return list(decode(data, subtask))
    except ChannelStateError as error:
        raise DamagedFile(f"{storage.location}/{handle.path} is damaged: {error}") from error


def encode(captured: CapturedState, format_of: FormatOf, compression: Literal["lz4", "zstd", "none"]) -> Any:
    """The file as a `pyarrow.Buffer`."""
    channels = _channels(captured, format_of)
    places = {(one.part, one.channel): index for index, one in enumerate(channels)}
    sink = pa.BufferOutputStream()
    with _new_file(sink, channels, compression) as file:
        positions: Counter[int] = Counter()
        batches: list[Any] = []
        size = 0
        for run in runs_of(captured, 0, format_of):
            part, _, channel = run.origin
            place = places[part, channel]
            sequence = -1 if part is Part.RESTORED else place
            batch = _rows(run.content, channels[place].format, place, positions[sequence])
            positions[sequence] += batch.num_rows
            batches.append(batch)
            size += batch.nbytes
            if size >= _BATCH_BYTES:
                _write(file, batches)
                batches, size = [], 0
        _write(file, batches)
    return sink.getvalue()


def _new_file(sink: Any, channels: list[CapturedChannel], compression: Literal["lz4", "zstd", "none"]) -> Any:
    table = orjson.dumps({"version": _VERSION, "channels": [one.to_wire() for one in channels]})
    options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression, use_threads=False)
    return pa.ipc.new_file(sink, _SCHEMA.with_metadata({_METADATA: table}), options=options)


def _write(file: Any, batches: list[Any]) -> None:
    if batches:
        file.write_table(pa.Table.from_batches(batches).combine_chunks())


def _channels(captured: CapturedState, format_of: FormatOf) -> list[CapturedChannel]:
    rows: Counter[tuple[Part, ChannelName]] = Counter()
    sizes: Counter[tuple[Part, ChannelName]] = Counter()
    for part, channel, element in captured.elements():
        data = element if isinstance(element, Data) and element.rest else None
        rows[part, channel] += data.rest if data else 0
        sizes[part, channel] += data.size * data.rest // data.rows if data else 0
    return [
        CapturedChannel(part, channel, format_of(channel.edge).carries_keys, count, sizes[part, channel])
        for (part, channel), count in rows.items()
    ]


def _rows(content: Content, edge_format: EdgeFormat, place: int, first: int) -> Any:
    values = timestamps = groups = keys = None
    n = 1
    match content:
        case Watermark(timestamp):
            kind, timestamps = _WATERMARK, pa.array([timestamp], pa.int64())
        case IdleStatus(idle):
            kind = _IDLE if idle else _ACTIVE
        case batch:
            kind, n = _RECORD, batch.num_rows
            values, timestamps, groups, keys = edge_format.to_stored(batch)
    sequence = pa.Array.from_buffers(pa.int64(), n, [None, pa.py_buffer(array("q", range(first, first + n)))])
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(place, pa.int32()), n),
            sequence,
            pa.repeat(pa.scalar(kind, pa.int8()), n),
            *(
                pa.nulls(n, field.type) if column is None else column
                for column, field in zip((values, timestamps, groups, keys), list(_SCHEMA)[3:], strict=True)
            ),
        ],
        schema=_SCHEMA,
    )


def channels_of(source: Any) -> list[CapturedChannel]:
    """The channels of a file, with counts, from its footer alone.

    Args:
        source: the file as bytes or `pyarrow.Buffer`, or opened for random access (`pyarrow.NativeFile`).

    Raises:
        ChannelStateError: it is no channel state.
    """
    return _opened(source)[1]


def read_rows(source: Any) -> tuple[list[CapturedChannel], Iterator[Any]]:
    """The channels of a file, and its rows as record batches of the columns above.

    Raises:
        ChannelStateError: it is no channel state, or damaged.
    """
    file, channels = _opened(source)

    def batches() -> Iterator[Any]:
        try:
            for number in range(file.num_record_batches):
                yield file.get_batch(number)
        except (pa.ArrowException, OSError, EOFError) as error:
            raise ChannelStateError(f"a batch can't be read: {error}") from error

    return channels, batches()


def decode(source: Any, subtask: int) -> Iterator[Run]:
    """The runs of a file, in order (see `load`).

    Raises:
        ChannelStateError: it is no channel state.
    """
    file, channels = _opened(source)
    origins = [origin_of(one.part, one.channel, subtask) for one in channels]
    rows: Counter[int] = Counter()
    try:
        for number in range(file.num_record_batches):
            batch = file.get_batch(number)
            for place, content in _contents(batch, channels):
                yield Run(origins[place], rows[place], content)
                if not isinstance(content, (Watermark, IdleStatus)):
                    rows[place] += content.num_rows
    except (pa.ArrowException, OSError, EOFError) as error:
        raise ChannelStateError(f"a batch can't be read: {error}") from error
    for place, one in enumerate(channels):
        if rows[place] != one.rows:
            raise ChannelStateError(f"{one.channel} has {counted(rows[place], 'row')} instead of {one.rows}")


def without_keys(source: Any, gone: Callable[[EdgeName], frozenset[bytes]]) -> tuple[Any, Counter[EdgeName], int]:
    """A file without the records of some keys. Only edges that carry keys can tell whose a record is.

    Args:
        source: as in `channels_of`.
        gone: of each edge the encoded keys.

    Returns:
        The file as a `pyarrow.Buffer`; how many records it lacks, by edge; and about how many bytes these had, as flow
        control counts them.

    Raises:
        ChannelStateError: it is no channel state, or damaged.
    """
    channels, batches = read_rows(source)
    keys = {place: pa.array(sorted(gone(one.channel.edge)), pa.binary()) for place, one in enumerate(channels)}
    kept, lost = [], Counter[int]()
    for batch in batches:
        hit = pa.array([False] * len(batch))
        for place, of_place in keys.items():
            if len(of_place):
                there = pc.and_(pc.equal(batch.column("channel"), place), pc.equal(batch.column("kind"), _RECORD))
                of_key = pc.and_(there, pc.is_in(batch.column("key"), of_place))
                lost[place] += pc.sum(of_key).as_py() or 0
                hit = pc.or_(hit, of_key)
        kept.append(batch.filter(pc.invert(hit)))
    left, rows, size = [], Counter[EdgeName](), 0
    for place, one in enumerate(channels):
        share = one.size * lost[place] // one.rows if lost[place] else 0
        left.append(replace(one, rows=one.rows - lost[place], size=one.size - share))
        rows[one.channel.edge] += lost[place]
        size += share
    sink = pa.BufferOutputStream()
    with _new_file(sink, left, "lz4") as written:
        for batch in kept:
            written.write_batch(batch)
    return sink.getvalue(), +rows, size


def _opened(source: Any) -> tuple[Any, list[CapturedChannel]]:
    try:
        file = pa.ipc.open_file(source)
        table = orjson.loads((file.schema.metadata or {})[_METADATA])
        if table["version"] != _VERSION:
            raise ChannelStateError(f"format version {table['version']} is not known here; use the Weir that wrote it")
        return file, [CapturedChannel.from_wire(one) for one in table["channels"]]
    except ChannelStateError:
        raise
    except (pa.ArrowException, OSError, EOFError, KeyError, TypeError, ValueError) as error:
        raise ChannelStateError(f"it is no file of channel state: {error!r}") from error


def _contents(batch: Any, channels: list[CapturedChannel]) -> Iterable[tuple[int, Content]]:
    """The batch cut where channel or kind change, with the place of the channel in the table."""
    places, _, kinds, values, timestamps, groups, keys = batch.columns
    codes = pc.add(pc.multiply(places, pa.scalar(_KINDS, pa.int32())), kinds.cast(pa.int32()))
    encoded = pc.run_end_encode(codes)
    start = 0
    for end, code in zip(encoded.run_ends.to_pylist(), encoded.values.to_pylist(), strict=True):
        place, kind = divmod(code, _KINDS)
        if not 0 <= place < len(channels):
            raise ChannelStateError(f"a row of channel {place}; there are {len(channels)}")
        if kind == _RECORD:
            cut = (column.slice(start, end - start) for column in (values, timestamps, groups, keys))
            yield place, channels[place].format.from_stored(StoredRows(*cut))
        elif kind == _WATERMARK:
            yield from ((place, Watermark(one)) for one in timestamps.slice(start, end - start).to_pylist())
        else:
            yield from ((place, IdleStatus(kind == _IDLE)) for _ in range(start, end))
        start = end
