"""Dead letters, as they are read."""

from __future__ import annotations

import pytest

from formats.letters import OFFSET, PARTITION, REASON, TOPIC, VALUE, ReadLetter


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
