"""Lists and maps that lie in pages are one row in tables, with all that is in them."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from checkpoint_folders import JobFolder, metadata_of
from state_tables import raw_rows, rows_of_entries, values_of

from checkpoint.codec import decode, encode, encode_key
from checkpoint.key_groups import key_group
from checkpoint.state import DeclaresState, ListState, MapState, ValueState, bind, make_backend
from checkpoint.state.files import load_contents, load_encoded_state
from checkpoint.state.paging import maps, rows
from checkpoint.storage.errors import DamagedFile
from checkpoint.storage.handles import StateFile
from checkpoint.storage.metadata import OperatorSnapshot
from checkpoint.storage.naming import CheckpointRef, private_path
from checkpoint.storage.restore import RestorePoint, from_uri
from checkpoint.storage.storage import CheckpointStorage
from checkpoint.tables.changes import Deletion, SavepointChanges, StateName, rows_of
from checkpoint.tables.diff import diff
from checkpoint.tables.one_key import rows_of_key
from checkpoint.tables.point import Wanted, open_point
from checkpoint.tables.tables import open_table
from checkpoint.tables.writing import write_savepoint

MAX = 16
LARGE = 4 * rows.MOST
SEEN = {n: [n] for n in reversed(range(LARGE))}
ITEMS = list(range(LARGE))


class Op(DeclaresState):
    items = ListState[Any]()
    seen = MapState[Any, Any]()
    value = ValueState[Any]()


def operator() -> tuple[Any, Any]:
    op: Any = Op()
    backend = make_backend(range(MAX), MAX)
    bind(op, backend)
    return op, backend


def at(backend: Any, key: Any) -> None:
    encoded = encode_key(key)
    backend.set_current_key(encoded, key_group(encoded, MAX))


def fill(op: Any, backend: Any) -> None:
    for key in ("ann", "ben"):
        at(backend, key)
        op.items.extend(ITEMS)
        op.seen.update(deepcopy(SEEN))
        op.value.value = deepcopy(SEEN)  # of a state of values nothing is cut, or folded
    at(backend, "small")
    op.items.append(1)
    op.seen["a"] = 1


def saved(folder: Path, change: Callable[[Any, Any], None] = lambda op, backend: None) -> str:
    """The URI of a checkpoint with this state, changed."""
    op, backend = operator()
    fill(op, backend)
    change(op, backend)
    job = JobFolder(CheckpointStorage(folder.as_uri(), "orders"))
    ref = CheckpointRef(1, job.ownership.attempt)
    data = bytearray()
    backend.freeze().write(data.extend)
    file = job.storage.write_file(private_path(ref, "totals-0", "state"), bytes(data))
    operators = {"totals": OperatorSnapshot(keyed_state=(StateFile(file),))}
    job.storage.write_metadata(1, ref.attempt, metadata_of(ref, operators, max_parallelism=MAX))
    return f"{job.storage.uri_of()}/{ref.path}"


def rows_by_key(uri: str, state: str, **wanted: Any) -> dict[Any, Any]:
    found = open_table(uri, "state", Wanted("totals", state, **wanted), typed=False).read().to_pylist()
    assert len({row["key_bytes"] for row in found}) == len(found)
    return {row["key_json"].strip('"'): decode(row["value_bytes"]) for row in found}


def restored(point: RestorePoint) -> tuple[Any, Any]:
    op, backend = operator()
    (snapshot,) = point.metadata.operator("totals")
    backend.restore_encoded(load_encoded_state(point.storage, snapshot.keyed_state))
    return op, backend


def test_each_is_one_row_with_its_entries_in_order(tmp_path: Path) -> None:
    uri = saved(tmp_path)
    assert len(raw_rows(uri)) > 2 * LARGE / 64
    seen = rows_by_key(uri, "seen")
    assert seen == {"ann": SEEN, "ben": SEEN, "small": {"a": 1}}
    assert list(seen["ann"]) == list(SEEN)
    assert rows_by_key(uri, "items") == {"ann": ITEMS, "ben": ITEMS, "small": [1]}
    assert rows_by_key(uri, "value") == {"ann": SEEN, "ben": SEEN}
    assert rows_by_key(uri, "seen", key=encode_key("ben")) == {"ben": SEEN}
    found = rows_of_key(open_point(uri), "totals", encode_key("ann"))
    assert found.states == {"seen": encode(SEEN), "items": encode(ITEMS), "value": encode(SEEN)}


def test_a_comparison_is_of_the_whole(tmp_path: Path) -> None:
    def change(op: Any, backend: Any) -> None:
        at(backend, "ann")
        op.seen[5].append("more")
        at(backend, "small")
        op.items.extend(ITEMS)

    before, after = saved(tmp_path / "a"), saved(tmp_path / "b", change)
    found = list(diff(open_point(before), open_point(after)))
    assert [(row["state"], row["key_json"], row["change"]) for row in found] == [
        ("items", '"small"', "changed"),
        ("seen", '"ann"', "changed"),
    ]
    assert list(diff(open_point(before), open_point(before))) == []

    def grown_and_shrunk(op: Any, backend: Any) -> None:
        at(backend, "ann")
        op.seen.update((f"more {n}", n) for n in range(LARGE))
        for n in range(LARGE):
            del op.seen[f"more {n}"]

    other = saved(tmp_path / "c", grown_and_shrunk)
    assert raw_rows(before) != raw_rows(other)
    assert list(diff(open_point(before), open_point(other))) == []


def test_a_savepoint_from_a_table_has_it_whole_and_a_job_cuts_it_again(tmp_path: Path) -> None:
    uri = saved(tmp_path / "a")
    new = {**SEEN, "new": 1}
    changes = SavepointChanges(
        put={StateName("totals", "seen"): rows_of_entries([("ann", new)])},
        replaced={StateName("totals", "items"): rows_of_entries([("eve", ITEMS)])},
        deleted=[Deletion(frozenset({encode_key("ben")}))],
    )
    written = write_savepoint((tmp_path / "b").as_uri(), changes, open_point(uri), "1.0")
    assert written.removed[StateName("totals", "seen")] == 1
    assert written.rows[StateName("totals", "seen")] == 2
    assert values_of(written.uri, "totals", "seen") == {encode_key("ann"): new, encode_key("small"): {"a": 1}}
    assert values_of(written.uri, "totals", "items") == {encode_key("eve"): ITEMS}
    point = from_uri(written.uri)
    (snapshot,) = point.metadata.operator("totals")
    assert {content.paged for content in load_contents(point.storage, snapshot.keyed_state).values()} == {None}
    op, backend = restored(point)
    at(backend, "ann")
    assert list(op.seen.items()) == list(new.items())
    op.seen["newer"] = 2
    at(backend, "eve")
    op.items.append(1)
    data = bytearray()
    backend.freeze().write(data.extend)
    at(backend, "ann")
    assert (len(op.seen), op.seen["newer"]) == (LARGE + 2, 2)
    at(backend, "ben")
    assert (len(op.seen), len(op.items), op.value.value) == (0, 0, None)


def test_what_was_read_as_a_table_comes_back_as_it_was(tmp_path: Path) -> None:
    uri = saved(tmp_path / "a")
    changes = SavepointChanges(replaced=rows_of(open_table(uri, "state").read()))
    written = write_savepoint((tmp_path / "b").as_uri(), changes, open_point(uri), "1.0")
    op, backend = restored(from_uri(written.uri))
    for key in ("ann", "ben"):
        at(backend, key)
        assert list(op.seen.items()) == list(SEEN.items())
        assert (op.items.get(), op.value.value) == (ITEMS, SEEN)


def test_a_step_that_no_change_concerns_keeps_its_pages(tmp_path: Path) -> None:
    uri = saved(tmp_path / "a")
    changes = SavepointChanges(put={StateName("other", "n"): rows_of_entries([("x", 1)])})
    written = write_savepoint((tmp_path / "b").as_uri(), changes, open_point(uri), "1.0")
    of_totals = {place: value for place, value in raw_rows(written.uri).items() if place[0] == "totals"}
    assert of_totals == raw_rows(uri)
    op, backend = restored(from_uri(written.uri))
    at(backend, "ann")
    assert list(op.seen) == list(SEEN)


def test_a_file_that_lacks_a_page_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as wrong:
        original = maps._set
        wrong.setattr(
            maps, "_set", lambda group, key, *page: None if key.endswith(b"\x03") else original(group, key, *page)
        )
        uri = saved(tmp_path)
    with pytest.raises(
        DamagedFile, match=r"op-state.*|totals-0.* is damaged: the map of key '(ann|ben)' in state 'seen'"
    ):
        rows_by_key(uri, "seen")
