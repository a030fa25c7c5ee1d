"""Two checkpoints compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checkpoint_folders import metadata_of
from hypothesis import given, settings
from hypothesis import strategies as st
from state_tables import changes_of, make_savepoint, raw_rows, timers_at

from checkpoint.codec import decode, decode_key, encode
from checkpoint.storage.metadata import OperatorSnapshot
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.restore import RestorePoint
from checkpoint.storage.storage import CheckpointStorage
from checkpoint.tables import diff as module
from checkpoint.tables.diff import diff
from checkpoint.tables.json_form import to_json
from checkpoint.tables.point import NoSuchTable, Wanted, open_point
from checkpoint.tables.writing import NewPipeline, write_savepoint

ENTRIES = st.dictionaries(
    st.sampled_from([("a", "one"), ("a", "two"), ("b", "one")]),
    st.dictionaries(st.integers(0, 40), st.sampled_from([1, 1.0, None, (1,), [1], "x"]), max_size=20),
)


def differences(before: str, after: str, **which: Any) -> list[dict[str, Any]]:
    return list(diff(open_point(before), open_point(after), Wanted(**which)))


@settings(max_examples=30, deadline=None)
@given(ENTRIES, ENTRIES, st.sampled_from([16, 32]), st.sampled_from([1, 5]))
def test_the_rows_are_what_differs(
    tmp_path_factory: pytest.TempPathFactory, before: Any, after: Any, max_parallelism: int, at_once: int
) -> None:
    folder = tmp_path_factory.mktemp("diff")
    first = make_savepoint(folder / "a", before)
    other = NewPipeline("orders", max_parallelism, 2)
    second = write_savepoint((folder / "b").as_uri(), changes_of(after), other, "1.0").uri
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ROWS", at_once)
        found = differences(first, second)
    old, new = raw_rows(first), raw_rows(second)
    expected = {
        (step, state, to_json(decode_key(key)))
        for step, state, key, _ in old.keys() | new.keys()
        if old.get((step, state, key, None)) != new.get((step, state, key, None))
    }
    assert {(row["step"], row["state"], row["key_json"]) for row in found} == expected
    assert len(found) == len(expected)
    texts = {
        side: {place: to_json(decode(value)) for place, value in rows.items()}
        for side, rows in (("before_json", old), ("after_json", new))
    }
    by_text = {
        side: {(step, state, to_json(decode_key(key))): text for (step, state, key, _), text in rows.items()}
        for side, rows in texts.items()
    }
    for row in found:
        place = (row["step"], row["state"], row["key_json"])
        assert row["before_json"] == by_text["before_json"].get(place)
        assert row["after_json"] == by_text["after_json"].get(place)
        change = "added" if row["before_json"] is None else "removed" if row["after_json"] is None else "changed"
        assert row["change"] == change
    assert differences(first, first) == []


def test_timers_and_one_state(tmp_path: Path) -> None:
    states = {("a", "n"): {"x": 1}, ("a", "m"): {"x": 1}}
    first = make_savepoint(tmp_path / "a", states, {"a": timers_at(("x", 5))})
    second = make_savepoint(tmp_path / "b", {("a", "n"): {"x": 2}}, {"a": timers_at(("x", 6))})
    assert {(row["state"], row["at"], row["change"]) for row in differences(first, second)} == {
        ("event timers", 5, "removed"),
        ("event timers", 6, "added"),
        ("m", None, "removed"),
        ("n", None, "changed"),
    }
    one_state = differences(first, second, state="n")
    assert [(row["state"], row["before_json"], row["after_json"]) for row in one_state] == [("n", "1", "2")]
    # Wherever in the files it lies, before others or behind them.
    for state, changes in {"m": ["removed"], "n": ["changed"], "event timers": ["removed", "added"]}.items():
        assert [row["change"] for row in differences(first, second, state=state)] == changes
    with pytest.raises(NoSuchTable, match="neither has step 'c'; they have 'a'"):
        differences(first, second, step="c")


def test_it_is_in_the_order_of_steps_states_keys_and_times(tmp_path: Path) -> None:
    timers = {step: timers_at(("x", 7), ("x", -2), ("y", 1)) for step in ("a", "b")}
    first = make_savepoint(tmp_path / "a", {("a", "n"): {}, ("b", "n"): {}})
    second = make_savepoint(tmp_path / "b", {("b", "n"): {"x": 1, "w": 1}, ("a", "z"): {"x": 1}}, timers)
    assert [(row["step"], row["state"], row["key_json"], row["at"]) for row in differences(first, second)] == [
        ("a", "event timers", '"x"', -2),
        ("a", "event timers", '"x"', 7),
        ("a", "event timers", '"y"', 1),
        ("a", "z", '"x"', None),
        ("b", "event timers", '"x"', -2),
        ("b", "event timers", '"x"', 7),
        ("b", "event timers", '"y"', 1),
        ("b", "n", '"w"', None),
        ("b", "n", '"x"', None),
    ]


def test_state_that_belongs_to_no_key(tmp_path: Path) -> None:
    def point(rules: dict[Any, Any]) -> RestorePoint:
        entries = {encode(key): encode(value) for key, value in rules.items()}
        ref = CheckpointRef(1, 1)
        metadata = metadata_of(ref, {"a": OperatorSnapshot({"broadcast": {"rules": entries}})})
        return RestorePoint(CheckpointStorage(tmp_path.as_uri(), None), ref, metadata, "")

    found = list(diff(point({"big": 1, "small": 2}), point({"big": 1, "small": 3})))
    assert [(row["state"], row["key_json"], row["before_json"], row["after_json"]) for row in found] == [
        ('rules (broadcast state of subtask 0, "small")', None, "2", "3")
    ]
