"""Which rows timers in RocksDB look at."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest

from checkpoint.codec import encode_key
from checkpoint.key_groups import key_group
from checkpoint.state.rocksdb import timers
from checkpoint.state.rocksdb.backend import RocksDbBackend
from checkpoint.state.rocksdb.database import Database

GROUPS = 16


class Scans:
    """Of a database: how many rows each has given, and whether it was asked for more than there are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[int] = []
        self.ended = 0
        original = Database.scan

        def scan(database: Database, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
            number = len(self.rows)
            self.rows.append(0)
            for row in original(database, first, end):
                self.rows[number] += 1
                yield row
            self.ended += 1

        monkeypatch.setattr(Database, "scan", scan)


@pytest.mark.parametrize("times", [[7], [7, 8], list(range(50))])
def test_no_scan_goes_through_what_has_fired(monkeypatch: pytest.MonkeyPatch, times: list[int]) -> None:
    """RocksDB does, to find the next row: in front of a group's first one, and behind its last one. With many timers
    due at once it took a second each time."""
    monkeypatch.setattr(timers, "NEAR", 4)
    monkeypatch.setattr(timers, "_MOST_CHANGED", 7)
    monkeypatch.setattr(timers, "_PIECE", 3)
    scans = Scans(monkeypatch)
    backend = RocksDbBackend(range(GROUPS), GROUPS)
    rng = random.Random(3)
    due = [(rng.choice(times), encode_key(number)) for number in range(200)]
    for at, key in due:
        backend.set_current_key(key, key_group(key, GROUPS))
        backend.event_timers.register(at)
    backend.clear_current_key()
    fired = list(iter(lambda: backend.event_timers.pop(max(times)), None))
    assert [one.at for one in fired] == sorted(at for at, _ in due)
    assert sorted(one.key for one in fired) == sorted(key for _, key in due)
    assert len(scans.rows) > 20
    assert 0 not in scans.rows
    assert scans.ended == 0


def test_no_write_takes_longer_than_for_a_piece_and_the_oldest_changes_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At a barrier all is written."""
    monkeypatch.setattr(timers, "_MOST_CHANGED", 100)
    monkeypatch.setattr(timers, "_PIECE", 10)
    written: list[int] = []
    original = Database.write

    def write(database: Database, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        rows = list(rows)
        if rows:
            written.append(len(rows))
        original(database, rows)

    monkeypatch.setattr(Database, "write", write)
    backend = RocksDbBackend(range(GROUPS), GROUPS)
    for number in range(1_000):
        key = encode_key(number)
        backend.set_current_key(key, key_group(key, GROUPS))
        backend.event_timers.register(number)
        if number % 10 == 9:
            backend.event_timers.delete(number)
    backend.clear_current_key()
    assert set(written) == {10}
    assert 800 <= sum(written) <= 810
    fired = list(iter(lambda: backend.event_timers.pop(10_000), None))
    assert [one.at for one in fired] == [number for number in range(1_000) if number % 10 != 9]
    assert max(written[:-1]) <= 100


def test_at_the_end_of_time_each_key_has_its_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoding of the key -1 is the byte 255, behind a time all of whose bytes are 255."""
    monkeypatch.setattr(timers, "NEAR", 4)
    end, keys = 2**63 - 1, list(map(encode_key, range(-40, 40)))
    backend = RocksDbBackend(range(GROUPS), GROUPS)
    for key in keys:
        backend.set_current_key(key, key_group(key, GROUPS))
        backend.event_timers.register(end)
    backend.clear_current_key()
    for key in keys:
        assert backend.peek_timers(key, key_group(key, GROUPS), 1000)["event"] == [end]
    fired = list(iter(lambda: backend.event_timers.pop(end), None))
    assert sorted(one.key for one in fired) == sorted(keys)
    assert len(backend.event_timers) == 0
