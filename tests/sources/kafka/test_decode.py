"""Messages become values, and what belongs to each; with a broker: `test_formats.py`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import BadRecord
from sources import ArrowJson
from sources.kafka.bad_records import BadRecords, Letter, shortened
from sources.kafka.decode import RecordDecoder, partitions, timestamps
from sources.kafka.messages import first_offsets, told_headers_of


@dataclass
class Order:
    id: int
    price: Decimal


class Kept(BadRecords):
    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.contents: list[bytes | None] = []

    def handle(self, message: Any, content: bytes | None, error: Exception) -> None:
        assert message.value() == content
        self.contents.append(content)
        self.reasons.append(str(error))

    def take_over(self, letters: Any) -> None:
        raise AssertionError(f"{len(letters)} of {Letter}")


def message(value: bytes | None, offset: int = 0, time: int = 1, **more: Any) -> Message:
    return Message(
        **{"topic": "orders", "partition": 2, "offset": offset, "value": value, "timestamp": (1, time), **more}
    )


def decoded(*raw: bytes | None) -> tuple[list[Any], list[str]]:
    kept = Kept()
    messages = list(map(message, raw))
    good, values = RecordDecoder("json", kept, value_type=Order).decode(messages, list(raw))  # type: ignore[arg-type]
    assert len(good) == len(values)
    return list(values), kept.reasons


def test_all_values_of_a_batch_become_instances() -> None:
    values, bad = decoded(b'{"id": 1, "price": 1.10}', b'{"price": "2", "id": 2}')
    assert values == [Order(1, Decimal("1.10")), Order(2, Decimal(2))]
    assert bad == []


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"id": "1", "price": 1}', "Expected `int`, got `str` - at `$.id`"),
        (b'{"id": 1, "id": 2, "price": 1}', "an object has the key 'id' more than once"),
        (b'{"id": 1}', "Object missing required field `price`"),
        (b"{", "unexpected end of data"),
    ],
)
def test_one_that_does_not_fit_is_a_bad_record_with_its_path(raw: bytes, reason: str) -> None:
    values, (told,) = decoded(b'{"id": 1, "price": 1}', raw, None)
    assert values == [Order(1, Decimal(1)), None]
    assert reason in told


@given(
    st.lists(st.sampled_from([b'{"id": 1}', b'{"id": 2}', b'{"id": "x"}', b"{", b"[]", None]), min_size=1, max_size=9)
)
def test_bad_records_among_columns_are_found_one_by_one(raw: list[bytes | None]) -> None:
    kept = Kept()
    decoder = RecordDecoder(ArrowJson(pa.schema([("id", pa.int64())])), kept)
    messages = [message(content, offset) for offset, content in enumerate(raw)]
    good, values = decoder.decode(messages, raw)  # type: ignore[arg-type]
    fits = [content is not None and content.endswith((b"1}", b"2}")) for content in raw]
    assert [one.offset() for one in good] == [offset for offset, fit in enumerate(fits) if fit]
    assert kept.contents == [content for content, fit in zip(raw, fits, strict=True) if not fit]
    rows = values.to_pylist() if good else values  # type: ignore[union-attr]
    assert rows == [{"id": int((content or b"")[7:8])} for content, fit in zip(raw, fits, strict=True) if fit]


def test_what_an_operator_sees_of_a_record_besides_its_value() -> None:
    first = message(b"1", 7, key=b"k", headers=[("h", b"1"), ("n", None)])
    second = message(b"2", 8, time=-1, partition=0)
    contexts = RecordDecoder("json", Kept(), key_format="str").contexts([first, second])
    assert len(contexts) == 2
    one = contexts[0]
    assert (one.topic, one.partition, one.offset, one.kafka_key) == ("orders", 2, 7, "k")
    place = {"topic": "orders", "partition": 2, "offset": 7, "timestamp": 1}
    assert one.original == {**place, "key": b"k", "value": b"1", "headers": [["h", b"1"], ["n", None]]}
    (other,) = contexts[1:]
    assert (other.offset, other.partition, other.kafka_key, other.headers) == (8, 0, None, [])
    assert other.original["timestamp"] is None
    assert contexts[-1].offset == 8


class Unreadable(Message):
    """As one with a header whose name is not UTF-8, which this client can't write."""

    def headers(self) -> Any:
        return b"\xff".decode()


def test_headers_that_cannot_be_read_are_told_and_keep_no_letter_from_being_written() -> None:
    one = Unreadable(topic="orders", partition=2, offset=7, value=b"1", timestamp=(1, 1))
    (context,) = RecordDecoder("json", Kept()).contexts([one])
    why = r"orders\[2\] offset 7: the name of a header is not UTF-8 \(.*0xff"
    with pytest.raises(BadRecord, match=why):
        _ = context.headers
    ((name, told),) = told_headers_of(one)
    assert (name, bool(re.match(why.encode(), told or b""))) == ("weir.error.headers", True)
    assert Letter.of(one, ValueError("bad")).headers == ((name, told),)
    assert (context.original["headers"], context.original["value"]) == ([[name, told]], b"1")


def test_a_key_that_is_not_of_its_format_is_named() -> None:
    with pytest.raises(BadRecord, match=r"orders\[2\] offset 7: the key is not json \(.*\): b'x'\. Correct key_format"):
        RecordDecoder("json", Kept(), key_format="json").key(message(b"1", 7, key=b"x"))


@pytest.mark.parametrize(("times", "told"), [([3, 0], [3, 0]), ([3, -1, 0], [3, None, 0]), ([-1], [None]), ([], [])])
def test_a_time_that_kafka_does_not_know_is_none(times: list[int], told: list[int | None]) -> None:
    assert timestamps([message(b"", time=time) for time in times]) == told


def test_where_each_record_comes_from_and_what_was_first() -> None:
    messages = [message(b"", offset, partition=offset % 2) for offset in (4, 5, 6, 7)]
    assert partitions(messages) == [("orders", 0), ("orders", 1)] * 2
    assert first_offsets(messages) == {("orders", 0): 4, ("orders", 1): 5}
    assert first_offsets([message(b"", 0)]) == {("orders", 2): 0}


def test_a_long_record_is_shown_shortened() -> None:
    assert shortened(None) == "None"
    assert shortened(b"x" * 200) == repr(b"x" * 200)
    assert shortened(b"x" * 201) == f"{b'x' * 200!r}… (201 bytes)"
