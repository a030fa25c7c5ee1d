"""Channel state on disk: all that was captured comes back, in order, and nothing that was altered."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from captures import EDGE, GROUPS, by_channel, channel, data, shown
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.codec import encode_key
from checkpoint.edge_format import EdgeFormat
from checkpoint.elements import Data, EdgeName, IdleStatus, InFlight, Watermark
from checkpoint.in_flight.captured import CapturedState, Part
from checkpoint.in_flight.channel_state import ChannelStateError, channels_of, decode, encode, load, save, without_keys
from checkpoint.in_flight.runs import Run, to_elements
from checkpoint.key_groups import range_of
from checkpoint.row_format import row_format
from checkpoint.storage.errors import DamagedFile
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.storage import CheckpointStorage

KEYED = EdgeName("orders", "counts", "0.0")


def format_of(edge: EdgeName) -> EdgeFormat:
    return row_format(edge == KEYED)


def elements(runs: list[Run], part: Part) -> list[tuple[Any, InFlight]]:
    return list(to_elements(((run.origin.channel, run.content) for run in runs if run.origin.part is part), format_of))


SAMPLE = CapturedState(
    restored=[
        (channel(4, 1), data(["r0", "r1"], start=1)),
        (channel(0, 1, KEYED), data([["k", 0]], keyed=True)),
        (channel(4, 1), Watermark(50)),
        (channel(4, 1), data(["r2"])),
    ],
    inputs={
        channel(0, 1): [data(["i0"], timestamp=7), data(["i1", "i2"]), Watermark(-3), IdleStatus(True), data(["i3"])],
        channel(1, 1): [],
        channel(2, 1, KEYED): [IdleStatus(False), data([["k", 1], ["l", 2]], keyed=True)],
    },
    outputs={channel(1, 0): [data(["o0"])], channel(1, 2): [Watermark(9)]},
)


@pytest.mark.parametrize("compression", ["lz4", "zstd", "none"])
def test_what_was_captured_comes_back_in_order(compression: Literal["lz4", "zstd", "none"]) -> None:
    runs = list(decode(encode(SAMPLE, format_of, compression), subtask=1))
    restored = elements(runs, Part.RESTORED)
    assert [name for name, _ in restored] == [channel(4, 1), channel(0, 1, KEYED), channel(4, 1), channel(4, 1)]
    assert shown([restored[0][1], *(one for _, one in restored[2:])]) == ["r1", ("watermark", 50), "r2"]
    assert shown([restored[1][1]], keyed=True) == [["k", 0]]
    inputs = by_channel(elements(runs, Part.INPUT))
    assert shown(inputs[channel(0, 1)]) == ["i0", "i1", "i2", ("watermark", -3), "idle", "i3"]
    assert shown(inputs[channel(2, 1, KEYED)], keyed=True) == ["active", ["k", 1], ["l", 2]]
    outputs = by_channel(elements(runs, Part.OUTPUT))
    assert {name: shown(each) for name, each in outputs.items()} == {
        channel(1, 0): ["o0"],
        channel(1, 2): [("watermark", 9)],
    }


def test_timestamps_keys_and_key_groups_come_back() -> None:
    captured = CapturedState(inputs={channel(0, 1, KEYED): [data([["k", 1]], keyed=True, timestamp=77)]})
    (run,) = decode(encode(captured, format_of, "lz4"), subtask=1)
    assert isinstance(run.content, pa.RecordBatch)
    before = pa.ipc.read_record_batch(captured.inputs[channel(0, 1, KEYED)][0].payload, run.content.schema)  # type: ignore[union-attr]
    assert run.content.equals(before)


def test_the_old_subtask_that_had_a_row_is_known() -> None:
    """For restored data that is the subtask that captured it; its channels may be those of an older attempt."""
    runs = list(decode(encode(SAMPLE, format_of, "none"), subtask=1))
    assert {(run.origin.part, run.origin.holder) for run in runs} == {
        (Part.RESTORED, 1),
        (Part.INPUT, 1),
        (Part.OUTPUT, 0),
        (Part.OUTPUT, 2),
    }


def test_a_row_is_named_by_its_number_within_its_origin() -> None:
    runs = list(decode(encode(SAMPLE, format_of, "none"), subtask=1))
    mine = [run for run in runs if run.origin.part is Part.INPUT and run.origin.channel == channel(0, 1)]
    assert [run.first_row for run in mine] == [0, 3, 3, 3]


_BATCH = st.tuples(st.integers(0, 5), st.integers(0, 5)).map(lambda pair: (max(pair), min(pair)))
"""Rows, and how many of them are processed already."""
_ELEMENT = _BATCH | st.integers(-5, 5).map(Watermark) | st.booleans().map(IdleStatus)


@given(
    st.lists(st.tuples(st.integers(0, 2), _ELEMENT), max_size=20),
    st.sampled_from(["lz4", "zstd", "none"]),
    st.booleans(),
)
def test_any_sequence_comes_back(
    sequence: list[tuple[int, Any]], compression: Literal["lz4", "zstd", "none"], with_keys: bool
) -> None:
    edge = KEYED if with_keys else EDGE
    count = 0

    def made(element: Any) -> InFlight:
        nonlocal count
        if not isinstance(element, tuple):
            return element  # type: ignore[no-any-return]
        rows, start = element
        count += rows
        return data([["key", count + row] for row in range(rows)], with_keys, start)

    restored = [(channel(upstream, 0, edge), made(element)) for upstream, element in sequence]
    captured = CapturedState(restored, by_channel(restored))
    runs = list(decode(encode(captured, format_of, compression), subtask=0))
    back = elements(runs, Part.RESTORED)
    assert shown((one for _, one in back), with_keys) == shown((one for _, one in restored), with_keys)
    for name, each in by_channel(restored).items():
        assert shown(by_channel(elements(runs, Part.INPUT)).get(name, []), with_keys) == shown(each, with_keys)


def test_neighbouring_rows_of_a_channel_are_joined_up_to_a_size() -> None:
    small = [data([f"{batch}-{row}-" + "x" * 100 for row in range(10)]) for batch in range(300)]
    captured = CapturedState(inputs={channel(0, 1): [*small]})
    back = [one for _, one in elements(list(decode(encode(captured, format_of, "lz4"), 1)), Part.INPUT)]
    assert shown(back) == shown(small)
    sizes = [one.size for one in back if isinstance(one, Data)]
    assert max(sizes) < 68 * 1024
    assert min(sizes[:-1]) > 60 * 1024


def test_a_row_larger_than_that_is_a_batch_of_its_own() -> None:
    captured = CapturedState(inputs={channel(0, 1): [data(["a", "b" * 200_000, "c"])]})
    back = [one for _, one in elements(list(decode(encode(captured, format_of, "lz4"), 1)), Part.INPUT)]
    assert [shown([one]) for one in back] == [["a"], ["b" * 200_000], ["c"]]


# -- counts ---------------------------------------------------------------------------------------------------


def test_records_and_bytes_are_counted_by_edge_without_those_processed_already() -> None:
    half = data(["x" * 100, "x" * 100], start=1)
    captured = CapturedState([(channel(0, 0), half)], outputs={channel(1, 0, KEYED): [data([["k"]], keyed=True)]})
    assert captured.rows() == {EDGE: 1, KEYED: 1}
    assert captured.sizes()[EDGE] == half.size // 2
    assert CapturedState([(channel(0, 0), Watermark(1))]).rows() == {}


def test_counts_are_read_without_the_data() -> None:
    file = bytearray(encode(SAMPLE, format_of, "none"))
    footer = channels_of(bytes(file))
    body = int.from_bytes(file[-10:-6], "little") + 10
    file[300 : len(file) - body] = bytes(len(file) - body - 300)  # no batch is left
    assert channels_of(bytes(file)) == footer
    assert {(one.part, one.channel): one.rows for one in footer} == {
        (Part.RESTORED, channel(4, 1)): 2,
        (Part.RESTORED, channel(0, 1, KEYED)): 1,
        (Part.INPUT, channel(0, 1)): 4,
        (Part.INPUT, channel(2, 1, KEYED)): 2,
        (Part.OUTPUT, channel(1, 0)): 1,
        (Part.OUTPUT, channel(1, 2)): 0,
    }
    assert sum(one.size for one in footer) == sum(SAMPLE.sizes().values())


def test_a_state_with_nothing_in_it_is_false() -> None:
    assert not CapturedState([], {channel(0, 0): []}, {})
    assert CapturedState([], {channel(0, 0): [Watermark(1)]}, {})


# -- storage --------------------------------------------------------------------------------------------------


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    storage = CheckpointStorage(str(tmp_path), "job")
    storage.prepare()
    return storage


PATH = "chk-5-1/totals-1-in%2Dflight.arrow"


def test_a_file_can_be_read_by_any_arrow_reader(storage: CheckpointStorage) -> None:
    handle = save(storage, PATH, SAMPLE, format_of, "zstd")
    table = pa.ipc.open_file(storage.read_file(handle)).read_all()
    assert table.column_names == ["channel", "sequence", "kind", "value", "timestamp", "key_group", "key"]
    assert table["sequence"].to_pylist()[:4] == [0, 1, 2, 3]
    assert table["kind"].to_pylist()[:4] == [0, 0, 1, 0]
    groups = table["key_group"].to_pylist()
    assert groups[0] is None
    assert groups[1] in range_of(0, 1, GROUPS)


@pytest.mark.parametrize("damage", ["missing", "truncated", "altered"])
def test_a_damaged_file_is_named(storage: CheckpointStorage, tmp_path: Path, damage: str) -> None:
    handle = save(storage, PATH, SAMPLE, format_of, "lz4")
    file = tmp_path / "job" / PATH
    content = file.read_bytes()
    match damage:
        case "missing":
            file.unlink()
        case "truncated":
            file.write_bytes(content[:-1])
        case _:
            file.write_bytes(content[:400] + bytes([content[400] ^ 1]) + content[401:])
    with pytest.raises(DamagedFile, match=PATH):
        load(storage, handle, 1)


def test_a_file_that_is_something_else_is_damaged(storage: CheckpointStorage) -> None:
    handle: FileHandle = storage.write_file(PATH, b"something else")
    with pytest.raises(DamagedFile, match=f"{PATH} is damaged: it is no file of channel state"):
        load(storage, handle, 1)


def test_a_file_that_lacks_rows_is_noticed() -> None:
    whole = pa.ipc.open_file(encode(SAMPLE, format_of, "none"))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, whole.schema) as file:
        file.write_table(whole.read_all().slice(1))
    with pytest.raises(ChannelStateError, match="has 1 row instead of 2"):
        list(decode(sink.getvalue(), 1))


def test_records_of_some_keys_can_be_left_out() -> None:
    whole = encode(SAMPLE, format_of, "lz4")
    data, lost, size = without_keys(whole, lambda edge: frozenset({encode_key("k"), encode_key("no key")}))
    assert lost == {KEYED: 2}
    assert 0 < size < sum(one.size for one in channels_of(whole))
    assert sum(one.size for one in channels_of(data)) == sum(one.size for one in channels_of(whole)) - size
    runs = list(decode(data, subtask=1))  # whose counts fit
    inputs = by_channel(elements(runs, Part.INPUT))
    assert shown(inputs[channel(2, 1, KEYED)], keyed=True) == ["active", ["l", 2]]
    assert shown(inputs[channel(0, 1)]) == ["i0", "i1", "i2", ("watermark", -3), "idle", "i3"]
    assert [name for name, _ in elements(runs, Part.RESTORED)] == [channel(4, 1)] * 3
    same, none, nothing = without_keys(whole, lambda edge: frozenset({encode_key("l")} if edge != KEYED else ()))
    assert (dict(none), nothing) == ({}, 0)
    assert [run.origin for run in decode(same, 1)] == [run.origin for run in decode(whole, 1)]


@pytest.mark.parametrize("place", [1, 2, -1])
def test_a_row_of_a_channel_that_the_file_does_not_name_is_damage(place: int) -> None:
    written = encode(CapturedState(inputs={channel(0, 0): [data([1, 2])]}), format_of, "none")
    file = pa.ipc.open_file(written)
    (batch,) = (file.get_batch(number) for number in range(file.num_record_batches))
    moved = [pa.array([place] * len(batch), pa.int32()), *batch.columns[1:]]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, file.schema) as altered:
        altered.write_batch(pa.RecordBatch.from_arrays(moved, schema=file.schema))
    with pytest.raises(ChannelStateError, match=f"a row of channel {place}; there are 1"):
        list(decode(sink.getvalue(), 0))
