"""The file format of keyed state."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.codec import decode, encode, encode_key
from checkpoint.state import (
    SnapshotFormatError,
    StateBatch,
    read_batches,
    read_footer,
    read_snapshot,
    snapshot_reader,
    snapshot_rows,
    snapshot_writer,
)
from checkpoint.state.snapshot_format import SCHEMA, SnapshotFooter, group_runs
from checkpoint.state.snapshot_writer import FrozenGroup, write_snapshot

KEYS = [encode_key(i) for i in range(3)]
GROUPS: list[FrozenGroup] = [
    (3, [("total", dict.fromkeys(KEYS, 1.5)), ("items", {KEYS[0]: [1, (2, "x" * 1000)]})]),
    (7, [("total", {KEYS[1]: None})]),
    (9, [("items", {KEYS[2]: []})]),
]
ROWS = [
    (group, state, key, None, value)
    for group, states in GROUPS
    for state, data in states
    for key, value in data.items()
]


def written(groups: Any = GROUPS, compression: Any = "lz4") -> bytes:
    pieces: list[bytes] = []
    write_snapshot(groups, lambda piece: pieces.append(bytes(piece)), compression, operator="Op", max_parallelism=16)
    return b"".join(pieces)


@pytest.mark.parametrize("compression", ["lz4", "zstd", "none"])
def test_rows_come_back_with_any_compression(compression: str) -> None:
    data = written(compression=compression)
    assert list(read_snapshot(data)) == ROWS
    assert (b"x" * 1000 in data) == (compression == "none")


def test_only_the_rows_of_the_asked_key_groups_are_read_and_only_their_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_rows, "BLOCK_ROWS", 1)
    data = bytearray(written())
    _, offset, length, _, _ = read_footer(bytes(data)).groups[0]
    data[offset : offset + length] = bytes(length)
    assert list(read_snapshot(bytes(data), range(4, 9))) == [row for row in ROWS if row[0] == 7]
    with pytest.raises(SnapshotFormatError, match="key group 3"):
        list(read_snapshot(bytes(data)))


def test_batches_hold_one_key_group_and_state_each() -> None:
    at = [(5).to_bytes(8, "big") + bytes(2) + key for key in KEYS[:2]]
    groups = [(0, [("a", {KEYS[0]: 1}), ("event timers", dict.fromkeys(at)), ("b", {KEYS[1]: (2,)})])]
    time = (5).to_bytes(8, "big")
    assert [batch._replace(content=None) for batch in read_batches(written(groups))] == [
        StateBatch(0, "a", [KEYS[0]], None, [1]),
        StateBatch(0, "event timers", KEYS[:2], [time, time], [None, None]),
        StateBatch(0, "b", [KEYS[1]], None, [(2,)]),
    ]


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["a", "b", "event timers"]), st.sets(st.integers(0, 60), min_size=1), min_size=1
        ),
        max_size=3,
    ),
    st.integers(1, 40),
    st.integers(1, 600),
    st.integers(1, 120),
    st.integers(1, 1800),
    st.integers(0, 2),
)
def test_rows_come_back_whatever_the_batches(
    states: list[dict[str, set[int]]], rows: int, size: int, block_rows: int, block_size: int, group: int
) -> None:
    def content(name: str, ids: set[int]) -> dict[bytes, Any]:
        if name == "event timers":
            return {i.to_bytes(8, "big") + bytes(2) + encode_key(i): None for i in ids}
        return {encode_key(i): "x" * i for i in ids}

    groups = [(g, [(name, content(name, ids)) for name, ids in one.items()]) for g, one in enumerate(states)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_writer, "_BATCH_ROWS", rows)
        patch.setattr(snapshot_writer, "_BATCH_BYTES", size)
        patch.setattr(snapshot_rows, "BLOCK_ROWS", block_rows)
        patch.setattr(snapshot_rows, "BLOCK_BYTES", block_size)
        data = written(groups)
    assert list(read_snapshot(data, range(group, group + 1))) == [row for row in read_snapshot(data) if row[0] == group]
    batches = [[g for g, _ in group_runs(batch)] for batch in pa.ipc.open_stream(data)]
    assert all(one[-1] < two[0] or one == two == [one[0]] for one, two in pairwise(batches)), "a divided group is alone"
    assert list(read_snapshot(data)) == [
        (g, name, entry[10:], entry[:8], None) if name == "event timers" else (g, name, entry, None, value)
        for g, one in groups
        for name, values in one
        for entry, value in values.items()
    ]
    assert pa.ipc.open_stream(data).read_all().num_rows == sum(len(ids) for one in states for ids in one.values())


def test_a_batch_that_mixes_states_row_by_row_is_read_too() -> None:
    """Not as it is written here, but as the format allows."""
    names = ["a", "b", "a"]
    columns = [[4] * 3, names, KEYS, [None] * 3, [encode(i) for i in range(3)]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    found = list(snapshot_reader.state_batches(batch, {}))
    assert [(one.state, one.keys, one.values) for one in found] == [
        ("a", [KEYS[0]], [encode(0)]), ("b", [KEYS[1]], [encode(1)]), ("a", [KEYS[2]], [encode(2)])
    ]  # fmt: skip


def test_the_footer_says_what_is_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_rows, "BLOCK_ROWS", 3)
    data = written()
    footer = read_footer(data)
    assert (footer.operator, footer.max_parallelism, footer.rows) == ("Op", 16, 6)
    assert [(group, rows) for group, _, _, rows, _ in footer.groups] == [(3, 4), (7, 1), (9, 1)]
    blocks = [(offset, offset + length) for _, offset, length, _, _ in footer.groups]
    assert blocks[1] == blocks[2]
    assert blocks[0][1] == blocks[1][0]


def test_a_file_with_a_block_for_each_key_group_is_read_as_versions_before_wrote_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot_rows, "BLOCK_ROWS", 1)
    monkeypatch.setattr(snapshot_writer, "VERSION", 2)
    data = written()
    assert read_footer(data).version == 2
    assert len(list(pa.ipc.open_stream(data))) == len(GROUPS)
    assert list(read_snapshot(data)) == ROWS


def test_rows_that_the_footer_doesnt_tell_of_are_an_error() -> None:
    columns = [[1, 2, 2], ["a"] * 3, KEYS, [None] * 3, [encode(1)] * 3]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    pieces: list[bytes] = []
    footer = snapshot_writer.write_batches(
        [batch], lambda piece: pieces.append(bytes(piece)), "lz4", SnapshotFooter("Op", 16), ["a"]
    )
    file = b"".join(pieces)
    (_, offset, length, _, checksum), _ = footer.groups
    for rows, what in (
        ({1: 2, 2: 1}, "key group 1 has 1 row instead of 2"),
        ({1: 1}, "a row of key group 2 lies among"),
    ):
        told = replace(footer, groups=tuple((group, offset, length, n, checksum) for group, n in rows.items()))
        with pytest.raises(SnapshotFormatError, match=what):
            [list(batches) for _, batches, _ in snapshot_reader.read_groups(file, None, told)]


@pytest.mark.parametrize("rows", [1, 7, 4096])
def test_batches_of_small_key_groups_become_one_and_others_stay(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_rows, "BLOCK_ROWS", rows)

    def batch(group: int, count: int) -> Any:
        columns: list[list[Any]] = [[group] * count, ["a"] * count, [b"k"] * count, [None] * count, [b"v"] * count]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    groups = [[batch(g, 3)] for g in range(4)] + [[batch(4, 9), batch(4, 9)]] + [[batch(5, 1)], [batch(6, 1)]]
    found = [group_runs(one) for one in snapshot_rows.packed(groups)]
    assert [run for one in found for run in one] == [(0, 3), (1, 3), (2, 3), (3, 3), (4, 9), (4, 9), (5, 1), (6, 1)]
    assert list(map(len, found)) == {1: [1] * 8, 7: [3, 1, 1, 1, 2], 4096: [4, 1, 1, 2]}[rows]


def test_any_arrow_reader_can_read_the_file_from_its_start() -> None:
    table = pa.ipc.open_stream(written()).read_all()
    assert table.column_names == ["key_group", "state", "key", "namespace", "value"]
    assert table.column("key_group").to_pylist() == [row[0] for row in ROWS]
    assert [decode(value) for value in table.column("value").to_pylist()] == [row[4] for row in ROWS]


def test_a_file_opened_for_random_access_will_do(tmp_path: Any) -> None:
    (tmp_path / "state").write_bytes(written())
    with pa.OSFile(str(tmp_path / "state")) as file:
        assert list(read_snapshot(file, range(9, 10))) == ROWS[-1:]


def test_a_snapshot_of_nothing_is_a_file_without_rows() -> None:
    data = written([])
    assert list(read_snapshot(data)) == []
    assert pa.ipc.open_stream(data).read_all().num_rows == 0


def test_a_large_group_is_written_in_several_pieces() -> None:
    many = {encode_key(i): "x" * 100 for i in range(20_000)}
    pieces: list[int] = []
    footer = write_snapshot(
        [(0, [("s", many)])], lambda p: pieces.append(len(p)), "none", operator="Op", max_parallelism=1
    )
    assert footer.rows == 20_000
    assert max(pieces) < 2 << 20
    assert len(pieces) > 3


def test_one_batch_holds_no_more_than_it_must_when_values_are_large() -> None:
    many = {encode_key(i): b"x" * 600_000 for i in range(4)}
    data = written([(0, [("s", many)])], "none")
    assert [len(batch) for batch in pa.ipc.open_stream(data)] == [2, 2]
    assert [row[4] for row in read_snapshot(data)] == list(many.values())


@pytest.mark.parametrize("damage", [lambda d: b"", lambda d: d[:-1], lambda d: d[:40], lambda d: b"x" * 100])
def test_a_file_that_is_cut_off_or_something_else_is_an_error(damage: Any) -> None:
    with pytest.raises(SnapshotFormatError, match="no complete snapshot"):
        read_footer(damage(written()))


def test_a_damaged_footer_is_an_error() -> None:
    data = written()
    with pytest.raises(SnapshotFormatError, match="footer"):
        read_footer(data[:-12] + (2**31).to_bytes(4, "little") + data[-8:])
    with pytest.raises(SnapshotFormatError, match="footer"):
        read_footer(data[:-12] + (1).to_bytes(4, "little") + data[-8:])
