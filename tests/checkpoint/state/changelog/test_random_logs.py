"""Random runs of subtasks with a log of changes: each checkpoint that is kept can be restored, at any parallelism, and
has the state of its barrier. And each rule of the log, broken on purpose, is found by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import timed_log_model
from log_model import Job, Taken, run

from checkpoint.state.changelog import log as log_module
from checkpoint.state.changelog import merge as merge_module
from checkpoint.state.changelog import snapshot as snapshot_module
from checkpoint.state.changelog.log import ChangeLog
from checkpoint.state.heap.backend import HeapBackend
from checkpoint.state.heap.logged_maps import LoggedMap
from checkpoint.state.heap.maps import SnapshotReading
from checkpoint.state.keyed_backend import KeyedBackend
from checkpoint.state.rocksdb import changes, groups
from checkpoint.state.rocksdb.backend import RocksDbBackend
from checkpoint.state.rocksdb.database import Database
from checkpoint.storage.errors import StorageError
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.shared_files import SharedFiles
from checkpoint.storage.storage import CheckpointStorage

heap = partial(HeapBackend, logs_changes=True)
rocksdb = partial(RocksDbBackend, logs_changes=True)
tiny = partial(RocksDbBackend, logs_changes=True)


def storage_in(folder: Path) -> CheckpointStorage:
    storage = CheckpointStorage(str(folder), "orders")
    storage.prepare()
    return storage


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power is cut here, and syncing is most of what these runs take."""
    monkeypatch.setattr("os.fsync", lambda fd: None)


@pytest.mark.parametrize("make", [heap, rocksdb, tiny], ids=["heap", "rocksdb", "rocksdb with nothing in memory"])
def test_what_any_checkpoint_holds_is_what_was_there(
    make: Callable[[range, int], KeyedBackend], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if make is tiny:
        monkeypatch.setattr(Database, "values_budget", lambda database: 2_000)
        monkeypatch.setattr(groups, "MOST_CHANGED", 5)
        monkeypatch.setattr(groups, "PIECE", 2)
        monkeypatch.setattr(changes, "MOST_IN_MEMORY", 3)
    merged = resumed = 0
    for seed in range(60):
        job = run(make, storage_in(tmp_path / str(seed)), seed, 150)
        merged += job.merged
        resumed += job.resumed
    assert merged > 30
    assert resumed > 60


@pytest.mark.parametrize(("make", "runs"), [(heap, 40), (rocksdb, 5)], ids=["heap", "rocksdb"])
def test_what_has_a_time_to_live_does_not_come_back_once_it_is_over(
    make: Callable[[range, int], KeyedBackend], runs: int, tmp_path: Path
) -> None:
    for seed in range(runs):
        run(make, storage_in(tmp_path / str(seed)), seed, 150, timed_log_model.Job)


@pytest.mark.stress
def test_what_any_checkpoint_holds_is_what_was_there_in_thousands_of_runs(tmp_path: Path, seed: int) -> None:
    for i in range(5_000):
        run(heap, storage_in(tmp_path / str(i)), seed + i, 150)


FAULTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {}


def fault(make: Callable[[], Any]) -> Callable[[], Any]:
    FAULTS[make.__name__] = make
    return make


@fault
def whole_files_are_listed() -> Any:
    return patch.object(StateFile, "within", lambda self, groups: StateFile(self.file, groups))


@fault
def failed_changes_are_forgotten() -> Any:
    return patch.object(ChangeLog, "before", lambda self, changes: [])


@fault
def missing_keys_are_always_left_out() -> Any:
    original = snapshot_module.load_groups
    return patch.object(snapshot_module, "load_groups", lambda storage, files, older: original(storage, files, []))


@fault
def a_merge_replaces_everything() -> Any:
    def take_over(self: ChangeLog) -> None:
        waiting = [entry for entry in self._entries if not isinstance(entry, StateFile)]
        self._entries = [*([] if self._merged is None else [self._merged]), *waiting]
        self._merge, self._merged, self._made = None, None, False

    return patch.object(ChangeLog, "_take_over", take_over)


@fault
@contextmanager
def the_first_row_wins() -> Iterator[None]:
    original = merge_module._last_of_each
    with patch.object(merge_module, "_last_of_each", lambda batches: original(batches[::-1])):
        yield


@fault
def files_of_aborted_checkpoints_are_deleted() -> Any:
    original = Job.abort

    def abort(self: Job, id: int, parts: list[Taken]) -> None:
        self.shared.register(id, [each.file for part in parts for each in part.files or []])
        for handle in self.shared.discard(id):
            self.storage.delete_file(handle)
        original(self, id, [])

    return patch.object(Job, "abort", abort)


@fault
def files_go_with_the_first_checkpoint_that_does() -> Any:
    original = SharedFiles.discard

    def discard(self: SharedFiles, checkpoint_id: int) -> list[FileHandle]:
        own = [self._files[path] for path in self._paths[checkpoint_id]]
        original(self, checkpoint_id)
        return own

    return patch.object(SharedFiles, "discard", discard)


@fault
def savepoints_take_the_changes_with_them() -> Any:
    original = LoggedMap.freeze

    def freeze(self: LoggedMap, reading: SnapshotReading) -> Any:
        frozen = original(self, reading)
        self._earlier = {}
        return frozen

    return patch.object(LoggedMap, "freeze", freeze)


@fault
def values_are_handed_out_uncounted() -> Any:
    return patch.object(LoggedMap, "own", lambda self, key: self.data[key])


@fault
def values_are_handed_out_uncopied() -> Any:
    def own(self: LoggedMap, key: bytes) -> Any:
        if self.is_shared(key):
            self._before_change(key)
        return self.data[key]

    return patch.object(LoggedMap, "own", own)


@fault
def changes_are_read_when_they_are_written() -> Any:
    def before_change(self: LoggedMap, key: bytes) -> None:
        self._frozen = False
        assert self.private is not None
        self.private[key] = key in self.data

    return patch.object(LoggedMap, "_before_change", before_change)


@fault
def a_merge_counts_for_what_was_merged_last_only() -> Any:
    original = log_module.ChangeLog.end_merge

    def end_merge(self: ChangeLog, made: StateFile | None) -> None:
        if made is not None and made.groups is not None and len(made.groups) > 1:
            made = StateFile(made.file, range(made.groups.start, made.groups.stop - 1))
        original(self, made)

    return patch.object(ChangeLog, "end_merge", end_merge)


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_rule_is_found(name: str, tmp_path: Path) -> None:
    with FAULTS[name]():
        for seed in range(300):
            try:
                run(heap, storage_in(tmp_path / str(seed)), seed, 150)
            except (AssertionError, StorageError):
                break
        else:
            pytest.fail(f"{name}: nothing found")
    run(heap, storage_in(tmp_path / "kept"), seed, 150)  # with the rule kept, the same seed is fine
