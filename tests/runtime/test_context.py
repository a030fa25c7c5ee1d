"""`ctx`: the key, side outputs and what a source adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from checkpoint.codec import encode_key
from pipeline.runtime.subtask.context import Context


@dataclass
class Row:
    offset: int
    topic: str = "orders"


def test_without_a_key_source_or_time_there_is_none() -> None:
    ctx = Context(2, 4)
    assert (ctx.subtask, ctx.parallelism) == (2, 4)
    assert (ctx.key, ctx.timestamp, ctx.watermark) == (None, None, None)


@pytest.mark.parametrize("key", ["ann", 1, 1.0, True, None, b"x", ("a", 1), ("a", ("b", 2.5))])
def test_the_key_is_that_of_the_record_in_progress(key: Any) -> None:
    ctx = Context(0, 1)
    for each in ("before", key, "after", key):
        ctx.key_bytes = encode_key(each)
        assert ctx.key == each
        assert type(ctx.key) is type(each)


def test_what_the_source_knows_is_that_of_the_record_in_progress() -> None:
    ctx = Context(0, 1)
    ctx.source_rows = [Row(7), Row(8)]
    assert (ctx.offset, ctx.topic) == (7, "orders")
    ctx.row = 1
    assert ctx.offset == 8


@pytest.mark.parametrize("name", ["offset", "nonsense"])
def test_what_is_not_there_says_what_is(name: str) -> None:
    with pytest.raises(AttributeError, match=f"ctx.{name} isn't there: ctx has key, timestamp, watermark"):
        getattr(Context(0, 1), name)


def test_a_side_output_that_nobody_reads_is_dropped() -> None:
    ctx, late = Context(0, 1), []
    ctx.side_outputs = {"late": late.append}
    ctx.side_output("late", 1)
    ctx.side_output("other", 2)
    assert late == [1]
