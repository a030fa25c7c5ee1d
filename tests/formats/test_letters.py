"""Dead letters, as they are read."""

from __future__ import annotations

import pytest

from formats.letters import OFFSET, PARTITION, REASON, TIMER, TIMESTAMP, TOPIC, UNREADABLE, VALUE, ReadLetter


def letter(**told: str) -> ReadLetter:
    names = {"topic": TOPIC, "partition": PARTITION, "offset": OFFSET, "value": VALUE}
    read = ReadLetter.of([(REASON, b"no number"), *((names[name], text.encode()) for name, text in told.items())])
    assert read is not None
    return read


def test_a_letter_tells_where_its_record_was() -> None:
    assert letter(topic="orders", partition="3", offset="17").origin == ("orders", 3, 17)
    assert letter(topic="orders", partition="3", offset="17", value="source").origin == ("orders", 3, 17)
    assert letter(topic="orders", partition="3", offset="17", value="json").origin is None


@pytest.mark.parametrize(
    "told",
    [
        {"topic": "orders"},
        {"topic": "orders", "partition": "3"},
        {"topic": "orders", "offset": "17"},
        {"topic": "orders", "partition": "", "offset": ""},
        {"topic": "orders", "partition": "three", "offset": "17"},
        {"topic": "orders", "partition": "-1", "offset": "17"},
        {"partition": "3", "offset": "17"},
    ],
)
def test_headers_of_others_that_say_less_tell_no_place(told: dict[str, str]) -> None:
    assert letter(**told).origin is None


@pytest.mark.parametrize(
    ("own", "told", "lacks"),
    [
        ((), {VALUE: b"source"}, None),
        ((), {VALUE: b"json", TIMESTAMP: b""}, None),
        (("trace", b"none"), {TIMESTAMP: b"1"}, None),
        ((), {VALUE: b"none"}, "no value"),
        ((), {VALUE: b"none", TIMER: b"1000"}, "a timer"),
        ((UNREADABLE, b"not UTF-8"), {VALUE: b"source"}, "headers of its record"),
        ((), {VALUE: b"source", TIMESTAMP: b"0"}, "timestamp of its record is 0"),
    ],
)
def test_a_letter_that_would_come_as_another_record_says_what_it_lacks(
    own: tuple[str, bytes] | tuple[()], told: dict[str, bytes], lacks: str | None
) -> None:
    read = ReadLetter.of([*([own] if own else []), (REASON, b"no number"), *told.items()])
    assert read is not None
    assert read.lacks is None if lacks is None else lacks in (read.lacks or "")
