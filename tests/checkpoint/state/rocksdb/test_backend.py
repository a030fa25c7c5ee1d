"""The RocksDB backend keeps the contract of keyed backends, also where next to nothing lies ready in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from keyed_backend_contract import KEYS, MAX, KeyedBackendContract, Running, check, contents, fill
from keyed_ttl_contract import KeyedTtlContract
from ttl_model import ttl_machine

from checkpoint.codec import encode, encode_key
from checkpoint.key_groups import key_group, range_of
from checkpoint.state import KeyedBackend, StateBatch
from checkpoint.state.heap.backend import HeapBackend
from checkpoint.state.rocksdb import changes, groups, timers
from checkpoint.state.rocksdb.backend import RocksDbBackend
from checkpoint.state.rocksdb.database import Database


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handful of values is too much to be kept ready."""
    monkeypatch.setattr(Database, "values_budget", lambda database: 2_000)
    monkeypatch.setattr(groups, "MOST_CHANGED", 5)
    monkeypatch.setattr(groups, "PIECE", 2)
    monkeypatch.setattr(timers, "NEAR", 3)
    monkeypatch.setattr(timers, "_MOST_CHANGED", 5)
    monkeypatch.setattr(changes, "MOST_IN_MEMORY", 3)


class TestRocksDbBackend(KeyedBackendContract):
    make = RocksDbBackend


class TestTimeToLive(KeyedTtlContract):
    make = RocksDbBackend


class LoggedRocksDbBackend(RocksDbBackend):
    def __init__(self, key_groups: range, max_parallelism: int) -> None:
        super().__init__(key_groups, max_parallelism, logs_changes=True)


class TestLoggedRocksDbBackend(KeyedBackendContract):
    make = LoggedRocksDbBackend


@pytest.mark.usefixtures("tiny")
class TestWithNextToNothingInMemory(KeyedBackendContract):
    make = RocksDbBackend


@pytest.mark.usefixtures("tiny")
class TestTimeToLiveWithNextToNothingInMemory(KeyedTtlContract):
    make = RocksDbBackend


class RestoredAsEncoded(RocksDbBackend):
    """As a subtask restores it."""

    def restore(self, batches: Iterable[StateBatch], allow_unclaimed: bool = False) -> None:
        encoded = (batch._replace(values=list(map(encode, batch.values)), encoded=True) for batch in batches)
        self.restore_encoded(encoded, allow_unclaimed)


class TestRestoredAsEncoded(KeyedBackendContract):
    make = RestoredAsEncoded


@pytest.mark.usefixtures("tiny")
class TestTimeToLiveRestoredAsEncoded(KeyedTtlContract):
    make = RestoredAsEncoded


@pytest.mark.usefixtures("small_pages")
class TestSmallPages(KeyedBackendContract):
    make = LoggedRocksDbBackend


@pytest.mark.usefixtures("small_pages", "tiny")
class TestSmallPagesRestoredAsEncoded(KeyedBackendContract):
    make = RestoredAsEncoded


class InTurn:
    """Makes a backend of the one kind, then one of the other."""

    def __init__(self) -> None:
        self._made = 0

    def __call__(self, key_groups: range, max_parallelism: int) -> KeyedBackend:
        self._made += 1
        return (HeapBackend if self._made % 2 else RestoredAsEncoded)(key_groups, max_parallelism)


@pytest.mark.usefixtures("tiny")
def test_both_backends_agree_over_any_snapshots_and_restores_of_each_others_files() -> None:
    few = settings(deadline=None, max_examples=60, stateful_step_count=40)
    run_state_machine_as_test(ttl_machine(InTurn()), settings=few)  # type: ignore[no-untyped-call, arg-type]


def parts(makes: type[KeyedBackend], parallelism: int) -> Iterator[tuple[range, Running]]:
    for i in range(parallelism):
        of = range_of(i, parallelism, MAX)
        yield of, Running(makes, of)


@pytest.mark.parametrize("pages", ["usual pages", "small pages"])
@pytest.mark.usefixtures("tiny")
def test_state_goes_from_one_backend_to_the_other_and_back_at_changed_parallelism(
    pages: str, request: pytest.FixtureRequest
) -> None:
    if pages == "small pages":
        request.getfixturevalue("small_pages")
    first = Running(HeapBackend)
    fill(first)
    file = first.snapshot()
    seconds = [running.restore(file, groups=of) for of, running in parts(RestoredAsEncoded, 3)]
    files = [running.snapshot() for running in seconds]
    assert contents(*files) == contents(file)
    for of, running in parts(HeapBackend, 2):
        running.restore(*files, groups=of)
        for key in KEYS:
            if key_group(encode_key(key), MAX) in of:
                check(running, key)
        assert len(running.backend.event_timers) == len(running.timers())
