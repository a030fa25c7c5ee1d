"""Large lists and maps: what one change costs, what lies in pages and what doesn't, and what restores make of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, make_dataclass
from typing import Any

import pytest
from program_classes import own_classes, program

from checkpoint.codec import EncodingError, decode, encode, encode_key, owner_of
from checkpoint.key_groups import key_group
from checkpoint.state import (
    TTL,
    DeclaresState,
    ListState,
    MapState,
    StateBatch,
    StateRestoreError,
    ValueState,
    bind,
    read_batches,
    read_footer,
    snapshot_format,
    snapshot_reader,
)
from checkpoint.state.evolution import decoded
from checkpoint.state.heap.backend import HeapBackend
from checkpoint.state.keyed_backend import KeyedBackend
from checkpoint.state.paging import maps, rows
from checkpoint.state.paging.folding import folded
from checkpoint.state.rocksdb import groups
from checkpoint.state.rocksdb.backend import RocksDbBackend
from checkpoint.state.snapshot_format import SnapshotFormatError, UnknownSnapshotVersion
from checkpoint.state.snapshot_reader import read_encoded
from checkpoint.state_backends import StateBackend

MAX = 8
KEY = encode_key("ann")
GROUP = key_group(KEY, MAX)
LARGE = 20 * rows.MOST


class Op(DeclaresState):
    items = ListState[Any]()
    seen = MapState[Any, Any]()


class Running:
    def __init__(self, backend: StateBackend, cls: type = Op, logs_changes: bool = False) -> None:
        kind: Any = HeapBackend if backend == "heap" else RocksDbBackend
        self.backend: KeyedBackend = kind(range(MAX), MAX, logs_changes=logs_changes)
        self.op: Any = cls()
        bind(self.op, self.backend)
        self.at()

    def at(self) -> None:
        self.backend.set_current_key(KEY, GROUP)

    def snapshot(self) -> bytes:
        return written(self.backend.freeze())

    def restore(self, file: bytes) -> Running:
        if self.backend.takes_encoded:
            self.backend.restore_encoded(read_encoded(file))
        else:
            self.backend.restore(read_batches(file))
        return self

    def changed(self) -> list[tuple[str, bytes, bytes | None]]:
        """State, key and value of the rows that have changed since the last call."""
        found = []
        frozen = self.backend.freeze_changes()
        for batch in frozen.batches([]):
            columns = (batch.column(name).to_pylist() for name in ("state", "key", "value"))
            found += list(zip(*columns, strict=True))
        frozen.release()
        self.at()
        return found


def written(snapshot: Any) -> bytes:
    pieces: list[bytes] = []
    snapshot.write(lambda piece: pieces.append(bytes(piece)))
    return b"".join(pieces)


def all_rows(file: bytes, state: str) -> dict[bytes, Any]:
    return {
        key: value
        for batch in read_batches(file)
        for key, value in zip(batch.keys, batch.values, strict=True)
        if batch.state == state
    }


both = pytest.mark.parametrize("backend", ["heap", "rocksdb"])


@both
def test_a_change_writes_the_same_however_large_the_map_is(backend: StateBackend) -> None:
    running = Running(backend, logs_changes=True)
    sizes = []
    for number in (LARGE, 4 * LARGE):
        running.op.seen.update((n, n) for n in range(number))
        running.op.items.update(range(number))
        assert len(running.changed()) > number / maps.PAGE / 2
        largest = []
        for change in (
            lambda number=number: running.op.seen.update({number // 2: -1}),
            lambda number=number: running.op.seen.update({f"new {number}": 1}),
            lambda: running.op.seen.pop(3, None),
            lambda: running.op.items.append(1),
        ):
            change()
            found = running.changed()
            assert 1 <= len(found) <= 5  # directory, page, and the one that is cut
            largest.append(sum(len(value or b"") for _, _, value in found))
        sizes.append(max(largest))
        running.op.seen.clear()
        assert all(value is None for _, _, value in running.changed())
    assert max(sizes) < 5_000
    running.backend.close()


@both
def test_what_is_only_looked_at_is_not_written(backend: StateBackend) -> None:
    running = Running(backend, logs_changes=True)
    running.op.seen.update((n, str(n)) for n in range(LARGE))
    running.op.items.extend(range(LARGE))
    running.changed()
    assert dict(running.op.seen) == {n: str(n) for n in range(LARGE)}
    assert list(running.op.seen.items())[-1] == (LARGE - 1, str(LARGE - 1))
    assert (running.op.seen[5], 5 in running.op.seen, -1 in running.op.seen) == ("5", True, False)
    assert (running.op.items.get()[7], len(running.op.items), len(running.op.seen)) == (7, LARGE, LARGE)
    assert running.changed() == []
    running.op.seen[3] = ["changeable"]
    running.changed()
    running.op.seen[3].append("more")
    (row,) = running.changed()
    assert owner_of(row[1]) == KEY != row[1]
    running.backend.close()


@both
def test_a_small_one_is_one_row_as_ever_and_a_large_one_is_again_once_it_is_small(backend: StateBackend) -> None:
    running = Running(backend)
    running.op.seen.update((n, n) for n in range(rows.MOST))
    running.op.items.extend(range(rows.MOST))
    small = running.snapshot()
    assert all_rows(small, "seen") == {KEY: {n: n for n in range(rows.MOST)}}
    assert all_rows(small, "items") == {KEY: list(range(rows.MOST))}
    assert read_footer(small).version == snapshot_format.VERSION
    running.at()
    running.op.seen["one more"] = 1
    running.op.items.append(1)
    large = running.snapshot()
    assert len(all_rows(large, "seen")) > rows.MOST / maps.PAGE
    assert read_footer(large).version == snapshot_format.VERSION + snapshot_format.PAGED
    running.at()
    for n in range(rows.MOST - 5):
        del running.op.seen[n]
    running.op.items.update([1])
    again = running.snapshot()
    assert all_rows(again, "seen") == {KEY: {**{n: n for n in range(rows.MOST - 5, rows.MOST)}, "one more": 1}}
    assert all_rows(again, "items") == {KEY: [1]}
    assert read_footer(again).version == snapshot_format.VERSION
    running.backend.close()


@both
def test_there_are_fewer_pages_when_a_map_shrinks(backend: StateBackend) -> None:
    running = Running(backend)
    model: dict[Any, Any] = {}
    for n in range(LARGE):
        running.op.seen[n * 1024] = model[n * 1024] = n
    for left, pages in ((LARGE // 2, LARGE // maps.PAGE), (rows.MOST + 44, 20), (rows.MOST // 2, 0)):
        for map_key in list(model)[: len(model) - left][::-1]:
            del running.op.seen[map_key], model[map_key]
        assert list(running.op.seen.items()) == list(model.items())
        assert len(running.op.seen) == left
        found = all_rows(running.snapshot(), "seen")
        running.at()
        row = found.pop(KEY)
        assert len(found) <= pages
        assert sum(len(page[rows.ENTRIES]) for page in found.values()) == (left if pages else 0)
        assert type(row) is (list if pages else dict)
    running.backend.close()


@both
def test_pages_are_about_full(backend: StateBackend) -> None:
    running = Running(backend)
    running.op.seen.update((f"user-{n}", n) for n in range(LARGE))
    found = all_rows(running.snapshot(), "seen")
    count, places, _ = found.pop(KEY)
    assert count == LARGE
    assert places == -(-LARGE // maps.PAGE)
    assert max(len(page[rows.ENTRIES]) for page in found.values()) < 3 * maps.PAGE
    running.backend.close()


@both
def test_a_map_of_an_older_version_is_cut_when_it_is_first_changed(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(rows, "MOST", 1 << 40)
        old = Running(backend)
        old.op.seen.update((n, [n]) for n in range(LARGE))
        old.op.items.extend([n] for n in range(LARGE))
        file = old.snapshot()
    assert len(all_rows(file, "seen")) == 1
    for change in (
        lambda op: op.seen.update({"new": [1]}),
        lambda op: op.seen.update({5: [1]}),
        lambda op: op.seen.pop(5),
    ):
        new = Running(backend).restore(file)
        model = {n: [n] for n in range(LARGE)}
        assert len(all_rows(new.snapshot(), "seen")) == 1
        new.at()
        change(new.op)
        new.op.items.append("new")
        change(type("Model", (), {"seen": model}))
        assert list(new.op.seen.items()) == list(model.items())
        assert new.op.items.get() == [*([n] for n in range(LARGE)), "new"]
        again = new.snapshot()
        assert len(all_rows(again, "seen")) > LARGE / maps.PAGE / 2
        assert len(all_rows(again, "items")) > 10
        new.backend.close()


@both
def test_an_older_version_refuses_files_with_pages_by_their_version(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(backend, logs_changes=True)
    running.op.items.extend(range(LARGE))
    file = running.snapshot()
    older = {version: columns for version, columns in snapshot_format.VERSIONS.items() if version <= 7}
    monkeypatch.setattr(snapshot_reader, "VERSIONS", older)
    with pytest.raises(UnknownSnapshotVersion, match="format version 8 is not known here"):
        read_footer(file)
    running.backend.close()


# -- keys that only their classes can compare ------------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
    """Equal to an int, as no plain key's type can tell."""

    n: int

    def __eq__(self, other: object) -> bool:
        return other == self.n if type(other) is int else isinstance(other, Number) and other.n == self.n

    def __hash__(self) -> int:
        return hash(self.n)


@both
def test_keys_that_only_their_classes_compare_are_found_and_replaced_as_in_a_dict(backend: StateBackend) -> None:
    running = Running(backend)
    model: dict[Any, Any] = {n: [n] for n in range(LARGE)}
    running.op.seen.update(model)
    assert Number(7) in running.op.seen
    assert running.op.seen[Number(7)] == [7]
    running.op.seen[Number(8)] = model[Number(8)] = ["changed"]
    assert type(list(running.op.seen)[8]) is int
    del running.op.seen[Number(9)], model[Number(9)]
    assert Number(9) not in running.op.seen
    assert len(all_rows(running.snapshot(), "seen")) > 10
    running.at()
    running.op.seen[Number(-1)] = model[Number(-1)] = "new"
    assert list(running.op.seen.items()) == list(model.items())
    (row,) = all_rows(running.snapshot(), "seen").values()
    assert row == model
    running.at()
    running.op.seen["and"] = model["and"] = 1  # it stays one row
    assert running.op.seen[-1] == "new"
    del running.op.seen[Number(-1)]
    assert len(all_rows(running.snapshot(), "seen")) == 1
    running.at()
    running.op.seen["and"] = 2  # there is no such key any more
    assert len(all_rows(running.snapshot(), "seen")) > 10
    running.at()
    running.op.seen.clear()
    running.op.seen.update((n, n) for n in range(LARGE))
    assert len(all_rows(running.snapshot(), "seen")) > 10
    with pytest.raises(TypeError, match="unhashable"):
        running.op.seen[[1]]
    running.backend.close()


def test_whether_a_map_can_be_cut_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running("heap")
    running.op.seen.update((frozenset([n]), n) for n in range(rows.MOST))
    asked: list[int] = []
    monkeypatch.setattr(maps, "can_be_cut", lambda keys: bool(asked.append(1)))
    running.op.seen.update((frozenset([n]), n) for n in range(LARGE))
    assert len(asked) == 1
    assert len(running.op.seen) == LARGE


# -- restores into other states --------------------------------------------------------------------------------------


class WithTtl(DeclaresState):
    items = ListState[Any](ttl=TTL(1000))
    seen = MapState[Any, Any](ttl=TTL(1000))


class OtherKinds(DeclaresState):
    items = ValueState[Any]()
    seen = ValueState[Any]()


class Swapped(DeclaresState):
    items = MapState[Any, Any]()
    seen = ListState[Any]()


@both
def test_a_state_that_gets_a_time_to_live_has_all_that_lay_in_pages_and_so_if_it_loses_it(
    backend: StateBackend,
) -> None:
    old = Running(backend)
    old.op.seen.update((n, [n]) for n in range(LARGE))
    old.op.items.extend(range(LARGE))
    file = old.snapshot()
    timed = Running(backend, WithTtl).restore(file)
    assert not timed.backend.restored_as_it_was
    timed.backend.processing_clock.begin(0, timers_due=False)
    assert list(timed.op.seen.items()) == [(n, [n]) for n in range(LARGE)]
    assert timed.op.items.get() == list(range(LARGE))
    again = Running(backend).restore(timed.snapshot())
    again.op.seen["new"] = 1
    again.op.items.append("new")
    assert list(again.op.seen.items()) == [*((n, [n]) for n in range(LARGE)), ("new", 1)]
    assert again.op.items.get() == [*range(LARGE), "new"]
    assert len(all_rows(again.snapshot(), "seen")) > 10


@both
def test_a_state_of_another_kind_gets_the_whole_or_is_refused(backend: StateBackend) -> None:
    old = Running(backend)
    old.op.seen.update((n, n) for n in range(LARGE))
    old.op.items.extend(range(LARGE))
    file = old.snapshot()
    other = Running(backend, OtherKinds).restore(file)
    assert other.op.seen.value == {n: n for n in range(LARGE)}
    assert other.op.items.value == list(range(LARGE))
    assert not other.backend.restored_as_it_was
    with pytest.raises(StateRestoreError, match=r"'ann' is no (Map|List)State"):
        Running(backend, Swapped).restore(file)


@both
def test_values_whose_class_has_changed_are_migrated_in_pages(backend: StateBackend) -> None:
    with own_classes():
        old_class: Any = make_dataclass("Order", [("id", int)])
        program(Order=old_class)
        old = Running(backend, with_order(old_class))
        old.op.seen.update((n, old_class(n)) for n in range(LARGE))
        old.op.items.extend(map(old_class, range(LARGE)))
        file = old.snapshot()
        same = Running(backend, with_order(old_class)).restore(file)
        assert (same.backend.migrated, same.op.seen[5]) == (0, old_class(5))

        new_class: Any = make_dataclass("Order", [("number", str)])
        program(Order=new_class)
        with pytest.raises(StateRestoreError, match=r"(page of the value of key 'ann'|entry).* doesn't fit: class"):
            Running(backend, with_order(new_class)).restore(file)
        migrated = Running(backend, with_order(new_class, lambda order: new_class(str(order["id"]))))
        migrated.restore(file)
        assert migrated.backend.migrated == 2 * LARGE
        assert list(migrated.op.seen.items()) == [(n, new_class(str(n))) for n in range(LARGE)]
        assert migrated.op.items.get() == [new_class(str(n)) for n in range(LARGE)]


def with_order(order: Any, migrate: Any = None) -> type:
    class Orders(DeclaresState):
        items = ListState[Any](order, migrate=migrate)
        seen = MapState[Any, Any](order, migrate=migrate)

    return Orders


@both
def test_values_of_another_type_than_is_declared_now_are_refused_in_pages(backend: StateBackend) -> None:
    with own_classes():
        order: Any = make_dataclass("Order", [("id", int)])
        program(Order=order)
        old = Running(backend)
        old.op.seen.update((n, "text") for n in range(LARGE))
        file = old.snapshot()
        with pytest.raises(StateRestoreError, match="it is a str, and the state is declared for values of Order"):
            Running(backend, with_order(order)).restore(file)


# -- readers -----------------------------------------------------------------------------------------------------


def _batches(backend: StateBackend) -> list[StateBatch]:
    running = Running(backend)
    running.op.seen.update((n, [n]) for n in range(LARGE))
    running.op.items.extend(range(LARGE))
    running.backend.set_current_key(encode_key("ben"), key_group(encode_key("ben"), MAX))
    running.op.seen["small"] = 1
    running.op.items.append(1)
    return list(read_encoded(running.snapshot()))


@both
@pytest.mark.parametrize("encoded", [True, False])
@pytest.mark.parametrize("size", [None, 1])
def test_readers_get_one_row_of_each(backend: StateBackend, encoded: bool, size: int | None) -> None:
    """`size`: rows of a batch."""
    batches = _batches(backend)
    if size is not None:
        batches = [batch.part([i]) for batch in batches for i in range(len(batch.keys))]
    if not encoded:
        batches = [batch._replace(values=list(map(decode, batch.values)), encoded=False) for batch in batches]
    found = {}
    for batch in folded(batches):
        assert batch.content is None or batch.content.paged is None
        for key, value in zip(batch.keys, batch.values, strict=True):
            assert (batch.state, key) not in found
            found[batch.state, key] = value
    expected = {
        ("seen", KEY): {n: [n] for n in range(LARGE)},
        ("items", KEY): list(range(LARGE)),
        ("seen", encode_key("ben")): {"small": 1},
        ("items", encode_key("ben")): [1],
    }
    assert found == ({place: encode(value) for place, value in expected.items()} if encoded else expected)


@both
@pytest.mark.parametrize("state", ["seen", "items"])
def test_a_page_that_is_missing_or_belongs_to_nothing_is_told(backend: StateBackend, state: str) -> None:
    batches = [batch for batch in _batches(backend) if batch.state == state and KEY in batch.keys]
    (batch,) = batches
    for key in (KEY, next(key for key in batch.keys if owner_of(key) == KEY != key)):
        left = batch.part([i for i, each in enumerate(batch.keys) if each != key])
        with pytest.raises(SnapshotFormatError, match=f"of key 'ann' in state '{state}' has not the pages"):
            list(folded([left]))
        with pytest.raises(StateRestoreError, match="the checkpoint is damaged"):
            Running(backend, OtherKinds).backend.restore([decoded(left)])


def test_rows_that_are_none_of_a_map_in_pages_are_an_error() -> None:
    (batch,) = [batch for batch in _batches("heap") if batch.state == "seen" and KEY in batch.keys]
    wrong = decoded(batch)
    wrong.values[1] = "text"
    for backend in ("heap", "rocksdb"):
        with pytest.raises(StateRestoreError, match="is no MapState"):
            Running(backend).backend.restore([wrong])


# -- RocksDB -----------------------------------------------------------------------------------------------------


def test_a_record_that_changes_all_of_a_very_large_map_writes_each_page_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What belongs to the current key stays changed, so it is written again."""
    monkeypatch.setattr(groups, "MOST_CHANGED", 4)
    monkeypatch.setattr(groups, "PIECE", 2)
    running = Running("rocksdb")
    running.op.seen.update((n, [n]) for n in range(LARGE))
    running.snapshot()
    running.at()
    packed = 0
    original = groups.CachedGroup._packed

    def counted(group: groups.CachedGroup, keys: list[bytes], failed: Any) -> Iterable[Any]:
        nonlocal packed
        packed += len(keys)
        return original(group, keys, failed)

    monkeypatch.setattr(groups.CachedGroup, "_packed", counted)
    values = list(running.op.seen.values())
    for value in values:
        value.append("more")
    assert packed < 5 * LARGE / maps.PAGE
    assert running.op.seen[7] == [7, "more"]
    again = Running("rocksdb").restore(running.snapshot())
    assert list(again.op.seen.values()) == [[n, "more"] for n in range(LARGE)]
    running.backend.close()
    again.backend.close()


def test_a_value_of_a_page_that_cant_be_kept_is_told_with_its_key() -> None:
    for backend in ("heap", "rocksdb"):
        running = Running(backend)
        running.op.seen.update((n, [n]) for n in range(LARGE))
        running.op.seen[5].append(object())
        with pytest.raises(EncodingError, match="state 'seen' of Op, key 'ann': "):
            running.snapshot()
        running.backend.close()
