"""What a backend on RocksDB says when its files fail it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from keyed_backend_contract import MAX, Running, contents

from checkpoint.codec import encode_key
from checkpoint.errors import NotOfTheRecord
from checkpoint.key_groups import key_group
from checkpoint.state.errors import StateStorageError
from checkpoint.state.rocksdb.backend import RocksDbBackend
from checkpoint.state.rocksdb.database import Database
from checkpoint.state.rocksdb.rows import PlainRows
from checkpoint.state_backends import RocksDb


def test_a_disk_that_fails_is_no_records_fault(tmp_path: Path) -> None:
    """Steps with `on_error` would leave out one record after the other."""
    (tmp_path / "file").touch()
    database = Database(RocksDb(folder=str(tmp_path / "file")))
    with pytest.raises(StateStorageError, match="can't write state") as caught:
        database.write(iter([(b"key", b"row")]))
    assert isinstance(caught.value, NotOfTheRecord)


def test_once_a_write_has_failed_nothing_is_taken_for_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was to be written counts as written already, so the next snapshot would lack it."""
    running = Running(RocksDbBackend)
    running.at(1).total.value = 1
    assert contents(running.snapshot())["total", 1] == 1
    running.at(2).total.value = 2
    original = PlainRows.pack_all

    def pack_all(rows: PlainRows, kept: list[object]) -> list[bytes]:
        if 2 in kept:
            raise OSError("the disk is full")
        return original(rows, kept)

    monkeypatch.setattr(PlainRows, "pack_all", pack_all)
    with pytest.raises(OSError, match="the disk is full"):
        running.backend.freeze()
    monkeypatch.undo()
    running.at(3).total.value = 3
    for again in (running.backend.freeze, lambda: running.backend.settle(True)):
        with pytest.raises(StateStorageError, match="incomplete, since it could not be written: the disk is full"):
            again()


@pytest.mark.parametrize("written", [False, True])
def test_what_is_closed_is_not_taken_for_empty(written: bool) -> None:
    running = Running(RocksDbBackend)
    if written:
        running.at(1).total.value = 1
        running.snapshot()
    running.backend.close()
    running.backend.close()
    key = encode_key(2)
    for use in (
        lambda: running.at(2).total.value,
        lambda: running.backend.peek(key, key_group(key, MAX), "bag", 10),
        lambda: running.backend.peek_timers(key, key_group(key, MAX), 10),
        running.backend.freeze,
    ):
        with pytest.raises(StateStorageError, match="the state is closed"):
            use()


def test_rows_that_cant_be_written_make_a_database_useless() -> None:
    running = Running(RocksDbBackend)
    database: Database = running.backend._database  # type: ignore[attr-defined]

    def rows() -> Iterator[tuple[bytes, bytes | None]]:
        yield b"k", b"v"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        database.write(rows())
    for use in (lambda: database.write(iter(())), database.view, database.finder):
        with pytest.raises(StateStorageError, match="could not be written: no more"):
            use()
