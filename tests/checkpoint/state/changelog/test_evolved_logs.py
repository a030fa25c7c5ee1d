"""Logs whose files were written by several versions of the program: all of them count when classes change."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keyed_backend_contract import MAX
from log_model import Later
from program_classes import own_classes

from checkpoint.codec import classes, encode_key
from checkpoint.key_groups import key_group
from checkpoint.state import DeclaresState, ListState, MapState, StateRestoreError, ValueState, bind, make_backend
from checkpoint.state.changelog.snapshot import LogFolder, LoggedState
from checkpoint.state.files import load_encoded_state, load_keyed_state
from checkpoint.state_backends import StateBackend
from checkpoint.storage.handles import StateFile
from checkpoint.storage.naming import shared_path
from checkpoint.storage.storage import CheckpointStorage

KEYS = range(12)


@pytest.fixture(autouse=True)
def only_classes_of_this_test() -> Iterator[None]:
    with own_classes():
        yield


def program(order: Any) -> Any:
    """From now on this is the class `Order`."""
    classes.install({"shop:Order": order}, [])
    return order


class Logged:
    """An operator that restores a list of files and goes on with it."""

    def __init__(self, folder: Path, backend: StateBackend, files: list[StateFile], declared: Any, **options: Any):
        self.storage = CheckpointStorage(folder.as_uri(), "orders")
        self.storage.prepare()
        self.backend = make_backend(range(MAX), MAX, logs_changes=True, state_backend=backend)
        states = {
            "last": ValueState(declared, **options),
            "items": ListState(declared, **options),
            "entries": MapState(declared, **options),
        }
        self.op: Any = type("Op", (DeclaresState,), states)()
        bind(self.op, self.backend)
        if self.backend.takes_encoded:
            self.backend.restore_encoded(load_encoded_state(self.storage, files))
        else:
            self.backend.restore(load_keyed_state(self.storage, files))
        goes_on = self.backend.restored_as_it_was
        self.backend.settle(changed=not goes_on)
        self.merges = Later()
        folder_of_log = LogFolder(self.storage, lambda: self.storage.create(shared_path(1, "op-state")), "none")
        self.log = LoggedState("Op", range(MAX), MAX, folder_of_log, self.merges, files if goes_on else [])

    def at(self, key: int) -> Any:
        encoded = encode_key(key)
        self.backend.set_current_key(encoded, key_group(encoded, MAX))
        return self.op

    def put(self, key: int, value: Any) -> None:
        op = self.at(key)
        op.last.value = value
        op.items.append(value)
        op.entries[len(op.entries)] = value

    def checkpoint(self) -> list[StateFile]:
        self.backend.clear_current_key()
        snapshot = self.log.barrier(self.backend.freeze_changes())
        files = snapshot.files(None)  # type: ignore[arg-type]
        snapshot.release()
        return files

    def found(self) -> dict[int, tuple[Any, list[Any]]]:
        found = {}
        for key in KEYS:
            op = self.at(key)
            assert list(op.entries.values()) == op.items.get()
            if op.items.get():
                found[key] = op.last.value, op.items.get()
        return found


FIRST = dataclasses.make_dataclass("Order", [("id", int)])
SECOND = dataclasses.make_dataclass("Order", [("id", int), ("n", int, 0)])
THIRD = dataclasses.make_dataclass("Order", [("id", str), ("n", int, 0)])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_files_of_several_versions_are_migrated_together(backend: StateBackend, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    model: dict[int, tuple[Any, list[tuple[Any, int]]]] = {}

    def run(state: Logged, make: Any, merges: bool) -> list[StateFile]:
        files: list[StateFile] = []
        for _ in range(3):
            for key in chance.sample(KEYS, 3):
                number = chance.randint(0, 99)
                value = make(number)
                state.put(key, value)
                fields = (value.id, getattr(value, "n", 0))
                model[key] = fields, [*model.get(key, (None, []))[1], fields]
            files = state.checkpoint()
            while merges and state.merges.waiting:
                state.merges.run_one()
        return files

    def same(state: Logged) -> bool:
        found = {
            key: ((last.id, last.n), [(one.id, one.n) for one in items]) for key, (last, items) in state.found().items()
        }
        return found == model

    program(FIRST)
    files = run(Logged(tmp_path, backend, [], FIRST), FIRST, False)
    program(SECOND)
    state = Logged(tmp_path, backend, files, SECOND)
    assert state.backend.restored_as_it_was
    assert same(state)
    state = Logged(tmp_path, backend, files, SECOND)
    files = run(state, lambda number: SECOND(number, 1), chance.random() < 0.5)
    assert same(Logged(tmp_path, backend, files, SECOND))
    program(THIRD)
    with pytest.raises(StateRestoreError, match="its field 'id' was int and is str now"):
        Logged(tmp_path, backend, files, THIRD)
    state = Logged(tmp_path, backend, files, THIRD, migrate=lambda old: THIRD(str(old["id"]), old.get("n", 0)))
    for key, (last, items) in model.items():
        model[key] = (str(last[0]), last[1]), [(str(id), n) for id, n in items]
    assert not state.backend.restored_as_it_was
    assert same(state)
    files = run(state, lambda number: THIRD(str(number), 2), False)
    assert same(Logged(tmp_path, backend, files, THIRD))


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_log_of_plain_dicts_becomes_one_of_a_class(backend: StateBackend, tmp_path: Path) -> None:
    state = Logged(tmp_path, backend, [], None)
    state.put(1, {"id": 1})
    state.checkpoint()
    state.put(2, {"id": 2})
    files = state.checkpoint()
    program(FIRST)
    with pytest.raises(StateRestoreError, match="is a dict, and the state is declared for values of Order now"):
        Logged(tmp_path, backend, files, FIRST)
    state = Logged(tmp_path, backend, files, FIRST, migrate=lambda old: FIRST(old["id"]))
    state.put(3, FIRST(3))
    files = state.checkpoint()
    state = Logged(tmp_path, backend, files, FIRST)
    assert state.found() == {key: (FIRST(key), [FIRST(key)]) for key in (1, 2, 3)}
