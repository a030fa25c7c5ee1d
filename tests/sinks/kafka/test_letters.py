"""Dead letters of steps as messages, and read again."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from checkpoint.codec import decode
from formats.letters import ReadLetter
from sinks.kafka.encoding import RecordEncoder
from sinks.kafka.letters import LetterSink
from sinks.kafka.topics import TopicLimits
from sinks.sink import SinkBatch

SINK = LetterSink("kafka:9092", "dead", "job", {})


class Catalog:
    """What brokers say of any topic."""

    def get(self, topic: str) -> TopicLimits:
        return TopicLimits(topic, 1, 10_000)


def letter(**fields: Any) -> dict[str, Any]:
    told = {"step": "s", "subtask": 1, "error": "KeyError", "reason": "no", "traceback": "", "key": None}
    return {**told, "timestamp": None, "timer": None, "original": None, **fields}


def message(one: dict[str, Any]) -> tuple[bytes | None, bytes | None, ReadLetter]:
    rows = RecordEncoder(SINK._records, Catalog(), "s-errors").encode(SinkBatch([one], [None], [None]))  # type: ignore[arg-type]
    assert rows.keys is not None
    assert rows.headers is not None
    read = ReadLetter.of(rows.headers[0] or ())
    assert read is not None
    return rows.keys[0], rows.values[0], read


def test_a_record_of_the_source_is_there_byte_by_byte() -> None:
    headers = [["a", b"\xff"], ["a", None]]
    original = {"topic": "orders", "partition": 2, "offset": 7, "timestamp": 5, "key": b"\x00k", "value": b"{broken"}
    key, value, read = message(letter(record={"x": 1}, key="ann", original={**original, "headers": headers}))
    assert (key, value) == (b"\x00k", b"{broken")
    assert read.headers == (("a", b"\xff"), ("a", None))
    assert (read.origin, read.timestamp, read.step, read.error) == (("orders", 2, 7), 5, "s", "KeyError")
    assert read.told["weir.step.key"] == '"ann"'
    assert read.told["weir.pipeline"] == "job"


@pytest.mark.parametrize("timestamp", [None, 0])
def test_a_tombstone_stays_one(timestamp: int | None) -> None:
    original = {"topic": "t", "partition": 0, "offset": 0, "timestamp": timestamp, "key": None, "value": None}
    key, value, read = message(letter(record=None, original={**original, "headers": []}))
    assert (key, value) == (None, None)
    assert (read.origin, read.timestamp) == (("t", 0, 0), timestamp)


def test_any_other_record_is_json_or_msgpack() -> None:
    key, value, read = message(letter(record={"x": [1.5, None]}, key=7))
    assert (key, value, read.told["weir.value"]) == (b"7", b'{"x":[1.5,null]}', "json")
    assert read.origin is None
    at = datetime(2026, 1, 1)
    key, value, read = message(letter(record={1: (at, float("inf"))}, key="ann"))
    assert (key, read.told["weir.value"]) == (b"ann", "msgpack")
    assert value is not None
    assert decode(value) == {1: (at, float("inf"))}


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("\ud800", b"\\ud800"),
        (("\ud800",), b"('\\ud800',)"),
        ("größe", "größe".encode()),
        (b"\xff", b"\xff"),
        ("", b""),
    ],
)
def test_a_letter_is_written_whatever_the_streams_key_is(key: Any, told: bytes) -> None:
    found, value, read = message(letter(record={"name": "\ud800"}, key=key))
    assert (found, read.told["weir.value"]) == (told, "msgpack")
    assert decode(value or b"") == {"name": "\ud800"}


def test_a_timer_has_no_record() -> None:
    key, value, read = message(letter(key="ann", timer=17))
    assert (key, value) == (b"ann", None)
    assert (read.told["weir.value"], read.told["weir.step.timer"]) == ("none", "17")


def test_a_letter_that_failed_again_is_told_by_its_last_headers() -> None:
    original = {"topic": "t", "partition": 0, "offset": 0, "timestamp": 1, "key": None, "value": b"x"}
    first = [["weir.error.reason", b"before"], ["weir.source.topic", b"older"]]
    _, _, read = message(letter(record=1, original={**original, "headers": first}))
    assert read.told["weir.error.reason"] == "no"
    assert read.headers == (("weir.error.reason", b"before"), ("weir.source.topic", b"older"))


def test_a_message_without_such_headers_is_none() -> None:
    assert ReadLetter.of([("trace", b"1")]) is None
