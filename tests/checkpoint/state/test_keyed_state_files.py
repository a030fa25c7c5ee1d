"""Keyed state in the storage: what a restore reads of a file, and which damage it finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from checkpoint.codec import encode_key
from checkpoint.key_groups import range_of
from checkpoint.state import read_footer, snapshot_reader, snapshot_rows
from checkpoint.state.files import load_keyed_state
from checkpoint.state.snapshot_writer import write_snapshot
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.file_io import OpenedFile
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.storage import CheckpointStorage

GROUPS = 16
PATH = "chk-1-1/totals-0-state.arrow"


class Counting(CheckpointStorage):
    """Knows which bytes were read."""

    def __init__(self, uri: str, pipeline: str | None) -> None:
        super().__init__(uri, pipeline)
        self.reads: list[range] = []

    @contextmanager
    def open_file(self, handle: FileHandle) -> Iterator[OpenedFile]:
        with super().open_file(handle) as opened:
            plain = opened.read_at

            def read_at(length: int, offset: int) -> bytes:
                self.reads.append(range(offset, offset + length))
                return plain(length, offset)

            opened.read_at = read_at  # type: ignore[method-assign]
            yield opened


@pytest.fixture
def storage(tmp_path: Path) -> Counting:
    storage = Counting(str(tmp_path), "orders")
    storage.prepare()
    return storage


@pytest.fixture
def handle(storage: Counting, monkeypatch: pytest.MonkeyPatch) -> FileHandle:
    """The handle of a file with ten keys in each key group, and a block for each."""
    monkeypatch.setattr(snapshot_rows, "BLOCK_ROWS", 1)
    return new_file(storage)


def new_file(storage: CheckpointStorage) -> FileHandle:
    file = storage.create(PATH)
    groups = [(g, [("total", {encode_key(f"{g}-{i}"): [g, "x" * 100, i] for i in range(10)})]) for g in range(GROUPS)]
    write_snapshot(groups, file.write, "lz4", operator="Op", max_parallelism=GROUPS)
    return file.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders" / PATH


def values(storage: CheckpointStorage, handle: FileHandle, groups: range) -> list[Any]:
    return [value[::2] for batch in load_keyed_state(storage, [StateFile(handle)], groups) for value in batch.values]


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
@pytest.mark.parametrize("at_once", [1, 8 << 20])
def test_each_subtask_reads_the_bytes_of_its_key_groups_once_and_no_others(
    storage: Counting, handle: FileHandle, path: Path, parallelism: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_reader, "_READ", at_once)
    places = {group: range(offset, offset + size) for group, offset, size, *_ in read_footer(path.read_bytes()).groups}
    found: list[Any] = []
    for subtask in range(parallelism):
        storage.reads.clear()
        groups = range_of(subtask, parallelism, GROUPS)
        found += values(storage, handle, groups)
        end = max(place.stop for place in places.values())
        reads = [read for read in storage.reads if read.start < end]
        if at_once == 1:
            assert reads == [places[group] for group in groups]
        else:
            assert reads == [range(places[groups[0]].start, places[groups[-1]].stop)]
    assert sorted(found) == [[g, i] for g in range(GROUPS) for i in range(10)]


def test_small_key_groups_are_read_together_and_large_ones_alone(
    storage: Counting, handle: FileHandle, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [range(offset, offset + size) for _, offset, size, *_ in read_footer(path.read_bytes()).groups]
    monkeypatch.setattr(snapshot_reader, "_READ", 3 * max(map(len, places)))
    assert len(values(storage, handle, range(GROUPS))) == 10 * GROUPS
    reads = [read for read in storage.reads if read.start < places[-1].stop]
    assert [(read.start, read.stop) for read in reads] == [
        (few[0].start, few[-1].stop) for few in (places[i : i + 3] for i in range(0, GROUPS, 3))
    ]


@pytest.mark.parametrize("rows", [1, 20, 35, 1000])
@pytest.mark.parametrize("parallelism", [1, 3, 7])
def test_each_subtask_reads_the_blocks_that_its_key_groups_are_in(
    storage: Counting, path: Path, parallelism: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_rows, "BLOCK_ROWS", rows)
    handle = new_file(storage)
    monkeypatch.setattr(snapshot_reader, "_READ", 1)
    blocks = {group: range(offset, offset + size) for group, offset, size, *_ in read_footer(path.read_bytes()).groups}
    assert len(set(blocks.values())) == -(-GROUPS // -(-rows // 10))
    found: list[Any] = []
    for subtask in range(parallelism):
        storage.reads.clear()
        groups = range_of(subtask, parallelism, GROUPS)
        found += values(storage, handle, groups)
        reads = [read for read in storage.reads if read.start < blocks[GROUPS - 1].stop]
        assert reads == list(dict.fromkeys(blocks[group] for group in groups))
    assert found == [[g, i] for g in range(GROUPS) for i in range(10)]


def test_damage_in_a_block_is_found_by_whoever_reads_one_of_its_key_groups(
    storage: Counting, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_rows, "BLOCK_ROWS", 30)
    handle = new_file(storage)
    data = bytearray(path.read_bytes())
    _, offset, size, *_ = read_footer(bytes(data)).groups[5]
    data[offset + size // 2] ^= 1
    path.write_bytes(data)
    assert len(values(storage, handle, range(3))) == 30
    for group in (3, 4, 5):
        with pytest.raises(DamagedFile, match=r"state\.arrow is damaged: the state of key groups 3 to 5 is damaged"):
            values(storage, handle, range(group, group + 1))
    assert len(values(storage, handle, range(6, GROUPS))) == 100


def test_a_file_of_another_version_is_not_damaged(storage: Counting, handle: FileHandle, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"1")
    with pytest.raises(StorageError, match=r"totals-0-state\.arrow: format b'WeirKey1' is not known") as caught:
        values(storage, handle, range(1))
    assert not isinstance(caught.value, DamagedFile)


def test_damage_is_found_by_those_who_read_it_and_named(storage: Counting, handle: FileHandle, path: Path) -> None:
    data = bytearray(path.read_bytes())
    _, offset, size, *_ = read_footer(bytes(data)).groups[5]
    data[offset + size // 2] ^= 1
    path.write_bytes(data)
    assert len(values(storage, handle, range(5))) == 50
    assert len(values(storage, handle, range(6, GROUPS))) == 100
    with pytest.raises(DamagedFile, match=r"totals-0-state\.arrow is damaged: the state of key group 5 is damaged"):
        values(storage, handle, range(5, 6))


@pytest.mark.parametrize("place", range(-2, -60, -7))
def test_a_damaged_footer_is_found_whatever_is_read(
    storage: Counting, handle: FileHandle, path: Path, place: int
) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x20
    path.write_bytes(data)
    with pytest.raises(DamagedFile, match=r"totals-0-state\.arrow is damaged"):
        values(storage, handle, range(1))


def test_a_truncated_and_a_missing_file_are_named(storage: Counting, handle: FileHandle, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedFile, match=rf"it should have {handle.size:,} bytes and has {handle.size - 1:,}"):
        values(storage, handle, range(1))
    path.unlink()
    with pytest.raises(DamagedFile, match=r"totals-0-state\.arrow is missing"):
        values(storage, handle, range(1))
