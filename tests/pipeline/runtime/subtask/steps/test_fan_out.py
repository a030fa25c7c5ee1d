"""What one step hands to several: who needs a copy, and rows that know their place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from values import VALUES, same

from checkpoint.codec import copied
from pipeline.graph import StepKind
from pipeline.runtime.subtask.chain import fan_out, fan_out_batches, is_fresh
from pipeline.runtime.subtask.record_in_progress import RecordInProgress


def step(kind: StepKind, on_error: Any = None, **payload: Any) -> Any:
    return SimpleNamespace(kind=kind, on_error=on_error, payload=SimpleNamespace(**payload))


@pytest.mark.parametrize(
    ("emitting", "fresh"),
    [
        (step(StepKind.MAP), False),
        (step(StepKind.MAP, on_error="skip"), True),
        (step(StepKind.PEEK), True),
        (step(StepKind.LIMIT_RATE), True),
        (step(StepKind.SOURCE, fresh_records=True), True),
        (step(StepKind.SOURCE, fresh_records=False), False),
        (step(StepKind.ASSIGN_TIMESTAMPS, timestamp="at"), True),
        (step(StepKind.ASSIGN_TIMESTAMPS, timestamp=lambda value: 0), False),
    ],
)
def test_only_what_nobody_else_has_needs_no_copy(emitting: Any, fresh: bool) -> None:
    assert is_fresh(emitting) is fresh


@pytest.mark.parametrize("fresh", [False, True])
def test_each_chained_step_has_a_record_of_its_own_and_channels_come_first(fresh: bool) -> None:
    got: list[tuple[str, Any]] = []

    def reader(name: str) -> Any:
        def push(value: Any) -> None:
            got.append((name, value))
            if name != "channel":
                value.append(name)

        return push

    value: list[Any] = []
    fan_out([reader("channel")], [reader("a"), reader("b")], fresh)(value)
    assert [name for name, _ in got] == ["channel", "a", "b"]
    assert got[1][1] == ["a"]
    assert got[2][1] == ["b"]
    assert (got[2][1] is value) is fresh


def test_rows_of_a_batch_have_their_own_place_and_timestamp_and_the_batch_keeps_its_own() -> None:
    record, seen, whole = RecordInProgress(), list[Any](), list[Any]()
    record.row, record.timestamp = 10, 99
    push = fan_out_batches(
        record,
        [lambda batch, timestamps: whole.append((batch.num_rows, timestamps))],
        [lambda row: seen.append((row["x"], record.row, record.timestamp))],
    )
    batch = pa.record_batch({"x": [1, 2]})
    push(batch, [5, 6])
    push(batch, None)
    assert seen == [(1, 10, 5), (2, 11, 6), (1, 10, None), (2, 11, None)]
    assert whole == [(2, [5, 6]), (2, None)]
    assert (record.row, record.timestamp) == (10, 99)


@given(st.one_of(VALUES, st.dictionaries(st.text(max_size=2), VALUES, max_size=10)))
def test_what_a_chained_step_gets_is_what_a_channel_would_bring_and_shares_nothing(value: Any) -> None:
    got: list[Any] = []
    fan_out([], [got.append], fresh=False)(value)
    assert same(got[0], copied(value))
    assert got[0] is not value or not isinstance(value, list | dict | set | bytearray)
