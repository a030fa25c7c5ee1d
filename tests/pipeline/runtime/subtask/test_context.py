"""`ctx`: the key, side outputs and what a source adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.codec import encode_key
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.record_in_progress import RecordInProgress


@dataclass
class Row:
    offset: int
    topic: str = "orders"


def test_without_a_key_source_or_time_there_is_none() -> None:
    ctx = Context(RecordInProgress(), 2, 4)
    assert (ctx.subtask, ctx.parallelism) == (2, 4)
    assert (ctx.key, ctx.timestamp, ctx.watermark) == (None, None, None)


@pytest.mark.parametrize("key", ["ann", 1, 1.0, True, None, b"x", ("a", 1), ("a", ("b", 2.5))])
def test_the_key_is_that_of_the_record_in_progress(key: Any) -> None:
    record = RecordInProgress()
    ctx = Context(record, 0, 1)
    for each in ("before", key, "after", key):
        record.key_bytes = encode_key(each)
        assert ctx.key == each
        assert type(ctx.key) is type(each)


@given(st.lists(st.none() | st.integers(0, 5) | st.sampled_from(["", "ann", 1.0, True, ("a", 1)])), st.data())
def test_keys_of_many_records_are_those_of_each(keys: list[Any], data: st.DataObject) -> None:
    record = RecordInProgress()
    ctx = Context(record, 0, 1)
    encoded = [data.draw(st.sampled_from([None, encode_key(None)])) if key is None else encode_key(key) for key in keys]
    alone = []
    for each in encoded:
        record.key_bytes = each
        alone.append(ctx.key)
    for context in (ctx, Context(RecordInProgress(), 0, 1)):
        together = context.keys_of(encoded)
        assert together == alone
        assert list(map(type, together)) == list(map(type, alone))


def test_what_the_source_knows_is_that_of_the_record_in_progress() -> None:
    record = RecordInProgress()
    ctx = Context(record, 0, 1)
    record.source_rows = [Row(7), Row(8)]
    assert (ctx.offset, ctx.topic) == (7, "orders")
    record.row = 1
    assert ctx.offset == 8


@pytest.mark.parametrize("name", ["offset", "nonsense"])
def test_what_is_not_there_says_what_is(name: str) -> None:
    with pytest.raises(AttributeError, match=f"ctx.{name} isn't there: ctx has key, timestamp, watermark"):
        getattr(Context(RecordInProgress(), 0, 1), name)


def test_a_side_output_that_nobody_reads_is_dropped() -> None:
    ctx, late = Context(RecordInProgress(), 0, 1), []
    ctx.side_outputs = {"late": late.append}
    ctx.side_output("late", 1)
    ctx.side_output("other", 2)
    assert late == [1]


def test_what_goes_to_a_side_output_while_there_is_no_record_is_dropped() -> None:
    record, late = RecordInProgress(), []
    ctx = Context(record, 0, 1)
    ctx.side_outputs = {"late": late.append}
    with record.mute():
        ctx.side_output("late", 1)
    ctx.side_output("late", 2)
    assert late == [2]
