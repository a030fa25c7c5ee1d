"""Columns of records: their sizes, and parts of them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from sinks.kafka.rows import KafkaRows, headers_size

EACH = 32
"""Bytes that each record counts beside its content."""


def full() -> KafkaRows:
    return KafkaRows(
        topic=None,
        topics=["a", "b", "c"],
        values=[b"12", None, b""],
        keys=[b"1", b"", None],
        partitions=[0, -1, 2],
        timestamps=[5, None, 7],
        headers=[[("ä", b"123"), ("n", None)], None, []],
        message_limit=99,
    )


def test_a_record_counts_its_value_key_and_headers_and_something_for_itself() -> None:
    rows = full()
    assert rows.sizes() == [EACH + 2 + 1 + 6, EACH, EACH]
    assert rows.size == sum(rows.sizes())
    assert len(rows) == 3
    plain = KafkaRows("t", None, [b"1234", None])
    assert plain.sizes() == [EACH + 4, EACH]
    assert plain.size == 2 * EACH + 4


def test_headers_count_the_bytes_of_names_and_values() -> None:
    assert headers_size([("ä", b"123"), ("n", None)]) == 2 + 3 + 1
    assert headers_size(None) == headers_size([]) == 0


@pytest.mark.parametrize(
    ("room", "count"),
    [(0, 0), (EACH, 0), (EACH + 1, 1), (2 * EACH + 2, 1), (2 * EACH + 3, 2), (3 * EACH + 6, 3), (10_000, 3)],
)
def test_as_many_of_the_first_records_fit_as_have_room_together(room: int, count: int) -> None:
    assert KafkaRows("t", None, [b"1", b"22", b"333"]).fitting(room) == count


def test_a_part_has_the_same_records_of_every_column() -> None:
    part = full().slice(1, 2)
    assert part == KafkaRows(None, ["b"], [None], [b""], [-1], [None], [None], 99)
    rest = full().slice(2)
    assert rest == KafkaRows(None, ["c"], [b""], [None], [2], [7], [[]], 99)


def test_columns_that_are_not_set_stay_so() -> None:
    part: dict[str, Any] = {
        each.name: getattr(KafkaRows("t", None, [b"1", b"2"]).slice(0, 1), each.name) for each in fields(KafkaRows)
    }
    assert part.pop("topic") == "t"
    assert part.pop("values") == [b"1"]
    assert part.pop("message_limit") == 2**31 - 1
    assert set(part.values()) == {None}
