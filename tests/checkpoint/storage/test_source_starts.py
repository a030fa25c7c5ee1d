"""What a start has settled for its sources: how it is kept, and whether settings are still the same."""

from __future__ import annotations

import dataclasses
import enum
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.storage import checksummed_json
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.ownership import Ownership, RestoreRecord, carried_record
from checkpoint.storage.source_starts import SourceStart, canonical, hashed

SALT = "0f" * 16
STARTS = st.builds(
    SourceStart,
    kind=st.text(),
    settings=st.dictionaries(st.text(), st.text()),
    salt=st.just(SALT),
    at=st.floats(0, 1e10),
    resolution=st.none() | st.binary(max_size=2000),
    lost=st.none() | st.text(),
)


@given(st.dictionaries(st.text(), STARTS, max_size=3), st.integers(1, 9))
def test_an_owners_record_holds_where_sources_begin(starts: dict[str, SourceStart], attempt: int) -> None:
    record = RestoreRecord(attempt, None, frozenset(), starts=starts)
    assert RestoreRecord.from_bytes(record.to_bytes()) == record
    carried = carried_record(Ownership(attempt + 1, "0" * 32), record, [CheckpointRef(1, attempt)], [])
    assert carried.starts == starts  # who only cleans the folder gives nothing up


def test_records_of_older_versions_hold_none_and_damaged_ones_are_told() -> None:
    document = checksummed_json.loads(
        RestoreRecord(1, None, frozenset(), starts={"in": SourceStart("A", {}, SALT, 1.0)}).to_bytes()
    )
    del document["checksum"]
    for start in ({}, None, {**document["starts"]["in"], "resolution": "AAAA"}):
        with pytest.raises(ValueError, match=r"damaged|not a record"):
            RestoreRecord.from_bytes(checksummed_json.dumps({**document, "starts": {"in": start}}))
    del document["starts"]
    assert RestoreRecord.from_bytes(checksummed_json.dumps(document)).starts == {}


def test_what_has_changed_is_named_and_no_setting_can_be_read() -> None:
    settings = {"topic": "orders", "password": "hunter2", "n": 1}
    start = SourceStart("Mine", hashed(settings, SALT), SALT, 1.0)
    assert start.differences("Mine", dict(settings)) == []
    assert start.differences("Mine", {**settings, "topic": "users", "new": 1}) == ["new", "topic"]
    assert start.differences("Mine", {"topic": "orders"}) == ["n", "password"]
    assert start.differences("Other", settings) == ["class"]
    record = RestoreRecord(1, None, frozenset(), starts={"in": start})
    assert b"hunter2" not in record.to_bytes()
    assert b"orders" not in record.to_bytes()


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Options:
    a: Any = 1


class Plain:
    def __init__(self, a: Any = 1) -> None:
        self.a = a


class Bare:
    __slots__ = ()


def one() -> None: ...
def other() -> None: ...


DIFFERENT: list[Any] = [
    *(None, False, True, 0, 1, 1.0, "1", b"1", "", [], (), {}, set(), [1], (1,), {1}, {"a": 1}, {"a": 2}, [[1], 2]),
    *([1, [2]], Colour.RED, Colour.BLUE, Options(), Options(2), Options(Plain()), Plain(), Plain(2), Plain({1, 2})),
    *(Decimal(1), date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC), one, other, Plain, Options, "a=1", {"a=1": 2}),
]


def test_different_settings_are_told_apart() -> None:
    texts = [canonical(value) for value in DIFFERENT]
    assert len(set(texts)) == len(texts)


def test_equal_settings_are_equal_in_every_process() -> None:
    code = (
        "import test_source_starts as t; print(*map(t.canonical, [*t.DIFFERENT, t.Bare(), set('abcdefgh')]), sep='\\n')"
    )
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_settings_that_refer_to_themselves_come_to_an_end() -> None:
    value: list[Any] = []
    value.append(value)
    assert len(canonical(value)) < 1000
