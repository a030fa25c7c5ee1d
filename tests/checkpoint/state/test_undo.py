"""What a record has changed of keyed state is taken back if it fails, and stays if it succeeds. `checkpoint.state.undo`
keeps the log, and the stores of both backends note by `checkpoint.state.heap.undo_stores` what they had."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint.codec import encode, encode_key
from checkpoint.key_groups import key_group
from checkpoint.state import TTL, DeclaresState, ListState, MapState, ValueState, bind, make_backend, read_batches
from checkpoint.state.paging import lists, maps, rows
from checkpoint.state.stores import MISSING, PagedStore
from checkpoint.state.undo import Undoable, UndoLog
from checkpoint.state_backends import StateBackend

_MAX: Final = 4
_LIVING: Final = TTL(10, refresh="read_and_write")
_BACKENDS: Final[list[StateBackend]] = ["heap", "rocksdb"]


class Everything(DeclaresState):
    count = ValueState(default=0)
    bag = ValueState[Any](default=list)
    paged = ValueState[Any]()
    items = ListState[Any]()
    seen = MapState[Any, Any]()
    old_bag = ValueState[Any](default=list, ttl=_LIVING)
    old_items = ListState[Any](ttl=_LIVING)
    old_seen = MapState[Any, Any](ttl=_LIVING)


class Running:
    """An operator's states, of which each record changes something."""

    def __init__(self, backend: StateBackend) -> None:
        self.backend = make_backend(range(_MAX), _MAX, state_backend=backend)
        self.log = UndoLog()
        self.backend.undo_by(self.log)
        self.states = Everything()
        bind(self.states, self.backend)
        self.now = 0
        self.backend.processing_clock.begin(0, timers_due=False)

    def at(self, key: str) -> Everything:
        encoded = encode_key(key)
        self.backend.set_current_key(encoded, key_group(encoded, _MAX))
        return self.states

    @property
    def pages(self) -> PagedStore:
        return cast(PagedStore, self.states.paged.store)

    def record(self, key: str, *changes: str, fails: bool = False) -> None:
        states = self.at(key)
        self.log.begin()
        for name in changes:
            CHANGES[name](self, states)
        if fails:
            self.log.take_back()
        else:
            self.log.keep()
        self.backend.clear_current_key()

    def wait(self, seconds: int) -> None:
        self.now += seconds * 1000
        self.backend.processing_clock.read(self.now)

    def contents(self) -> dict[Any, Any]:
        """All rows of a snapshot: values with the order of their entries, and stamps."""
        return self.contents_of(self.backend.freeze())

    def contents_of(self, snapshot: Any) -> dict[Any, Any]:
        pieces: list[bytes] = []
        snapshot.write(lambda piece: pieces.append(bytes(piece)))
        none = [None] * 1000
        return {
            (batch.state, key, namespace): (encode(value), stamps)
            for batch in read_batches(b"".join(pieces))
            for key, namespace, value, stamps in zip(
                batch.keys, batch.namespaces or none, batch.values, batch.written or none, strict=False
            )
        }


def _in_place(values: Any) -> None:
    for value in values:
        value.append("more")


def _without(entries: Any, keys: Iterable[Any]) -> None:
    for key in keys:
        entries.pop(key, None)


@pytest.fixture(params=[256, 4, 1])
def most(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Entries of a list or map that lies in no pages."""
    monkeypatch.setattr(rows, "MOST", request.param)
    monkeypatch.setattr(maps, "PAGE", max(1, request.param // 2))
    monkeypatch.setattr(lists, "PAGE", max(1, request.param // 2))
    return int(request.param)


def _page_in_place(running: Running) -> None:
    page = running.pages.page(0)
    if page is MISSING:
        page = []
    page.append("more")
    running.pages.put_page(0, page)


def _without_page(running: Running) -> None:
    if running.pages.peek_page(0) is not MISSING:
        running.pages.remove_page(0)


CHANGES: Final[dict[str, Callable[[Running, Any], Any]]] = {
    "count": lambda _, op: setattr(op.count, "value", op.count.value + 1),
    "page changed in place": lambda running, _: _page_in_place(running),
    "page put": lambda running, _: running.pages.put_page(0, ["new"]),
    "page removed": lambda running, _: _without_page(running),
    "timer": lambda running, _: running.backend.event_timers.register(50),
    "timer deleted": lambda running, _: running.backend.event_timers.delete(50),
    **{
        f"{prefix}{name}": lambda _, op, prefix=prefix, change=change: change(op, prefix)
        for prefix in ("", "old_")
        for name, change in {
            "bag changed in place": lambda op, prefix: getattr(op, f"{prefix}bag").value.append(1),
            "bag replaced": lambda op, prefix: setattr(getattr(op, f"{prefix}bag"), "value", ["new"]),
            "bag cleared": lambda op, prefix: getattr(op, f"{prefix}bag").clear(),
            "items appended": lambda op, prefix: getattr(op, f"{prefix}items").append([1]),
            "items extended": lambda op, prefix: getattr(op, f"{prefix}items").extend([[1], [2]]),
            "items changed in place": lambda op, prefix: _in_place(getattr(op, f"{prefix}items").get()),
            "items replaced": lambda op, prefix: getattr(op, f"{prefix}items").update([["new"]]),
            "items cleared": lambda op, prefix: getattr(op, f"{prefix}items").clear(),
            "entry set": lambda op, prefix: getattr(op, f"{prefix}seen").update(a=[1]),
            "new entry": lambda op, prefix: getattr(op, f"{prefix}seen").update(z=["new"]),
            "entry changed in place": lambda op, prefix: _in_place([getattr(op, f"{prefix}seen").setdefault("a", [])]),
            "entry removed": lambda op, prefix: getattr(op, f"{prefix}seen").pop("a", None),
            "entries changed in place": lambda op, prefix: _in_place(getattr(op, f"{prefix}seen").values()),
            "entries cleared": lambda op, prefix: getattr(op, f"{prefix}seen").clear(),
            "many entries": lambda op, prefix: getattr(op, f"{prefix}seen").update((n, [n]) for n in range(9)),
            "many entries removed": lambda op, prefix: _without(getattr(op, f"{prefix}seen"), ("a", *range(8))),
            "odd entry": lambda op, prefix: getattr(op, f"{prefix}seen").update({frozenset([1]): []}),
            "odd entry removed": lambda op, prefix: _without(getattr(op, f"{prefix}seen"), ("z", frozenset([1]))),
        }.items()
    },
}
_FIRST: Final = (
    *("count", "page put", "timer"),
    *("bag replaced", "items extended", "entry set", "new entry"),
    *("old_bag replaced", "old_items extended", "old_entry set", "old_new entry"),
)
"""After these there is something of each kind."""


@pytest.mark.usefixtures("most")
@pytest.mark.parametrize("backend", _BACKENDS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_taken_back_whatever_it_is(change: str, backend: StateBackend) -> None:
    running = Running(backend)
    running.record("ann", *_FIRST)
    running.wait(3)
    before = running.contents()
    running.record("ann", change, fails=True)
    assert running.contents() == before
    running.record("ben", change, fails=True)  # who has nothing yet
    assert running.contents() == before
    running.record("ann", change)
    running.record("ben", change)
    kept = running.contents()
    assert kept != before
    running.record("ann", change, fails=True)
    assert running.contents() == kept
    running.backend.close()


_KINDS: Final = [
    [name for name in CHANGES if word in name and name.startswith("old_") == old]
    for old in (False, True)
    for word in ("page", "timer", "bag", "items", "entr")
    if not (old and word in ("page", "timer"))
]
"""Changes of one state each."""


def _records(changes: list[str]) -> st.SearchStrategy[list[tuple[str, list[str], bool]]]:
    one = st.tuples(st.sampled_from(["ann", "ben"]), st.lists(st.sampled_from(changes), max_size=6), st.booleans())
    return st.lists(one, max_size=8)


@pytest.mark.usefixtures("most")
@pytest.mark.parametrize("backend", _BACKENDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    records=st.sampled_from([*_KINDS, list(CHANGES)]).flatmap(_records),
    seconds=st.integers(0, 12),
    opened=st.integers(0, 8),
)
def test_what_fails_leaves_nothing(
    backend: StateBackend, records: list[tuple[str, list[str], bool]], seconds: int, opened: int
) -> None:
    """The states are those of an operator that has never had the records that fail. So is a snapshot that was taken
    before some of them and is written behind them."""
    running, without = Running(backend), Running(backend)
    open_snapshots = []
    for number, (key, changes, fails) in enumerate(records):
        if number == opened:
            open_snapshots = [one.backend.freeze() for one in (running, without)]
        running.record(key, *changes, fails=fails)
        if not fails:
            without.record(key, *changes)
        if number == 2:
            running.wait(seconds)
            without.wait(seconds)
    assert running.contents() == without.contents()
    if open_snapshots:
        assert running.contents_of(open_snapshots[0]) == without.contents_of(open_snapshots[1])
    running.backend.close()
    without.backend.close()


@pytest.mark.parametrize("backend", _BACKENDS)
def test_a_failed_record_counts_no_timers(backend: StateBackend) -> None:
    """How far ahead timers are set, and how many weren't since time had ended, is told of records that succeed."""
    running = Running(backend)
    timers = running.backend.event_timers

    def record(at: int, fails: bool) -> None:
        running.at("ann")
        running.log.begin()
        timers.register(at, since=0)
        if fails:
            running.log.take_back()
        else:
            running.log.keep()

    record(5, fails=False)
    record(700, fails=True)
    assert (len(timers), timers.reach) == (1, 5)
    timers.over = True
    record(2**63, fails=True)
    assert timers.dropped == 0
    record(2**63, fails=False)
    assert timers.dropped == 1
    running.backend.close()


class _Noted(Undoable):
    def __init__(self, name: str, said: list[str]) -> None:
        self._name = name
        self._said = said

    def forget(self) -> None:
        self._said.append(f"forget {self._name}")

    def take_back(self) -> None:
        self._said.append(f"take back {self._name}")


def test_the_last_change_is_taken_back_first_and_only_once() -> None:
    said: list[str] = []
    log = UndoLog()
    log.begin()
    log.touched(_Noted("a", said))
    log.touched(_Noted("b", said))
    log.take_back()
    assert said == ["take back b", "forget b", "take back a", "forget a"]
    log.begin()
    log.take_back()
    assert len(said) == 4


@pytest.mark.parametrize("told", [True, False])
def test_what_has_changed_before_a_record_is_not_its_doing(told: bool) -> None:
    """Whether somebody has said that the one before has succeeded, or not."""
    said: list[str] = []
    log = UndoLog()
    log.begin()
    log.touched(_Noted("a", said))
    if told:
        log.keep()
    log.begin()
    log.touched(_Noted("b", said))
    log.take_back()
    assert said == ["forget a", "take back b", "forget b"]


def test_small_things_are_again_what_they_were_before_the_record() -> None:
    log, counts = UndoLog(), {"read": 0}
    log.mark(lambda: counts["read"], lambda read: counts.update(read=read))
    for fails, expected in ((False, 1), (True, 1), (False, 2), (True, 2)):
        log.begin()
        counts["read"] += 1
        if fails:
            log.take_back()
        else:
            log.keep()
        assert counts["read"] == expected


_GROWING: Final[dict[str, Callable[[Any], object]]] = {
    "nothing": lambda op: None,
    "grows": lambda op: (op.seen.update((n, n) for n in range(9)), op.items.extend(range(9))),
    "shrinks": lambda op: _without(op.seen, ["z", *range(9)]),
    "grows and shrinks": lambda op: (op.seen.update((n, n) for n in range(9)), _without(op.seen, range(9))),
    "gets a key of a class": lambda op: op.seen.update({frozenset([2]): 1}),
}


@pytest.mark.usefixtures("most")
@pytest.mark.parametrize("backend", _BACKENDS)
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("opened", [False, True], ids=["", "while a snapshot is open"])
@pytest.mark.parametrize("change", _GROWING)
def test_what_a_record_has_read_goes_on_to_be_changed_in_place_whatever_comes_between(
    change: str, large: bool, opened: bool, backend: StateBackend
) -> None:
    running = Running(backend)
    running.record("ann", "entry set", "new entry", "items extended", *(["many entries"] if large else []))
    before = running.contents()
    snapshots = [running.backend.freeze()] if opened else []
    for fails in (True, False):
        states = running.at("ann")
        running.log.begin()
        entry, item = states.seen["a"], states.items.get()[0]
        _GROWING[change](states)
        entry.append("held")
        item.append("held")
        (value,) = (value for key, value in states.seen.items() if key == "a")
        assert value[-1] == states.seen["a"][-1] == states.items.get()[0][-1] == "held"
        if fails:
            running.log.take_back()
            running.backend.clear_current_key()
            assert running.contents() == before
        else:
            running.log.keep()
    running.backend.clear_current_key()
    states = running.at("ann")
    assert (states.seen["a"], states.items.get()[0]) == ([1, "held"], [1, "held"])
    running.backend.clear_current_key()
    for snapshot in snapshots:
        assert running.contents_of(snapshot) == before
    running.backend.close()
