"""What a test gives with a record that comes from a source: `ctx` tells it to the steps that are chained to that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from checkpoint.options import nearest


class SourceFields(TypedDict, total=False):
    """What a Kafka source tells of a record."""

    topic: str
    partition: int
    offset: int
    headers: Sequence[tuple[str, bytes | None]]
    kafka_key: Any


def check_source_fields(given: Mapping[str, Any]) -> None:
    known = SourceFields.__annotations__
    for name in given:
        if name not in known:
            hint = nearest(name, ["value", "key", "timestamp", *known])
            raise TypeError(f"there is no {name!r}: give key, timestamp, {', '.join(known)}{hint}")


class SourceRecord:
    """What `ctx` tells of a record that came from a source."""

    def __init__(self, fields: SourceFields) -> None:
        self._fields: dict[str, Any] = dict(fields)
        if "headers" in fields:
            self._fields["headers"] = list(fields["headers"])

    def __getattr__(self, name: str) -> Any:
        if name in SourceFields.__annotations__ and name in self._fields:
            return self._fields[name]
        raise AttributeError(f"ctx.{name} is not known of this record: give it with the record, {name}=…")
