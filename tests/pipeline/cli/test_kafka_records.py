"""Kafka's records as lines of JSON: what goes out comes back, and what can't is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cli.kafka_records import BadLine, Record, from_record, from_value, to_line

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
DATA = st.none() | st.binary() | st.text().map(str.encode) | VALUES.map(lambda value: json.dumps(value).encode())


@given(DATA, DATA, st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0")), DATA)))
def test_a_whole_record_comes_back_from_its_line(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = to_line("t", 3, 17, 5, key, value, headers)
    assert "\n" not in line
    back = from_record(line)
    assert (back.key, back.headers, back.partition, back.timestamp) == (key, tuple(headers), 3, 5)
    if back.value != value:
        # JSON with other spaces, or another spelling of the same number or letter.
        assert value is not None
        assert back.value is not None
        before, after = json.loads(value), json.loads(back.value)
        assert (repr(before), type(before)) == (repr(after), type(after))


@given(VALUES.filter(lambda value: value is not None))
def test_a_value_is_sent_as_it_is_written(value: object) -> None:
    line = json.dumps(value)
    assert from_value(line + "\n") == Record(line.encode())


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b'{"a": 1}', {"value": {"a": 1}}),
        (b"12345678901234567890123", {"value": 12345678901234567890123}),
        (b"0.1234567890123456789", {"value_text": "0.1234567890123456789"}),
        (b"1e999", {"value_text": "1e999"}),
        (b"1e-999", {"value_text": "1e-999"}),
        (b"1e-99999999999999999999", {"value_text": "1e-99999999999999999999"}),
        (b"1" * 5000, {"value_text": "1" * 5000}),
        (b"NaN", {"value_text": "NaN"}),
        (b'{"a":1,"a":2}', {"value_text": '{"a":1,"a":2}'}),
        (b'"\\ud800"', {"value_text": '"\\ud800"'}),
        (b"null", {"value_text": "null"}),
        (None, {"value": None}),
        (b"plain", {"value_text": "plain"}),
        (b"\xff\x00", {"value_base64": "/wA="}),
    ],
)
def test_what_json_cannot_tell_exactly_is_shown_as_text(value: bytes | None, shown: dict[str, object]) -> None:
    told = json.loads(to_line("t", 0, 0, None, None, value, []))
    assert {name: told[name] for name in told if name.startswith("value")} == shown


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"user": "ada", "n": 1}', b"ada"),
        ('{"user": 17}', b"17"),
        ('{"user": null}', None),
        ('{"user": ["a", 1]}', b'["a",1]'),
    ],
)
def test_a_key_is_taken_from_a_field(line: str, expected: bytes | None) -> None:
    assert from_value(line, "user") == Record(line.encode(), expected)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "no JSON"),
        ("[1]", "a whole record is an object"),
        ('{"key": "a"}', "one of value, value_text and value_base64"),
        ('{"value": 1, "value_text": "1"}', "one of value, value_text and value_base64"),
        ('{"value": 1, "key": 17}', "key is text, so in quotes, not 17"),
        ('{"value": 1, "key": "a", "key_base64": "YQ=="}', "key or key_base64, not both"),
        ('{"value_base64": "?"}', "value_base64 is no base64"),
        ('{"value": 1, "headers": [["a"]]}', "headers are an object, or a list of pairs"),
        ('{"value": 1, "headers": {"a": 1}}', "a header is text, so in quotes, not 1"),
        ('{"value": 1, "partition": -1}', "partition is a whole number of at least 0"),
        ('{"value": 1, "timestamp": true}', "timestamp is a whole number"),
        ('{"value": 1, "timestamp": 0}', "timestamp is a whole number of at least 1"),
        ('{"value": 1, "headers": [["a\\u0000b", "1"]]}', r'header "a\\u0000b" has a NUL'),
        ('{"value": 1, "headers": {"\\ud800": "1"}}', "half a surrogate pair"),
        ('{"value": 1, "vlaue": 2}', "no member 'vlaue'"),
        ('{"value": NaN}', "NaN is no JSON"),
        ('{"value": 0.1234567890123456789}', "more digits than a float"),
        ('{"value": 1e-99999999999999999999}', "more digits than a float"),
        (f'{{"value": {"1" * 5000}}}', "no JSON: Exceeds the limit"),
        ('{"value": {"a": 1, "a": 2}}', "a field comes twice"),
        ('{"value": "\\ud800"}', "half a surrogate pair"),
    ],
)
def test_a_line_that_is_no_record_says_why(line: str, message: str) -> None:
    with pytest.raises(BadLine, match=message):
        from_record(line)


def test_a_key_that_is_not_there_is_named() -> None:
    with pytest.raises(BadLine, match="no field 'usr' to take the key from"):
        from_value('{"user": 1}', "usr")
