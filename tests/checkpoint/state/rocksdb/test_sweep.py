"""What is over is removed from RocksDB, piece by piece."""

from __future__ import annotations

from typing import Any

import pytest
from keyed_ttl_contract import TimedRunning

from checkpoint.state.rocksdb import groups, sweep
from checkpoint.state.rocksdb.backend import RocksDbBackend


def rows(running: TimedRunning) -> int:
    running.backend.freeze().release()  # whatever has changed is written
    backend: Any = running.backend
    return sum(1 for _ in backend._database.view())


@pytest.mark.parametrize("ready", [True, False])
def test_keys_that_never_come_again_are_removed_and_counted(ready: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    running = TimedRunning(RocksDbBackend, 1)
    for key in range(200):
        running.fill(key)
    running.wall(900)
    running.at(7).seen["b"] = 3
    assert rows(running) == 1200
    if not ready:
        backend: Any = running.backend
        for group in backend._cache._living():
            group.age(None)
            group.age(None)
    running.backend.clear_current_key()
    running.wall(1000)
    for _ in range(300):
        running.wall(1000)
        running.backend.remove_expired()
    assert rows(running) == 1
    assert running.backend.expired == 200 * 8 - 1
    running.wall(1900)
    for _ in range(300):
        running.backend.remove_expired()
    assert rows(running) == 0


def test_one_step_looks_at_no_more_than_some_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_MOST", 8)
    monkeypatch.setattr(sweep, "_LEAST", 8)
    running = TimedRunning(RocksDbBackend, 1)
    for key in range(100):
        running.at(key).total.value = 1
    rows(running)
    running.wall(1000)
    before = running.backend.expired
    running.backend.remove_expired()
    assert running.backend.expired - before <= 8
    assert groups.MOST_CHANGED > 8
