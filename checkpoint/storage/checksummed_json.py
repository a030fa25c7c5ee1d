"""JSON documents that carry their own checksum."""

from __future__ import annotations

import base64
import re
from typing import Any, Final

import orjson
import xxhash

from checkpoint.counted import counted

_HEAD: Final = b'{"checksum":"%s",'
_HEAD_PATTERN: Final = re.compile(rb'\{"checksum":"([0-9a-f]{32})",')


class ChecksumMismatch(ValueError):
    """The document is truncated or altered."""


def dumps(document: dict[str, Any]) -> bytes:
    """`document` as one JSON object whose first member, `checksum`, is the xxh3_128 of all bytes that follow it.

    Bytes values become base64. `document` must have a member and none called `checksum`.

    Raises:
        TypeError: a value that JSON can't carry.
    """
    body = orjson.dumps(document, default=_default)[1:]
    return _HEAD % xxhash.xxh3_128(body).hexdigest().encode() + body


def loads(data: bytes) -> dict[str, Any]:
    """The document with its checksum verified.

    Raises:
        ChecksumMismatch: says what is wrong.
    """
    head = _HEAD_PATTERN.match(data)
    if head is None:
        raise ChecksumMismatch(f"truncated or altered: {counted(len(data), 'byte')} that don't start with a checksum")
    expected, actual = head[1].decode(), xxhash.xxh3_128(data[head.end() :]).hexdigest()
    if actual != expected:
        raise ChecksumMismatch(
            f"truncated or altered: its checksum should be {expected} and is {actual} ({counted(len(data), 'byte')})"
        )
    document: dict[str, Any] = orjson.loads(data)
    return document


def _default(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"a {type(value).__name__} can't be written as JSON")
