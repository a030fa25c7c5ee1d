"""Turns of keys as operators take them: several changes under one key, in place and by putting, between snapshots,
restores and looks from outside. Against plain dicts."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from keyed_backend_contract import MAX, written

from checkpoint.codec import encode_key
from checkpoint.key_groups import key_group
from checkpoint.state import (
    DeclaresState,
    KeyedBackend,
    ListState,
    MapState,
    ValueState,
    WholeSnapshot,
    bind,
    read_batches,
)
from checkpoint.state.paging.folding import folded
from checkpoint.state.snapshot_reader import read_encoded
from checkpoint.state.stores import MISSING

KEYS: list[Any] = [None, True, 1, "1", b"1", ("a", (1, None)), *range(2, 14)]
NAMES: list[Any] = [None, 1, True, 1.0, "1", ("a",), b"b", *range(2, 9)]
STATES = ("value", "made", "items", "entries")
Make = Callable[[range, int], KeyedBackend]


class Everything(DeclaresState):
    value = ValueState[Any]()
    made = ValueState(default=dict)
    items = ListState[Any]()
    entries = MapState[Any, Any]()


class Run:
    """`model`: what each key has, by state and key; of lists and maps nothing if they have no members."""

    def __init__(self, make: Make, seed: int) -> None:
        self.make = make
        self.random = random.Random(seed)
        self.model: dict[tuple[str, bytes], Any] = {}
        self.open: list[tuple[WholeSnapshot, dict[tuple[str, bytes], Any]]] = []
        self.start()

    def start(self) -> None:
        self.backend = self.make(range(MAX), MAX)
        self.op: Any = Everything()
        bind(self.op, self.backend)

    def steps(self, count: int) -> None:
        do = [self.turn] * 12 + [self.barrier, self.settle, self.look, self.look]
        for _ in range(count):
            self.random.choice(do)()
        self.barrier()
        while self.open:
            self.restore()

    # -- what operators do -----------------------------------------------------------------------------------------

    def turn(self) -> None:
        key = self.random.choice(KEYS)
        encoded = encode_key(key)
        self.backend.set_current_key(encoded, key_group(encoded, MAX))
        held: list[Any] = []
        """What was handed out: pairs of it and the same in the model."""
        for _ in range(self.random.randint(1, 6)):
            change = self.random.choice([self.of_value, self.of_made, self.of_items, self.of_entries, self.in_place])
            change(encoded, held)
        self.backend.clear_current_key()

    def some(self) -> Any:
        n = self.random.randint(0, 9)
        return self.random.choice([n, None, "x" * self.random.choice([3, 900]), [n], {"n": [n]}, (n, [n]), []])

    def in_place(self, key: bytes, held: list[Any]) -> None:
        if held:
            mine, model = self.random.choice(held)
            n = self.random.randint(0, 9)
            for one in (mine, model):
                inner = one[1] if type(one) is tuple else one
                if type(inner) is list:
                    inner.append(n)
                elif type(inner) is dict:
                    inner[n] = [n]

    def of_value(self, key: bytes, held: list[Any]) -> None:
        place = "value", key
        match self.random.randint(0, 4):
            case 0 | 1:
                new = self.some()
                self.op.value.value = new
                self.model[place] = deepcopy(new)
                held.append((new, self.model[place]))
            case 2 | 3:
                found = self.op.value.value
                assert found == self.model.get(place), place
                held.append((found, self.model.get(place)))
            case _:
                self.op.value.clear()
                self.model.pop(place, None)
                held.clear()

    def of_made(self, key: bytes, held: list[Any]) -> None:
        place = "made", key
        if self.random.randint(0, 5):
            found = self.op.made.value
            assert found == self.model.setdefault(place, {}), place
            held.append((found, self.model[place]))
            if self.random.randint(0, 1):
                self.op.made.value = found
        else:
            self.op.made.clear()
            self.model.pop(place, None)
            held.clear()

    def of_items(self, key: bytes, held: list[Any]) -> None:
        place, new = ("items", key), [self.some() for _ in range(self.random.randint(0, 3))]
        before = self.model.get(place, [])
        match self.random.randint(0, 5):
            case 0:
                self.op.items.extend(new)
                before = before + deepcopy(new)
            case 1 if new:
                self.op.items.append(new[0])
                before.append(deepcopy(new[0]))
                held.append((new[0], before[-1]))
            case 2:
                self.op.items.update(new)
                before = deepcopy(new)
                held.clear()
            case 3:
                self.op.items.clear()
                before = []
                held.clear()
            case _:
                found = self.op.items.get()
                assert found == before, place
                assert len(self.op.items) == len(before)
                held.extend(zip(found, before, strict=True))
        self._note(place, before)

    def of_entries(self, key: bytes, held: list[Any]) -> None:
        place, name = ("entries", key), self.random.choice(NAMES)
        before = self.model.get(place, {})
        match self.random.randint(0, 7):
            case 0 | 1:
                new = self.some()
                self.op.entries[name] = new
                before[name] = deepcopy(new)
                held.append((new, before[name]))
            case 2 | 3:
                found = self.op.entries.get(name, MISSING)
                assert found == before.get(name, MISSING), place
                assert (name in self.op.entries) == (name in before)
                if name in before:
                    held.append((found, before[name]))
            case 4:
                assert list(map(repr, self.op.entries)) == list(map(repr, before)), place
                assert len(self.op.entries) == len(before)
                held.extend(zip(self.op.entries.values(), before.values(), strict=True))
            case 5 if name in before:
                del self.op.entries[name]
                del before[name]
                held.clear()
            case 6 if self.random.randint(0, 1):
                self.op.entries.clear()
                before = {}
                held.clear()
        self._note(place, before)

    def _note(self, place: tuple[str, bytes], content: Any) -> None:
        if content:
            self.model[place] = content
        else:
            self.model.pop(place, None)

    # -- what goes on beside ----------------------------------------------------------------------------------------

    def look(self) -> None:
        state, key = self.random.choice(STATES), self.random.choice(KEYS)
        encoded = encode_key(key)
        found = self.backend.peek(encoded, key_group(encoded, MAX), state, 1_000)
        assert found == self.model.get((state, encoded), MISSING), (state, key)

    def barrier(self) -> None:
        self.open.append((self.backend.freeze(), deepcopy(self.model)))

    def settle(self) -> None:
        """A snapshot is written or given up; sometimes the job goes on from it."""
        if not self.open:
            return
        if self.random.randint(0, 3):
            self.restore()
        else:
            self.open.pop(self.random.randrange(len(self.open)))[0].release()

    def restore(self) -> None:
        frozen, expected = self.open.pop(self.random.randrange(len(self.open)))
        file = written(frozen)
        found = {
            (batch.state, key): value
            for batch in folded(read_batches(file))
            for key, value in zip(batch.keys, batch.values, strict=True)
        }
        assert found == expected
        assert all(list(found[place]) == list(expected[place]) for place in found if place[0] == "entries")
        if self.random.randint(0, 2):
            return
        for other, _ in self.open:
            other.release()
        self.open.clear()
        self.start()
        if self.backend.takes_encoded:
            self.backend.restore_encoded(read_encoded(file))
        else:
            self.backend.restore(read_batches(file))
        self.model = expected
