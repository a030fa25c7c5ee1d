"""A process dies at each operation on the storage in turn: while it writes changes, merges files, writes metadata or a
savepoint, and deletes what is subsumed. The newest complete checkpoint stays whole, and what nobody refers to is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_folders import JobFolder, metadata_of
from log_model import GROUPS, Later, Op, State, collected

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.codec import encode_key
from checkpoint.key_groups import key_group
from checkpoint.state import bind
from checkpoint.state.changelog.snapshot import LogFolder, LoggedState
from checkpoint.state.files import load_keyed_state
from checkpoint.state.heap.backend import HeapBackend
from checkpoint.state.stores import MISSING
from checkpoint.storage import local_files, restore, savepoints
from checkpoint.storage.handles import StateFile
from checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot
from checkpoint.storage.naming import CheckpointRef, private_path, shared_path
from checkpoint.storage.shared_files import SharedFiles
from checkpoint.storage.storage import CheckpointStorage
from checkpoint.storage.sweep import collect

ROUNDS = 7
KEYS = range(10)


class Crash(BaseException):
    """The process is dead; nothing that it does any more has an effect."""


class Dying:
    """Counts operations on files; dies at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: int | None = None
        self.count = 0
        file, files = local_files._LocalOutputFile, local_files.LocalFiles
        operations = [(file, "write"), (file, "commit"), (file, "discard"), (files, "delete"), (files, "delete_folder")]
        for cls, name in operations:
            monkeypatch.setattr(cls, name, self._counted(getattr(cls, name)))
        monkeypatch.setattr("os.fsync", lambda fd: None)

    def _counted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self._step()
            result = original(*args)
            self._step()
            return result

        return call

    def _step(self) -> None:
        self.count += 1
        if self.at is not None and self.count >= self.at:
            raise Crash

    def reset(self, at: int | None) -> None:
        self.at, self.count = at, 0


class Running:
    """A job of one subtask, as a driver runs it."""

    def __init__(self, folder: Path) -> None:
        self.job = JobFolder(CheckpointStorage(str(folder), "orders"))
        self.storage = self.job.storage
        self.folder = folder
        self.states: dict[int, State] = {}
        """By checkpoint that may be complete."""
        self.savepoint: State | None = None
        self.shared = SharedFiles()

    def run(self) -> None:
        backend, merges, op = HeapBackend(range(GROUPS), GROUPS, logs_changes=True), Later(), Op()
        bind(op, backend)
        attempt = self.job.ownership.attempt
        log_folder = LogFolder(self.storage, lambda: self.storage.create(shared_path(attempt, "op-state")), "none")
        log = LoggedState("Op", range(GROUPS), GROUPS, log_folder, merges)
        complete: list[CheckpointRef] = []
        for n in range(1, ROUNDS + 1):
            for key in KEYS[n % 3 :: 2]:
                encoded = encode_key(key)
                backend.set_current_key(encoded, key_group(encoded, GROUPS))
                if (key + n) % 5:
                    op.total.value = n  # type: ignore[attr-defined]
                else:
                    op.total.clear()  # type: ignore[attr-defined]
            backend.clear_current_key()
            places = {key: (encode_key(key), key_group(encode_key(key), GROUPS)) for key in KEYS}
            values = {key: backend.peek(*place, "total", 9) for key, place in places.items()}
            state: State = {("total", key): value for key, value in values.items() if value is not MISSING}
            snapshot = log.barrier(backend.freeze_changes())
            files = snapshot.files(lambda name: None)  # type: ignore[arg-type,return-value]
            self.states[n] = state
            complete.append(self._complete(CheckpointRef(n, attempt), files))
            if n == 4:
                self._take_savepoint(backend, CheckpointRef(99, attempt), state)
            if len(complete) > 1:
                old = complete.pop(0)
                unused = self.shared.discard(old.id)
                self.storage.delete_checkpoint(old)
                for handle in unused:
                    self.storage.delete_file(handle)
            merges.run_one()

    def _complete(self, ref: CheckpointRef, files: list[StateFile]) -> CheckpointRef:
        self.shared.register(ref.id, [listed.file for listed in files])
        metadata = metadata_of(ref, {"op": OperatorSnapshot(keyed_state=tuple(files))}, max_parallelism=GROUPS)
        return self.storage.write_metadata(ref.id, ref.attempt, metadata)

    def _take_savepoint(self, backend: HeapBackend, ref: CheckpointRef, state: State) -> None:
        target = savepoints.prepare(str(self.folder / "savepoint"))
        whole = backend.freeze()
        files = whole.files(lambda name: target.storage.create(private_path(ref, "op-0", name)))
        whole.release()
        operators = {"op": OperatorSnapshot(keyed_state=tuple(files))}
        metadata = metadata_of(ref, operators, max_parallelism=GROUPS, kind=CheckpointKind.SAVEPOINT)
        savepoints.complete(target, metadata)
        self.savepoint = state


def state_in(storage: CheckpointStorage, metadata: CheckpointMetadata) -> State:
    (snapshot,) = metadata.operator("op")
    return collected(load_keyed_state(storage, snapshot.keyed_state))


def steps(dying: Dying, folder: Path) -> Iterator[tuple[int, Running]]:
    """A run that dies at each of its operations, and one that doesn't."""
    dying.reset(None)
    running = Running(folder / "whole")
    dying.reset(None)
    running.run()
    operations = dying.count
    yield 0, running
    for at in range(1, operations + 1):
        dying.reset(None)
        running = Running(folder / str(at))
        dying.reset(at)
        with pytest.raises(Crash):
            running.run()
        dying.reset(None)
        yield at, running


def test_wherever_a_process_dies_the_newest_checkpoint_is_whole_and_orphans_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: set[int] = set()
    orphans = 0
    for at, running in steps(Dying(monkeypatch), tmp_path):
        point = restore.newest(running.storage)
        if point is not None:
            found.add(point.ref.id)
            assert state_in(point.storage, point.metadata) == running.states[point.ref.id], at
        orphans += sum(orphan.spared is None for orphan in collect(running.storage, stopped=True))
        kept = restore.newest(running.storage)
        assert (kept is None) == (point is None)
        complete = [running.storage.load(ref) for ref in running.storage.complete()]  # the one before may be, still
        listed = {handle.path for metadata in complete for handle in metadata.all_files()}
        assert {f"shared/{entry.name}" for entry in running.storage.entries("shared")} == listed, at
        if kept is not None:
            assert state_in(kept.storage, kept.metadata) == running.states[kept.ref.id], at
        if running.savepoint is not None:
            saved = restore.at(str(running.folder / "savepoint"))
            assert state_in(saved.storage, saved.metadata) == running.savepoint, at
    assert found == set(range(1, ROUNDS + 1))
    assert orphans > 50
