"""Notes of what has changed since a barrier, in memory and written out."""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint
from pathlib import Path

import pytest

from checkpoint.state.rocksdb import changes
from checkpoint.state.rocksdb.changes import ChangeNotes
from checkpoint.state.rocksdb.database import Database
from checkpoint.state_backends import RocksDb


@pytest.mark.parametrize("most_in_memory", [1, 1000])
def test_notes_of_each_barrier_are_its_own_wherever_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_in_memory: int
) -> None:
    monkeypatch.setattr(changes, "MOST_IN_MEMORY", most_in_memory)
    database = Database(RocksDb(folder=str(tmp_path)))
    try:
        notes = [ChangeNotes(database, number) for number in (1, 2, 256)]
        for number, each in enumerate(notes):
            each.note(b"b%d" % number, True)
            each.limit()
            each.note(b"a%d" % number, False)
            each.limit()
            each.note(b"c%d" % number, False)
        expected = [[(b"a%d" % n, False), (b"b%d" % n, True), (b"c%d" % n, False)] for n in range(3)]
        assert [list(each) for each in notes] == expected
        notes[0].remove()
        notes[0].remove()
        assert [list(each) for each in notes] == [[], *expected[1:]]
    finally:
        database.close()


def test_the_first_note_of_a_row_says_whether_a_snapshot_may_have_it(tmp_path: Path) -> None:
    database = Database(RocksDb(folder=str(tmp_path)))
    try:
        notes = ChangeNotes(database, 1)
        notes.note(b"new", False)
        notes.note(b"new", True)
        assert list(notes) == [(b"new", False)]
    finally:
        database.close()


def test_what_is_too_much_for_memory_is_written_as_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST_IN_MEMORY", 10)
    held: list[int] = []
    write = Database.write

    def counted(self: Database, rows: Iterator[tuple[bytes, bytes | None]]) -> None:
        rows = iter(list(rows))
        held.append(length_hint(rows))
        write(self, rows)

    monkeypatch.setattr(Database, "write", counted)
    database = Database(RocksDb(folder=str(tmp_path)))
    try:
        notes = ChangeNotes(database, 1)
        for key in range(100):
            notes.note(b"%03d" % (key * 7 % 100), key % 2 == 0)
            notes.limit()
        assert held == [1] * 90
        assert list(notes) == [
            (b"%03d" % (key * 7 % 100), key % 2 == 0) for key in sorted(range(100), key=lambda k: k * 7 % 100)
        ]
    finally:
        database.close()
