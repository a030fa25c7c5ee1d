"""What lies ready of RocksDB's rows: how much, and that nothing is lost by that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from keyed_backend_contract import MAX, Running, contents

from checkpoint.codec import EncodingError
from checkpoint.state.rocksdb import groups
from checkpoint.state.rocksdb.backend import RocksDbBackend
from checkpoint.state.rocksdb.database import BUDGET, Database
from checkpoint.state_backends import RocksDb

BUDGETED = 64 << 10


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Database, "values_budget", lambda database: BUDGETED)
    monkeypatch.setattr(groups, "MOST_CHANGED", 50)
    monkeypatch.setattr(groups, "PIECE", 5)


def ready(running: Running) -> int:
    """Values that lie in memory."""
    backend: Any = running.backend
    return sum(len(group.data) + len(group._old) for name in ("total", "bag") for group in backend._groups[name])


def reads(running: Running) -> int:
    backend: Any = running.backend
    found: int = backend._database.reads
    return found


def count(running: Running, keys: int) -> None:
    for key in range(2, keys):
        running.at(key).total.value = key


def test_no_more_lies_ready_than_the_budget_allows() -> None:
    running = Running(RocksDbBackend)
    for key in range(3_000):
        running.at(key).total.value = key
        assert ready(running) <= BUDGETED // 200
    assert [running.at(key).total.value for key in range(3_000)] == list(range(3_000))
    assert ready(running) <= BUDGETED // 200


def test_what_is_used_again_and_again_is_not_read_again() -> None:
    running = Running(RocksDbBackend)
    for key in range(30):
        running.at(key).total.value = 0
    for _ in range(5):
        running.snapshot()
        for key in range(30):
            running.at(key).total.value += 1
            assert running.at(1000).total.value == 0
    assert reads(running) <= 31


@pytest.mark.parametrize("budgeted", [BUDGETED, 1 << 30], ids=["the budget is used up", "much has changed"])
def test_the_task_is_held_for_a_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch, budgeted: int) -> None:
    monkeypatch.setattr(Database, "values_budget", lambda database: budgeted)
    if budgeted == BUDGETED:
        monkeypatch.setattr(groups, "MOST_CHANGED", 10_000)
    held = writes(monkeypatch)
    running = Running(RocksDbBackend)
    for turn in range(3):
        for key in range(1_000):
            running.at(key).total.value = turn
    assert sum(held) > 2_000
    assert max(held) <= 12
    assert contents(running.snapshot()) == {("total", key): 2 for key in range(1_000)}


def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each write to RocksDB has."""
    sizes: list[int] = []
    write = Database.write

    def counted(self: Database, changes: Iterator[tuple[bytes, bytes | None]]) -> None:
        sizes.append(0)

        def each() -> Iterator[tuple[bytes, bytes | None]]:
            for change in changes:
                sizes[-1] += 1
                yield change

        write(self, each())

    monkeypatch.setattr(Database, "write", counted)
    return sizes


def test_what_was_handed_out_stays_the_keys_value_whatever_else_the_key_does() -> None:
    running = Running(RocksDbBackend)
    op = running.at("k")
    bag = op.bag.value
    for number in range(2_000):
        op.seen[number] = "x" * 100
        bag.append(number)
        assert op.bag.value is bag
    running.at("other")
    assert contents(running.snapshot())["bag", "k"] == list(range(2_000))
    for key in range(1_000):
        running.at(key).total.value = 1
    assert running.at("k").bag.value == list(range(2_000))


def test_a_value_that_is_changed_to_what_cant_be_kept_is_told_by_name_when_it_is_written() -> None:
    running = Running(RocksDbBackend)
    running.at(1).bag.value.append(object())
    with pytest.raises(EncodingError, match="state 'bag' of Everything, key 1"):
        count(running, 1_000)
    running.at(1).bag.value.pop()
    assert contents(running.snapshot())["bag", 1] == []


def test_the_largest_memory_of_a_process_counts_for_all_its_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    one = RocksDbBackend(range(MAX), MAX, RocksDb(memory=32 << 20))
    other = RocksDbBackend(range(MAX), MAX, RocksDb(memory=64 << 20))
    assert BUDGET.memory >= 64 << 20
    assert one._database._shared is not None
    assert one._database.values_budget() == other._database.values_budget()
    alone = other._database.values_budget()
    one.close()
    assert other._database.values_budget() > alone
    other.close()
