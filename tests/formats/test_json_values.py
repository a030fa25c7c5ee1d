"""JSON at every edge that has it: what is accepted comes back equal, type and all, and the rest is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
import pytest
from edge_values import EVERYTHING, INTEGERS, NOT_FINITE, OTHERS, SURROGATES, anything, json_values, same, shown
from hypothesis import given, settings
from hypothesis import strategies as st

from formats import NotInFormat
from formats.json_values import dumps, dumps_all, loads, loads_all
from sinks.files.encoding import json_lines
from sinks.files.errors import RecordRefused
from sinks.kafka.encoding import RecordEncoder, RecordOptions
from sinks.kafka.errors import RecordRefused as KafkaRecordRefused
from sinks.kafka.rows import KafkaRows
from sinks.kafka.topics import TopicCatalog, TopicLimits
from sinks.sink import SinkBatch
from sources.kafka.arrow_json import ArrowJson
from sources.kafka.formats import decoder, whole_batches


def _one_of_many(data: bytes) -> Any:
    return loads_all([b'{"a":1}', data, b" [ ] "])[1]


READERS: dict[str, Callable[[bytes], Any]] = {
    "one": loads,
    "many": _one_of_many,
    "key": lambda data: decoder("json", "key")(data, "t"),
    "poll": lambda data: whole_batches("json")([data])[0],  # type: ignore[misc]
}
reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS)

BAD = {
    "twice": b'{"a":1,"a":2}',
    "twice, the same": b'{"a":1,"a":1}',
    "twice, in depth": b'[{"b":{"a": 1, "c": 3, "a" : 2}}]',
    "twice, escaped": b'{"a":1,"\\u0061":2}',
    "twice, beside an escaped colon": b'{"a":"\\u003a","a":"\\u003A"}',
    "infinite": b"1e400",
    "infinite in depth": b'{"a":[-1e309]}',
    "too many digits": b"1" * 5000,
    "NaN": b"NaN",
    "Infinity": b"[Infinity]",
    "surrogate": b'"\\ud800"',
    "surrogate in a key": b'{"\\udfff":1}',
    "surrogate in UTF-8": b'"\xed\xa0\x80"',
    "Latin-1": b'"\xe9"',
    "UTF-16": "{}".encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"a":1}',
    "two values": b"1 2",
    "more behind it": b'{"a":1}x',
    "NUL behind it": b"1\0",
    "NUL in text": b'"\0"',
    "cut off": b'{"a":1',
    "deep": b"[" * 255 + b"]" * 255,
    "very deep": b"[" * 100_000,
    "leading zero": b"01",
    "plus": b"+1",
    "hex": b"0x1",
    "comment": b"1//",
    "trailing comma": b"[1,]",
    "empty": b"",
    "blank": b" ",
}


@reader
@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_what_is_no_json_or_would_lose_something_is_a_bad_record(read: Callable[[bytes], Any], data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(data)


@reader
@pytest.mark.parametrize("number", INTEGERS)
def test_integers_are_read_exactly_however_long(read: Callable[[bytes], Any], number: int) -> None:
    for text in (f"{number}", f'{{"id": {number}}}', f'{{"a":"x\\u003a","id":[ {number},1.5]}}'):
        expected = json.loads(text)
        assert same(read(text.encode()), expected)


def test_two_long_account_numbers_are_two_keys() -> None:
    one, other = loads_all([b'{"id":12345678901234567890123}', b'{"id":12345678901234567890124}'])
    assert one["id"] == 12345678901234567890123
    assert other["id"] == 12345678901234567890124


def test_numbers_with_a_fraction_or_an_exponent_are_doubles() -> None:
    for text, value in [("1.0", 1.0), ("1e2", 100.0), ("-0.0", -0.0), ("0.1000000000000000055", 0.1), ("1e-400", 0.0)]:
        assert same(loads(text.encode()), value)
        assert same(loads(f"[{text},{2**70}]".encode()), [value, 2**70])


@reader
@given(value=json_values, style=st.sampled_from([{"separators": (",", ":")}, {"indent": 1}, {"ensure_ascii": False}]))
def test_json_of_any_style_is_read_as_it_was_written(
    read: Callable[[bytes], Any], value: Any, style: dict[str, Any]
) -> None:
    assert same(read(json.dumps(value, **style).encode()), value)


@given(st.lists(json_values, max_size=5))
def test_many_are_read_as_one_by_one(values: list[Any]) -> None:
    raw = [json.dumps(value).encode() for value in values]
    assert same(loads_all(raw), [loads(one) for one in raw])
    many = raw * (1500 // max(1, len(raw)))
    assert same(loads_all(many), values * (1500 // max(1, len(raw))))


def test_text_that_looks_like_trouble_is_none() -> None:
    for text in ('{"a":"b\\":1,\\"b\\":1"}', '{"a":"\\u003a"}', '{"n":"-1234567890123456789012"}', '{"a" : {"a" :1}}'):
        assert same(loads(text.encode()), json.loads(text))
        assert same(_one_of_many(text.encode()), json.loads(text))


# -- out ----------------------------------------------------------------------------------------------------------


def _accepted(value: Any) -> bytes | None:
    try:
        data = dumps(value)
    except NotInFormat:
        return None
    return data


@given(anything)
def test_what_is_written_is_read_back_equal_or_refused(value: Any) -> None:
    data = _accepted(value)
    if data is not None:
        assert same(loads(data), value)
        assert dumps_all([{"a": None}, value])[1] == data


@given(json_values)
def test_all_that_json_has_is_written(value: Any) -> None:
    assert same(loads(dumps(value)), value)


@pytest.mark.parametrize("value", EVERYTHING, ids=shown)
def test_every_value_is_written_to_be_read_back_equal_or_refused_with_its_path(value: Any) -> None:
    data = _accepted(value)
    refused = value in NOT_FINITE or value in SURROGATES or type(value) not in (
        type(None), bool, int, float, str, list, dict
    )  # fmt: skip
    assert (data is None) >= refused
    if data is not None:
        assert same(loads(data), value)
        return
    with pytest.raises(NotInFormat, match=r"^value\['a'\]\[1\]"):
        dumps({"a": [None, value]})
    with pytest.raises(NotInFormat, match=r"^value\['a'\]\[1\]"):
        dumps_all([{"a": 1}, {"a": [None, value]}])


@pytest.mark.parametrize("value", [*NOT_FINITE, *OTHERS, *SURROGATES, {1: 2}, {"a": math.nan}], ids=shown)
def test_a_file_of_json_lines_refuses_what_would_be_changed(value: Any) -> None:
    with pytest.raises(RecordRefused, match=r"value\['x'\]"):
        json_lines([{"x": 1}, {"x": value}])


def test_the_error_says_what_to_do() -> None:
    with pytest.raises(NotInFormat, match=r"value\['rate'\] can't be written as JSON: nan is no number .* write None"):
        dumps({"id": 1, "rate": math.nan})


@settings(deadline=None)
@given(st.lists(json_values | st.just(",\n,") | st.just("\n"), min_size=1, max_size=7), st.integers(60, 200))
def test_many_are_written_as_one_by_one(values: list[Any], n: int) -> None:
    many = (values * n)[:n]
    assert dumps_all(many) == list(map(dumps, many))


@pytest.mark.parametrize("at", [0, 63, 64, 199])
def test_few_that_need_care_leave_the_others_as_they_are(at: int) -> None:
    values: list[Any] = [{"n": i} for i in range(200)]
    values[at] = {"n": 2**70}
    assert list(map(loads, dumps_all(values))) == values
    values[at] = {"n": math.nan}
    with pytest.raises(NotInFormat, match=r"value\['n'\] .* nan"):
        dumps_all(values)
    values[at] = orjson.Fragment(b"1,\n,2")
    with pytest.raises(NotInFormat, match="Fragment"):
        dumps_all(values)


def test_nothing_too_deep_is_written() -> None:
    value: Any = 1
    for _ in range(254):
        value = [value]
    assert same(loads(dumps(value)), value)
    with pytest.raises(NotInFormat, match="deeper than 254"):
        dumps([value])
    with pytest.raises(NotInFormat, match="deeper than 254"):
        dumps([[value]])


def test_an_integer_that_no_reader_would_take_is_refused() -> None:
    assert loads(dumps(2**1000)) == 2**1000
    with pytest.raises(NotInFormat, match="larger than readers take"):
        dumps(10**5000)


@given(value=json_values, key=json_values)
def test_what_a_kafka_sink_writes_a_kafka_source_reads(value: Any, key: Any) -> None:
    topics = TopicCatalog("localhost:1", {})
    topics._known["t"] = TopicLimits("t", 1, 1_000_000)
    options = RecordOptions("t", key=lambda record: record["k"], key_format="json")
    record = {"v": value, "k": key}

    def encode(options: RecordOptions, *records: Any) -> KafkaRows:
        batch = SinkBatch(list(records), [None] * len(records), [None] * len(records))
        return RecordEncoder(options, topics, "out").encode(batch)

    rows = encode(options, record)
    assert same(decoder("json", "value")(rows.values[0], "t"), record)
    assert rows.keys is not None
    assert key is None or same(decoder("json", "key")(rows.keys[0], "t"), key)
    with pytest.raises(KafkaRecordRefused, match=r"its value: .*value\['v'\] can't be written as JSON: nan"):
        encode(options, record, {"v": math.nan, "k": key})
    with pytest.raises(KafkaRecordRefused, match=r"its key: .*value can't be written as JSON: inf"):
        encode(RecordOptions("t", key=lambda r: math.inf), {"k": 1})


@pytest.mark.parametrize("value", EVERYTHING, ids=shown)
@pytest.mark.parametrize("kind", ["str", "bytes", "json"])
def test_plain_formats_write_what_is_read_back_equal_or_refuse_it(kind: Any, value: Any) -> None:
    topics = TopicCatalog("localhost:1", {})
    topics._known["t"] = TopicLimits("t", 1, 1_000_000)
    options = RecordOptions("t", key=lambda record: record, value_format=kind, key_format=kind)
    try:
        rows = RecordEncoder(options, topics, "out").encode(SinkBatch([value], [None], [None]))
    except KafkaRecordRefused as error:
        assert "its value" in str(error)  # noqa: PT017  # most are refused
        return
    for field, written in (("value", rows.values), ("key", rows.keys or [])):
        found = None if written[0] is None else decoder(kind, field)(written[0], "t")  # type: ignore[arg-type]
        assert same(found, value)


# -- columns ------------------------------------------------------------------------------------------------------


def test_columns_take_no_long_integer_for_a_float_and_no_key_twice() -> None:
    parse = ArrowJson(pa.schema([("id", pa.float64())])).parser()
    assert parse([b'{"id":9007199254740992}', b'{"id":1.5}']).to_pylist() == [{"id": 2.0**53}, {"id": 1.5}]
    for bad in (b'{"id":9007199254740993}', b'{"id":123456789012345678901}', b'{"id":1,"id":2}'):
        with pytest.raises((ValueError, OverflowError)):
            parse([bad])


def test_the_fast_way_is_taken_for_usual_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a change would slow every record, and no other test would see it."""
    usual = orjson.dumps(
        {"id": 2**63, "user": "c: 42", "amount": 12.5, "at": "2026-11-28T12:30:00Z", "ms": 1795867800000}
    )
    monkeypatch.setattr("formats.json_values._exact", None)
    monkeypatch.setattr("formats.json_values._dumps", None)
    for raw in (usual, json.dumps(json.loads(usual)).encode()):
        value = loads_all([raw] * 3)[2]
        assert value == json.loads(usual)
    assert dumps_all([value])[0] == usual
