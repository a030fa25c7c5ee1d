"""A keyed operator's subtasks that keep their state as a log of changes, with checkpoints that are aborted or overlap,
merges, failing storage, rescaling and rewinds. Production classes; only driver and threads are played."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from checkpoint.codec import decode_key, encode_key
from checkpoint.key_groups import key_group, range_of
from checkpoint.state import (
    DeclaresState,
    KeyedBackend,
    KeyedSnapshot,
    ListState,
    MapState,
    StateBatch,
    ValueState,
    WholeSnapshot,
    bind,
    read_batches,
)
from checkpoint.state.changelog import log as log_module
from checkpoint.state.changelog.snapshot import LogFolder, LoggedState
from checkpoint.state.files import load_keyed_state
from checkpoint.state.paging import lists, maps, rows
from checkpoint.state.paging.folding import folded
from checkpoint.state.stores import MISSING
from checkpoint.storage.errors import StorageError
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.naming import shared_path
from checkpoint.storage.shared_files import SharedFiles
from checkpoint.storage.storage import CheckpointStorage

GROUPS = 8
KEYS = range(12)
State = dict[tuple[str, Any], Any]
"""By name of the state and key; of timers by `event timers` and (key, namespace)."""


class Op(DeclaresState):
    total = ValueState(default=0)
    bag = ValueState(default=list)
    items = ListState[Any]()
    seen = MapState[Any, Any]()


class Later(Executor):
    """Runs what is submitted when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.waiting.append(lambda: fn(*args, **kwargs))
        return Future()

    def run_one(self) -> None:
        if self.waiting:
            self.waiting.pop(0)()


class FailingFile:
    """A file that can't be made durable."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: memoryview) -> None:
        self._file.write(data)

    def close(self) -> FileHandle:
        raise StorageError("the storage is full")

    def abort(self) -> None:
        self._file.abort()


@dataclass
class Taken:
    """What a subtask took for a checkpoint."""

    snapshot: KeyedSnapshot
    state: State
    files: list[StateFile] | None = None


@dataclass
class Checkpoint:
    id: int
    parts: list[list[StateFile]]
    parallelism: int
    state: State


class Subtask:
    def __init__(
        self, make: Callable[[range, int], KeyedBackend], storage: CheckpointStorage, groups: range, attempt: int
    ) -> None:
        self.groups = groups
        self.backend = make(groups, GROUPS)
        self.op: Any = Op()
        bind(self.op, self.backend)
        self._storage = storage
        self._attempt = attempt
        self.merges = Later()
        self.fails = False
        self.log: LoggedState

    def start(self, files: list[StateFile]) -> None:
        self.backend.restore(load_keyed_state(self._storage, files))
        goes_on = self.backend.restored_as_it_was
        self.backend.settle(changed=not goes_on)
        folder = LogFolder(self._storage, self._create, "none")
        self.log = LoggedState("Op", self.groups, GROUPS, folder, self.merges, files if goes_on else [])

    def _create(self) -> Any:
        file = self._storage.create(shared_path(self._attempt, "op-state"))
        return FailingFile(file) if self.fails else file

    def at(self, key: int) -> Any:
        encoded = encode_key(key)
        self.backend.set_current_key(encoded, key_group(encoded, GROUPS))
        return self.op

    def change(self, rng: random.Random, key: int) -> None:
        op, value = self.at(key), rng.randrange(1000)
        match rng.randrange(15):
            case 0 | 1:
                op.total.value = value
            case 2:
                op.total.clear()
            case 3:
                op.bag.value.append(value)
            case 4:
                op.bag.clear()
            case 5:
                op.items.append(value)
            case 6:
                op.items.clear()
            case 7:
                op.seen[value % 9] = value
            case 8:
                op.seen.clear()
            case 9 | 10:
                self.backend.event_timers.register(rng.randrange(5))
            case 11:
                self.backend.event_timers.delete(rng.randrange(5))
            case 12:
                op.seen.update((n, [value]) for n in range(value % 9))
            case 13:
                op.seen.pop(value % 9, None)
            case 14:
                op.items.extend([value] * rng.randrange(4))
                for items in op.seen.values():
                    if isinstance(items, list):
                        items.append(value)
        self.backend.clear_current_key()

    def state(self) -> State:
        """As the backend says, of all keys that it owns; nothing counts as changed by that."""
        found: State = {}
        for key in KEYS:
            encoded = encode_key(key)
            group = key_group(encoded, GROUPS)
            if group not in self.groups:
                continue
            for name in self.backend.states:
                value = self.backend.peek(encoded, group, name, 1000)
                if value is not MISSING:
                    found[name, key] = copy.deepcopy(value)
            for at in self.backend.peek_timers(encoded, group, 1000)["event"]:
                found["event timers", (key, (at + 2**63).to_bytes(8, "big"))] = None
        return found


def stored(storage: CheckpointStorage, parts: list[list[StateFile]]) -> State:
    return collected(batch for files in parts for batch in folded(load_keyed_state(storage, files)))


def collected(batches: Iterable[StateBatch]) -> State:
    found: State = {}
    for batch in batches:
        spaces = batch.namespaces or [None] * len(batch.keys)
        for key, space, value in zip(batch.keys, spaces, batch.values, strict=True):
            name = decode_key(key)
            place = (batch.state, name if space is None else (name, space))
            assert place not in found, f"{place} is there twice"
            found[place] = value
    return found


@dataclass
class Job:
    """The driver's part."""

    make: Callable[[range, int], KeyedBackend]
    storage: CheckpointStorage
    rng: random.Random
    retained: int = 2
    attempt: int = 0
    next_id: int = 1
    subtasks: list[Subtask] = field(default_factory=list)
    taken: dict[int, list[Taken]] = field(default_factory=dict)
    """Checkpoints in progress."""
    completed: list[Checkpoint] = field(default_factory=list)
    shared: SharedFiles = field(default_factory=SharedFiles)
    savepoints: list[tuple[WholeSnapshot, State]] = field(default_factory=list)
    """Being taken."""
    merged: int = 0
    resumed: int = 0

    def start(self, point: Checkpoint | None, parallelism: int) -> None:
        self.attempt += 1
        self.taken.clear()
        self.savepoints.clear()
        self.shared = SharedFiles()
        for checkpoint in self.completed:
            self.shared.register(checkpoint.id, [listed.file for files in checkpoint.parts for listed in files])
        self.subtasks = []
        for index in range(parallelism):
            groups = range_of(index, parallelism, GROUPS)
            subtask = self.subtask(groups)
            subtask.start(list(self._listed(point, groups)) if point else [])
            self.subtasks.append(subtask)
        if point is not None:
            self.resumed += 1
            self.check_restored(point)

    def subtask(self, groups: range) -> Subtask:
        return Subtask(self.make, self.storage, groups, self.attempt)

    def check_restored(self, point: Checkpoint) -> None:
        found: State = {}
        for subtask in self.subtasks:
            found.update(subtask.state())
        assert found == point.state, "restored"

    def _listed(self, point: Checkpoint, groups: range) -> Iterator[StateFile]:
        for index, files in enumerate(point.parts):
            theirs = range_of(index, point.parallelism, GROUPS)
            common = range(max(theirs.start, groups.start), min(theirs.stop, groups.stop))
            for listed in files:
                if common and (mine := listed.within(common)) is not None:
                    yield mine

    def change(self) -> None:
        key = self.rng.choice(KEYS)
        group = key_group(encode_key(key), GROUPS)
        (subtask,) = (each for each in self.subtasks if group in each.groups)
        subtask.change(self.rng, key)

    def barrier(self) -> None:
        self.taken[self.next_id] = [
            Taken(subtask.log.barrier(subtask.backend.freeze_changes()), subtask.state()) for subtask in self.subtasks
        ]
        self.next_id += 1

    def savepoint(self) -> None:
        """Whole, and no part of the log; or the end of the one that is being taken."""
        if not self.savepoints:
            self.savepoints = [(subtask.backend.freeze(), subtask.state()) for subtask in self.subtasks]
            return
        for snapshot, state in self.savepoints:
            pieces = bytearray()
            if self.rng.random() < 0.7:
                snapshot.write(pieces.extend, "none")
                assert collected(folded(read_batches(bytes(pieces)))) == state, "savepoint"
            snapshot.release()
        self.savepoints = []

    def write(self) -> None:
        """The next part of the oldest checkpoint that a subtask has not written, as its pool does."""
        index = self.rng.randrange(len(self.subtasks))
        for parts in self.taken.values():
            part = parts[index]
            if part.files is None:
                self._write(part, self.subtasks[index])
                return

    def _write(self, part: Taken, subtask: Subtask) -> None:
        subtask.fails = self.rng.random() < 0.15
        try:
            part.files = part.snapshot.files(_no_private_file, "none")
        except StorageError:
            part.files = []
            part.state = {("failed", None): True}
        finally:
            subtask.fails = False
            part.snapshot.release()

    def complete(self) -> None:
        """The oldest checkpoint is complete, or aborted."""
        if not self.taken:
            return
        id = min(self.taken)
        parts = self.taken.pop(id)
        for index, part in enumerate(parts):
            if part.files is None:
                self._write(part, self.subtasks[index])
        if any(("failed", None) in part.state for part in parts) or self.rng.random() < 0.25:
            self.abort(id, parts)
            return
        state: State = {}
        for part in parts:
            state.update(part.state)
        listed = [part.files or [] for part in parts]
        self.shared.register(id, [each.file for files in listed for each in files])
        self.completed.append(Checkpoint(id, listed, len(parts), state))
        while len(self.completed) > self.retained:
            oldest = self.completed.pop(0)
            for handle in self.shared.discard(oldest.id):
                self.storage.delete_file(handle)

    def abort(self, id: int, parts: list[Taken]) -> None:
        """Some subtasks have acknowledged it, but it won't complete."""
        self.shared.register(id, [each.file for part in parts for each in part.files or []])
        self.shared.forget(id)

    def merge(self) -> None:
        waiting = [subtask for subtask in self.subtasks if subtask.merges.waiting]
        if waiting:
            self.rng.choice(waiting).merges.run_one()
            self.merged += 1

    def restart(self) -> None:
        """From any checkpoint that is kept, at any parallelism."""
        if not self.completed:
            return
        point = self.rng.choice(self.completed)
        self.completed = self.completed[: self.completed.index(point) + 1]
        self.start(point, self.rng.randint(1, 4))

    def check(self) -> None:
        """What is kept is what was there, read as any other reader does."""
        for checkpoint in self.completed:
            found = stored(self.storage, checkpoint.parts)
            assert found == checkpoint.state, "read"


def _no_private_file(name: str) -> Any:
    raise AssertionError("changes are files that several checkpoints refer to")


def run(
    make: Callable[[range, int], KeyedBackend],
    storage: CheckpointStorage,
    seed: int,
    steps: int,
    kind: Callable[..., Job] = Job,
) -> Job:
    """
    Raises:
        AssertionError, DamagedFile: a state came back otherwise than it was, or a file was gone.
    """
    rng = random.Random(seed)

    def neighbours(files: Sequence[Any]) -> slice | None:
        """Any, which is more than what is chosen by sizes."""
        if len(files) < 2:
            return None
        start = rng.randrange(len(files) - 1)
        return slice(start, rng.randrange(start + 2, len(files) + 1))

    with ExitStack() as stack:
        if seed % 4:
            stack.enter_context(patch.object(log_module, "next_merge", neighbours))
        if seed % 3:  # lists and maps lie in pages that hold next to nothing
            stack.enter_context(patch.object(rows, "MOST", seed % 3))
            stack.enter_context(patch.object(maps, "PAGE", 1))
            stack.enter_context(patch.object(lists, "PAGE", 2))
        return _run(kind(make, storage, rng, retained=rng.randint(1, 3)), rng, steps)


def _run(job: Job, rng: random.Random, steps: int) -> Job:
    job.start(None, rng.randint(1, 4))
    for _ in range(steps):
        chosen = rng.random()
        if chosen < 0.5:
            job.change()
        elif chosen < 0.64:
            if len(job.taken) < 3:
                job.barrier()
        elif chosen < 0.74:
            job.write()
        elif chosen < 0.86:
            job.complete()
        elif chosen < 0.94:
            job.merge()
        elif chosen < 0.97:
            job.savepoint()
        else:
            job.restart()
    job.check()
    return job
