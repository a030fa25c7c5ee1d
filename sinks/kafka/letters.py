"""The sink for records that a step has failed on, as dead letters (see `formats.letters`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from checkpoint.codec import encode
from formats import NotInFormat, letters
from formats.json_values import dumps
from sinks.kafka.sink import KafkaSink


class LetterSink(KafkaSink):
    """Takes what `stream.errors()` gives. Exactly once, like any Kafka sink: a letter is part of its epoch."""

    def __init__(self, servers: str, topic: str, pipeline: str, config: Mapping[str, Any]) -> None:
        super().__init__(servers, topic, value_format="bytes", config=config)
        self._records = replace(self._records, value=_value, key=_key, headers=partial(_headers, pipeline))

    def __repr__(self) -> str:
        return f"dead letters to {self.topic!r}"


def _value(letter: Mapping[str, Any]) -> bytes | None:
    return _content(letter)[1]


def _content(letter: Mapping[str, Any]) -> tuple[str, bytes | None]:
    """What the value is, and the value."""
    original = letter["original"]
    if original is not None:
        return "source", original["value"]
    if "record" not in letter:
        return "none", None
    try:
        return "json", dumps(letter["record"])
    except NotInFormat:
        return "msgpack", encode(letter["record"])


def _key(letter: Mapping[str, Any]) -> Any:
    original = letter["original"]
    if original is not None:
        return original["key"]
    key = letter["key"]
    if type(key) is str:
        return key.encode(errors="backslashreplace")  # a letter is written whatever the record is
    return key if key is None or type(key) is bytes else _text(key).encode()


def _headers(pipeline: str, letter: Mapping[str, Any]) -> letters.Headers:
    original = letter["original"]
    told: dict[str, Any] = {
        letters.REASON: letter["reason"],
        letters.ERROR: letter["error"],
        letters.TRACEBACK: letter["traceback"],
        letters.PIPELINE: pipeline,
        letters.STEP: letter["step"],
        letters.SUBTASK: letter["subtask"],
        letters.TIME: letter["timestamp"],
        letters.VALUE: _content(letter)[0],
    }
    if letter["key"] is not None:
        told[letters.KEY] = _text(letter["key"])
    if letter["timer"] is not None:
        told[letters.TIMER] = letter["timer"]
    if original is None:
        return letters.told_headers(told)
    told |= {
        letters.TOPIC: original["topic"],
        letters.PARTITION: original["partition"],
        letters.OFFSET: original["offset"],
        letters.TIMESTAMP: original["timestamp"],
    }
    own = [(name, value) for name, value in original["headers"]]
    return [*own, *letters.told_headers(told)]


def _text(value: Any) -> str:
    """For tools: JSON where it is that, else as Python writes it."""
    try:
        return dumps(value).decode()
    except NotInFormat:
        return repr(value)
