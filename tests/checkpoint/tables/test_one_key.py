"""All that one key has in a step of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from state_tables import make_savepoint, timers_at

from checkpoint.codec import encode, encode_key
from checkpoint.storage import restore
from checkpoint.storage.restore import RestorePoint
from checkpoint.tables.one_key import KeyRows, rows_of_key
from checkpoint.tables.point import NoSuchTable


@pytest.fixture
def point(tmp_path: Path) -> RestorePoint:
    state = {
        ("totals", "total"): {"ann": 1, "ben": 2},
        ("totals", "names"): {"ann": ["a", "b"]},
        ("other", "total"): {"ann": 3},
    }
    timers = {"totals": timers_at(("ann", 70), ("ann", -5), ("ben", 6))}
    return restore.from_uri(make_savepoint(tmp_path / "saved", state, timers))


def test_a_key_has_its_values_by_state_and_its_timers_in_order(point: RestorePoint) -> None:
    assert rows_of_key(point, "totals", encode_key("ann")) == KeyRows(
        {"total": encode(1), "names": encode(["a", "b"])}, {"event": (-5, 70), "processing": ()}
    )
    assert rows_of_key(point, "totals", encode_key("ben")) == KeyRows(
        {"total": encode(2)}, {"event": (6,), "processing": ()}
    )


def test_a_key_that_has_nothing_has_no_rows(point: RestorePoint) -> None:
    assert rows_of_key(point, "totals", encode_key("eve")) == KeyRows({}, {"event": (), "processing": ()})


def test_a_step_without_state_is_refused_with_the_names_of_those_that_have_some(point: RestorePoint) -> None:
    with pytest.raises(NoSuchTable, match=r"(?s)gone.*(other.*totals|totals.*other)"):
        rows_of_key(point, "gone", encode_key("ann"))
