"""Several files as one: the last row of each place wins, and nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint.codec import encode_key
from checkpoint.state.changelog import merge as merge_module
from checkpoint.state.changelog.merge import merged
from checkpoint.state.files import load_groups, load_keyed_state
from checkpoint.state.snapshot_reader import read_groups, state_batches
from checkpoint.state.snapshot_writer import write_snapshot
from checkpoint.state.stores import MISSING
from checkpoint.state.timers import EVENT_TIMERS, timer_entry
from checkpoint.storage.errors import DamagedFile
from checkpoint.storage.handles import StateFile
from checkpoint.storage.storage import CheckpointStorage

GROUPS = 4
STATES = ("total", "bag", EVENT_TIMERS)
Rows = dict[tuple[int, str, bytes], Any]
"""By key group, state and key (of timers: entry)."""

places = st.tuples(st.integers(0, GROUPS - 1), st.sampled_from(STATES), st.integers(0, 5))


def entry_of(group: int, state: str, key: int) -> bytes:
    encoded = encode_key(key)
    return timer_entry(key.to_bytes(8, "big"), group, encoded) if state == EVENT_TIMERS else encoded


def as_rows(drawn: dict[tuple[int, str, int], Any]) -> Rows:
    return {
        (group, state, entry_of(group, state, key)): MISSING
        if value is MISSING
        else None
        if state == EVENT_TIMERS
        else value
        for (group, state, key), value in drawn.items()
    }


changes = st.dictionaries(places, st.integers() | st.just(MISSING), max_size=12).map(as_rows)


def written(rows: Rows, is_changes: bool = True, compression: Literal["lz4", "none"] = "none") -> bytes:
    groups: dict[int, dict[str, dict[bytes, Any]]] = {}
    for (group, state, entry), value in sorted(rows.items(), key=lambda row: row[0]):
        groups.setdefault(group, {}).setdefault(state, {})[entry] = value
    pieces = bytearray()
    write_snapshot(
        [(group, list(states.items())) for group, states in groups.items()],
        pieces.extend,
        compression,
        operator="Op",
        max_parallelism=GROUPS,
        changes=is_changes,
    )
    return bytes(pieces)


def read(groups: Iterator[Any]) -> Rows:
    found: Rows = {}
    for group, batches, ttl in groups:
        for batch in batches:
            for name, key, space, value in zip(
                *(batch.column(c).to_pylist() for c in ("state", "key", "namespace", "value")), strict=True
            ):
                place = (group, name, key if space is None else timer_entry(space, group, key))
                assert place not in found, "each place once"
                found[place] = MISSING if value is None else value
            assert batch.column("key_group").unique().to_pylist() in ([group], [])
            list(state_batches(batch, ttl))
    return found


def stream(data: bytes, groups: range | None = None) -> Iterator[Any]:
    for group, batches, ttl in read_groups(data, groups):
        yield group, list(batches), ttl


def encoded(rows: Rows) -> Rows:
    return read(stream(written(rows)))


@given(st.lists(changes, max_size=5))
def test_the_last_row_of_each_place_wins_and_what_is_gone_is_left_out(files: list[Rows]) -> None:
    expected: Rows = {}
    for rows in files:
        expected.update(rows)
    expected = {place: value for place, value in expected.items() if value is not MISSING}
    assert read(merged([stream(written(rows)) for rows in files])) == encoded(expected)


@given(st.lists(changes, min_size=1, max_size=4), st.integers(0, GROUPS), st.integers(0, GROUPS))
def test_that_a_key_is_gone_is_kept_for_older_files_only(files: list[Rows], start: int, stop: int) -> None:
    older = range(start, stop)
    expected: Rows = {}
    for rows in files:
        expected.update(rows)
    expected = {place: value for place, value in expected.items() if value is not MISSING or place[0] in older}
    assert read(merged([stream(written(rows)) for rows in files], [older])) == encoded(expected)


@given(st.lists(changes, min_size=1, max_size=4))
def test_all_older_files_may_count_for_all_groups(files: list[Rows]) -> None:
    expected: Rows = {}
    for rows in files:
        expected.update(rows)
    assert read(merged([stream(written(rows)) for rows in files], [range(0), None])) == encoded(expected)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(whole=changes, later=changes)
def test_a_whole_snapshot_may_come_first(whole: Rows, later: Rows) -> None:
    whole = {place: value for place, value in whole.items() if value is not MISSING}
    expected = {place: value for place, value in {**whole, **later}.items() if value is not MISSING}
    assert read(merged([stream(written(whole, False)), stream(written(later))])) == encoded(expected)


def test_large_values_are_merged_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_module, "_MUCH", 1000)
    rows = {(0, "total", encode_key(key)): "x" * 100 for key in range(100)}
    ((_, batches, _),) = merged([stream(written(rows)), stream(written({(0, "total", encode_key(1)): "y"}))])
    assert max(map(len, batches)) == 16
    assert sum(map(len, batches)) == 100


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    storage = CheckpointStorage(str(tmp_path), "orders")
    storage.prepare()
    return storage


def keys_in(storage: CheckpointStorage, files: list[StateFile], groups: range | None = None) -> set[tuple[int, Any]]:
    return {(batch.group, value) for batch in load_keyed_state(storage, files, groups) for value in batch.values}


def test_a_file_counts_for_the_key_groups_that_the_list_names(storage: CheckpointStorage) -> None:
    """Whatever else it has: of that, another subtask has merged what deleted it."""

    def file(name: str, value: Any) -> StateFile:
        rows = {(group, "total", encode_key("k")): value for group in range(GROUPS)}
        return StateFile(storage.write_file(f"shared/1-{name}", written(rows)))

    old, new = file("old", "old"), file("new", "new")
    narrowed = [StateFile(old.file, range(1, 4)), StateFile(new.file, range(3))]
    assert keys_in(storage, narrowed) == {(0, "new"), (1, "new"), (2, "new"), (3, "old")}
    assert keys_in(storage, narrowed, range(2, 4)) == {(2, "new"), (3, "old")}
    assert keys_in(storage, [StateFile(old.file, range(2))]) == {(0, "old"), (1, "old")}
    assert keys_in(storage, [StateFile(old.file, range(2))], range(1, 3)) == {(1, "old")}
    assert keys_in(storage, []) == set()
    both = read(load_groups(storage, narrowed, []))
    assert {group for group, _, _ in both} == {0, 1, 2, 3}


def test_damage_in_one_of_several_files_is_told_by_its_name(storage: CheckpointStorage) -> None:
    rows: Rows = {(1, "total", encode_key("k")): "v" * 50}
    files = [StateFile(storage.write_file(f"shared/1-{i}", written(rows, compression="lz4"))) for i in range(3)]
    path = Path(storage.location.removeprefix("file://"), "shared/1-1")
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFile, match="shared/1-1 is damaged") as caught:
        list(load_keyed_state(storage, files))
    assert "shared/1-0" not in str(caught.value)
