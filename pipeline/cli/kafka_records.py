"""Kafka's records as lines of JSON, and back. No value changes on the way: what can't be told exactly is refused, or
shown as text. (Spaces between the parts of JSON are no part of a value.)

A line is a record's value, or the whole record:

    {"key": "ada", "value": {"amount": 3}, "headers": [["trace", "17"]], "partition": 0, "timestamp": 1700000000000}

A key, value or header that is no UTF-8 is in `key_base64`, `value_base64`, or `{"base64": …}`; a value that is text and
no JSON in `value_text`. A record without key or value has `null`. What is printed has `topic` and `offset`, too.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from checkpoint.options import is_whole

_MEMBERS: Final = (
    "key",
    "key_base64",
    "value",
    "value_text",
    "value_base64",
    "headers",
    "partition",
    "timestamp",
)
_OF_THE_LOG: Final = ("topic", "offset")
"""What a record has once it is in a topic; left out of account when it is put into another one."""


class BadLine(ValueError):
    """A line is no record; says why."""


@dataclass(frozen=True)
class Record:
    """What is to be produced."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    """`None` = by the key."""
    timestamp: int | None = None
    """ms since 1970; `None` = now."""


# -- lines to records -------------------------------------------------------------------------------------------


def from_value(line: str, key: str | None = None) -> Record:
    """The record whose value is the line itself, byte for byte.

    Args:
        key: field of the value to take the key from: text as it is, anything else as JSON.

    Raises:
        BadLine: it is no JSON, or has no such field.
    """
    text = line.strip()
    value = _parsed(text)
    if key is None:
        return Record(text.encode())
    if not isinstance(value, dict) or key not in value:
        raise BadLine(f"there is no field {key!r} to take the key from")
    found = value[key]
    return Record(text.encode(), None if found is None else _encoded(found if isinstance(found, str) else _json(found)))


def from_record(line: str) -> Record:
    """The record that the line describes.

    Raises:
        BadLine: it describes none; says which member is wrong.
    """
    told = _parsed(line)
    if not isinstance(told, dict):
        raise BadLine(f'a whole record is an object, such as {{"key": …, "value": …}}, not {line.strip()[:40]}')
    unknown = [name for name in told if name not in (*_MEMBERS, *_OF_THE_LOG)]
    if unknown:
        raise BadLine(f"a record has no member {unknown[0]!r}; it has {', '.join(_MEMBERS)}")
    values = [name for name in ("value", "value_text", "value_base64") if name in told]
    if len(values) != 1:
        raise BadLine("a record has one of value, value_text and value_base64 (value null: a tombstone)")
    if "key" in told and "key_base64" in told:
        raise BadLine("a record has key or key_base64, not both")
    return Record(
        _value(values[0], told),
        _key(told),
        _headers(told),
        _number("partition", told, 0),
        _number("timestamp", told, 1),  # 0 is none to Kafka's client
    )


def _value(member: str, told: Mapping[str, Any]) -> bytes | None:
    value = told[member]
    if member == "value":
        return None if value is None else _encoded(_json(value))
    return _encoded(_text(member, value)) if member == "value_text" else _bytes(member, value)


def _key(told: Mapping[str, Any]) -> bytes | None:
    if "key_base64" in told:
        return _bytes("key_base64", told["key_base64"])
    key = told.get("key")
    return None if key is None else _encoded(_text("key", key))


def _headers(told: Mapping[str, Any]) -> tuple[tuple[str, bytes | None], ...]:
    headers = told.get("headers", [])
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list) or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise BadLine('headers are an object, or a list of pairs: [["name", "text"], …]')
    return tuple((_header_name(name), _header(value)) for name, value in pairs)


def _header_name(name: Any) -> str:
    if b"\0" in _encoded(_text("a header's name", name)):
        raise BadLine(f"the name of header {_json(name)} has a NUL, at which Kafka's client cuts it off")
    return str(name)


def _header(value: Any) -> bytes | None:
    if isinstance(value, dict) and list(value) == ["base64"]:
        return _bytes("a header", value["base64"])
    return None if value is None else _encoded(_text("a header", value))


def _number(member: str, told: Mapping[str, Any], least: int) -> int | None:
    number = told.get(member)
    if number is not None and not (is_whole(number) and number >= least):
        raise BadLine(f"{member} is a whole number of at least {least}, not {number!r}")
    return number


def _text(member: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadLine(f"{member} is text, so in quotes, not {_json(value)}")
    return value


def _bytes(member: str, value: Any) -> bytes:
    try:
        return base64.b64decode(_text(member, value), validate=True)
    except binascii.Error as error:
        raise BadLine(f"{member} is no base64: {error}") from error


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadLine(f"half a surrogate pair, which no UTF-8 has: {error}") from error


def _parsed(line: str) -> Any:
    def refuse(constant: str) -> Any:
        raise BadLine(f"{constant} is no JSON")

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise BadLine("a field comes twice")
        return found

    try:
        return json.loads(line, parse_constant=refuse, parse_float=_float, object_pairs_hook=distinct)
    except RecursionError as error:
        raise BadLine("it is nested too deeply") from error
    except BadLine:
        raise
    except ValueError as error:  # also of an integer of more than 4,300 digits
        raise BadLine(f"it is no JSON: {error}") from error


def _float(text: str) -> float:
    number = float(text)
    try:
        exact = math.isfinite(number) and Decimal(repr(number)) == Decimal(text)
    except InvalidOperation:  # of an exponent that no Decimal has
        exact = False
    if not exact:
        raise BadLine(f"the number {text} has more digits than a float; write it as text")
    return number


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# -- records to lines -------------------------------------------------------------------------------------------


def to_line(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> str:
    """The whole record; `from_record` makes an equal one of it."""
    told: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset, "timestamp": timestamp}
    text = None if key is None else _decoded(key)
    if key is not None and text is None:
        told["key_base64"] = base64.b64encode(key).decode()
    else:
        told["key"] = text
    if headers:
        told["headers"] = [[name, _header_told(one)] for name, one in headers]
    return _json({**told, **_value_told(value)})


def _value_told(value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {"value": None}
    text = _decoded(value)
    if text is None:
        return {"value_base64": base64.b64encode(value).decode()}
    try:
        parsed = _parsed(text)
        _encoded(_json(parsed))
    except BadLine:
        return {"value_text": text}
    # The text null is not the same as no value.
    return {"value_text": text} if parsed is None else {"value": parsed}


def _header_told(value: bytes | None) -> Any:
    text = None if value is None else _decoded(value)
    return {"base64": base64.b64encode(value).decode()} if value is not None and text is None else text


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
