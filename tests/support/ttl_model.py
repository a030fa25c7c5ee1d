"""A plain model of keyed state with a time to live, and a machine that compares a backend with it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from keyed_backend_contract import written
from log_model import GROUPS as MAX

from checkpoint.codec import encode_key
from checkpoint.key_groups import key_group, range_of
from checkpoint.state import (
    TTL,
    DeclaresState,
    KeyedBackend,
    ListState,
    MapState,
    ReducingState,
    ValueState,
    WholeSnapshot,
    bind,
    read_batches,
)

KEYS = ("a", "b", 1, 2.5)
TTLS = [
    None,
    TTL(0.5),
    TTL(1),
    TTL(1, refresh="read_and_write"),
    TTL(0.5, time="event"),
    TTL(1, time="event", refresh="read_and_write"),
]
STATES = ("total", "bag", "items", "seen", "sum")


def operator(ttls: dict[str, TTL | None]) -> Any:
    class Timed(DeclaresState):
        total = ValueState(default=0, ttl=ttls["total"])
        bag = ValueState(default=list, ttl=ttls["bag"])
        items = ListState[Any](ttl=ttls["items"])
        seen = MapState[Any, Any](ttl=ttls["seen"])
        sum = ReducingState(lambda a, b: a + b, ttl=ttls["sum"])

    return Timed()


class Entry(NamedTuple):
    stamp: int | None
    """`None`: no time of its own is known."""
    name: Any
    """Of an entry of a map: its key."""
    value: Any


class Record:
    timestamp: int | None = None


class Subtask:
    """A backend, and beside it the clocks as the model has them."""

    def __init__(self, make: type[KeyedBackend], groups: range, ttls: dict[str, TTL | None], wall: int) -> None:
        self.groups = groups
        self.ttls = ttls
        self.backend = make(groups, MAX)
        self.op = operator(ttls)
        bind(self.op, self.backend)
        self.record = Record()
        self.backend.event_clock.record = self.record
        self.backend.processing_clock.begin(wall, timers_due=False)
        self.now: dict[str, int | None] = {"processing": wall, "event": None}
        self.began: dict[str, int | None] = {"processing": wall, "event": None}
        self.entries: dict[tuple[str, Any], list[Entry]] = {}

    def at(self, key: Any) -> Any:
        encoded = encode_key(key)
        self.backend.set_current_key(encoded, key_group(encoded, MAX))
        return self.op

    def moves(self, clock: str, to: int) -> None:
        now = self.now[clock]
        if now is None or to > now:
            self.now[clock] = to
            if self.began[clock] is None:
                self.began[clock] = to

    def over(self, state: str, entry: Entry) -> bool:
        ttl = self.ttls[state]
        if ttl is None:
            return False
        now, start = self.now[ttl.time], self.began[ttl.time] if entry.stamp is None else entry.stamp
        return now is not None and start is not None and start + ttl.milliseconds <= now

    def living(self, state: str, key: Any) -> list[Entry]:
        """What is there; whatever is over is forgotten."""
        found = [entry for entry in self.entries.get((state, key), []) if not self.over(state, entry)]
        self.entries[state, key] = found
        return found

    def stamp(self, state: str) -> int | None:
        ttl = self.ttls[state]
        if ttl is None:
            return None
        now = self.now[ttl.time]
        if ttl.time == "event" and self.record.timestamp is not None:
            return self.record.timestamp if now is None else max(now, self.record.timestamp)
        return now

    def put(self, state: str, key: Any, value: Any, name: Any = None) -> None:
        """Set a value, or an entry of a map."""
        stamp, entries = self.stamp(state), self.living(state, key)
        for i, entry in enumerate(entries):
            if entry.name == name:
                if stamp is not None and entry.stamp is not None:
                    stamp = max(stamp, entry.stamp)
                entries[i] = Entry(stamp, name, value)
                return
        entries.append(Entry(stamp, name, value))

    def add(self, state: str, key: Any, values: list[Any]) -> None:
        """Add items to a list."""
        self.living(state, key).extend(Entry(self.stamp(state), None, value) for value in values)

    def read(self, state: str, key: Any, *names: Any) -> list[Entry]:
        """What is there, all or under the given name, and refreshed by that if it shall be."""
        ttl, stamp, entries = self.ttls[state], self.stamp(state), self.living(state, key)
        for i, entry in enumerate(entries):
            refreshes = ttl is not None and ttl.refresh == "read_and_write" and (not names or entry.name in names)
            if refreshes and stamp is not None and (entry.stamp is None or stamp > entry.stamp):
                entries[i] = entry._replace(stamp=stamp)
        return [entry for entry in entries if not names or entry.name in names]

    def frozen(self) -> dict[tuple[str, Any], list[Entry]]:
        """What a snapshot has."""
        kept = {}
        for state, key in list(self.entries):
            ttl = self.ttls[state]
            began = None if ttl is None else self.began[ttl.time]
            found = [e._replace(stamp=began) if e.stamp is None else e for e in self.living(state, key)]
            if found:
                kept[state, key] = deepcopy(found)
        return kept

    def take_over(self, state: str, key: Any, entries: list[Entry], old: TTL | None) -> None:
        """Entries of a checkpoint, in which they had the time to live `old`."""
        new = self.ttls[state]
        same = old is not None and new is not None and old.time == new.time
        self.entries[state, key] = [entry if same else entry._replace(stamp=None) for entry in deepcopy(entries)]


class Taken(NamedTuple):
    """A checkpoint."""

    ttls: dict[str, TTL | None]
    snapshots: list[WholeSnapshot]
    kept: dict[tuple[str, Any], list[Entry]]


def ttl_machine(make: type[KeyedBackend]) -> type[RuleBasedStateMachine]:
    ttls_of_states = st.fixed_dictionaries({state: st.sampled_from(TTLS) for state in STATES})
    keys, numbers = st.sampled_from(KEYS), st.integers(0, 3)
    timestamps = st.none() | st.integers(0, 4000)
    steps = st.sampled_from([0, 1, 250, 499, 500, 501, 1000])

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.subtasks: list[Subtask] = []
            self.wall = 10_000
            self.skews: list[int] = []
            self.open: list[Taken] = []
            self.newest: tuple[dict[str, TTL | None], list[bytes], dict[tuple[str, Any], list[Entry]]] | None = None

        def start(self, ttls: dict[str, TTL | None], parallelism: int, skew: int) -> None:
            self.open = []
            self.skews = [skew * i for i in range(parallelism)]
            self.subtasks = [
                Subtask(make, range_of(i, parallelism, MAX), ttls, self.wall + self.skews[i])
                for i in range(parallelism)
            ]

        def of(self, key: Any, timestamp: int | None = None) -> tuple[Subtask, Any]:
            group = key_group(encode_key(key), MAX)
            subtask = next(one for one in self.subtasks if group in one.groups)
            subtask.record.timestamp = timestamp
            return subtask, subtask.at(key)

        @initialize(ttls=ttls_of_states, parallelism=st.integers(1, 3), skew=st.sampled_from([0, 200, -200]))
        def begin(self, ttls: dict[str, TTL | None], parallelism: int, skew: int) -> None:
            self.start(ttls, parallelism, skew)

        # -- what operators do ---------------------------------------------------------------------------------

        @rule(key=keys, timestamp=timestamps, n=numbers)
        def set_total(self, key: Any, timestamp: int | None, n: int) -> None:
            subtask, op = self.of(key, timestamp)
            op.total.value = n
            subtask.put("total", key, n)

        @rule(key=keys, timestamp=timestamps)
        def count(self, key: Any, timestamp: int | None) -> None:
            subtask, op = self.of(key, timestamp)
            op.total.value += 1
            before = subtask.read("total", key)
            subtask.put("total", key, 1 + (before[0].value if before else 0))

        @rule(key=keys, timestamp=timestamps, n=numbers)
        def change_in_place(self, key: Any, timestamp: int | None, n: int) -> None:
            subtask, op = self.of(key, timestamp)
            op.bag.value.append(n)
            if not subtask.read("bag", key):
                subtask.put("bag", key, [])
            subtask.living("bag", key)[0].value.append(n)

        @rule(key=keys, timestamp=timestamps, n=numbers)
        def reduce(self, key: Any, timestamp: int | None, n: int) -> None:
            subtask, op = self.of(key, timestamp)
            op.sum.add(n)
            before = subtask.read("sum", key)
            subtask.put("sum", key, n + (before[0].value if before else 0))

        @rule(key=keys, timestamp=timestamps, values=st.lists(numbers, max_size=3), how=st.sampled_from("aeu"))
        def put_items(self, key: Any, timestamp: int | None, values: list[int], how: str) -> None:
            subtask, op = self.of(key, timestamp)
            if how == "a":
                for value in values:
                    op.items.append(value)
            elif how == "e":
                op.items.extend(values)
            else:
                op.items.update(values)
                subtask.entries["items", key] = []
            subtask.add("items", key, values)

        @rule(key=keys, timestamp=timestamps, name=numbers, n=numbers)
        def put_entry(self, key: Any, timestamp: int | None, name: int, n: int) -> None:
            subtask, op = self.of(key, timestamp)
            op.seen[name] = [n]
            subtask.put("seen", key, [n], name)

        @rule(key=keys, timestamp=timestamps, name=numbers)
        def look_at_entry(self, key: Any, timestamp: int | None, name: int) -> None:
            subtask, op = self.of(key, timestamp)
            there = [entry.value for entry in subtask.read("seen", key, name)]
            assert (name in op.seen) == bool(there)
            assert op.seen.get(name) == (there[0] if there else None)

        @rule(key=keys, name=numbers)
        def remove_entry(self, key: Any, name: int) -> None:
            subtask, op = self.of(key)
            there = [entry for entry in subtask.living("seen", key) if entry.name == name]
            try:
                del op.seen[name]
                assert there
            except KeyError:
                assert not there
            subtask.entries["seen", key] = [e for e in subtask.living("seen", key) if e.name != name]

        @rule(key=keys, state=st.sampled_from(STATES))
        def clear(self, key: Any, state: str) -> None:
            subtask, op = self.of(key)
            getattr(op, state).clear()
            subtask.entries[state, key] = []

        @rule(key=keys)
        def count_members(self, key: Any) -> None:
            subtask, op = self.of(key)
            assert len(op.items) == len(subtask.living("items", key))
            assert (len(op.seen), list(op.seen)) == (
                len(subtask.living("seen", key)),
                [entry.name for entry in subtask.living("seen", key)],
            )

        @rule(timestamp=timestamps)
        def read_all(self, timestamp: int | None) -> None:
            for key in KEYS:
                subtask, op = self.of(key, timestamp)
                for state, default in (("total", 0), ("sum", None)):
                    there = subtask.read(state, key)
                    assert getattr(op, state).value == (there[0].value if there else default)
                assert op.items.get() == [entry.value for entry in subtask.read("items", key)]
                assert list(op.seen.items()) == [(e.name, e.value) for e in subtask.read("seen", key)]

        # -- time ----------------------------------------------------------------------------------------------

        @rule(step=steps)
        def time_passes(self, step: int) -> None:
            self.wall += step
            for subtask, skew in zip(self.subtasks, self.skews, strict=True):
                subtask.moves("processing", self.wall + skew)
                subtask.backend.processing_clock.read(self.wall + skew)

        @rule(step=steps, which=numbers)
        def watermark(self, step: int, which: int) -> None:
            subtask = self.subtasks[which % len(self.subtasks)]
            to = (subtask.now["event"] or 0) + step
            subtask.moves("event", to)
            subtask.backend.event_clock.passed(to)

        @rule(times=st.sampled_from([1, 20]))
        def sweep(self, times: int) -> None:
            for subtask in self.subtasks:
                for _ in range(times):
                    subtask.backend.remove_expired()

        # -- checkpoints ---------------------------------------------------------------------------------------

        @rule()
        def barrier(self) -> None:
            kept: dict[tuple[str, Any], list[Entry]] = {}
            for subtask in self.subtasks:
                kept.update(subtask.frozen())
            self.open.append(Taken(self.subtasks[0].ttls, [one.backend.freeze() for one in self.subtasks], kept))

        @precondition(lambda self: self.open)
        @rule(which=numbers)
        def abort(self, which: int) -> None:
            for snapshot in self.open.pop(which % len(self.open)).snapshots:
                snapshot.release()

        @precondition(lambda self: self.open)
        @rule(which=numbers)
        def complete(self, which: int) -> None:
            taken = self.open.pop(which % len(self.open))
            files = [written(snapshot) for snapshot in taken.snapshots]
            found: dict[tuple[str, bytes], Any] = {}
            for file in files:
                for batch in read_batches(file):
                    found.update(zip(((batch.state, key) for key in batch.keys), batch.values, strict=True))
            assert found == {
                (state, encode_key(key)): content(state, entries) for (state, key), entries in taken.kept.items()
            }
            self.newest = taken.ttls, files, taken.kept

        @precondition(lambda self: self.newest is not None)
        @rule(
            ttls=st.none() | ttls_of_states,
            parallelism=st.integers(1, 3),
            skew=st.sampled_from([0, 200, -200]),
            down=steps,
            watermark=st.none() | st.integers(0, 2000),
        )
        def restore(
            self, ttls: dict[str, TTL | None] | None, parallelism: int, skew: int, down: int, watermark: int | None
        ) -> None:
            assert self.newest is not None
            before, files, kept = self.newest
            self.wall += down
            self.start(before if ttls is None else ttls, parallelism, skew)
            for subtask in self.subtasks:
                for file in files:
                    subtask.backend.restore(read_batches(file, subtask.groups))
                if watermark is not None:
                    subtask.moves("event", watermark)
                    subtask.backend.event_clock.passed(watermark)
            for (state, key), entries in kept.items():
                subtask, _ = self.of(key)
                subtask.take_over(state, key, entries, before[state])

    return Machine


def content(state: str, entries: list[Entry]) -> Any:
    if state == "items":
        return [entry.value for entry in entries]
    if state == "seen":
        return {entry.name: entry.value for entry in entries}
    return entries[0].value
