"""Avro's logical types as values that travel between steps, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

Restore = Callable[[Any], Any]

_TEXT: Mapping[type, Callable[[Any], str]] = {
    Decimal: "{:f}".format,
    date: date.isoformat,
    time: time.isoformat,
    UUID: str,
}


def plain(value: Any) -> Any:
    """`value` as msgpack can carry it; containers are changed in place."""
    kind = type(value)
    if kind is dict:
        for name, item in value.items():
            if type(item) not in _AS_IT_IS:
                value[name] = plain(item)
    elif kind is list:
        value[:] = [item if type(item) in _AS_IT_IS else plain(item) for item in value]
    elif kind is tuple:
        return [plain(item) for item in value]
    elif kind is datetime:
        return value if value.tzinfo is not None else value.isoformat()
    elif (text := _TEXT.get(kind)) is not None:
        return text(value)
    return value


_AS_IT_IS = frozenset({str, int, float, bool, bytes, type(None)})


def restorer(schema: Any) -> Restore | None:
    """Turns what `plain` gave back into what fastavro writes; `None` if nothing in `schema` needs it. Copies."""
    return _Compiler().compile(schema, "")


def _parsed(parse: Callable[[str], Any]) -> Restore:
    return lambda value: parse(value) if type(value) is str else value


_LOGICAL: Mapping[str, Restore] = {
    "decimal": _parsed(Decimal),
    "date": _parsed(date.fromisoformat),
    "time-millis": _parsed(time.fromisoformat),
    "time-micros": _parsed(time.fromisoformat),
    "timestamp-millis": _parsed(datetime.fromisoformat),
    "timestamp-micros": _parsed(datetime.fromisoformat),
    "local-timestamp-millis": _parsed(datetime.fromisoformat),
    "local-timestamp-micros": _parsed(datetime.fromisoformat),
}


def _array(item: Restore | None) -> Restore | None:
    return None if item is None else lambda value: [item(one) for one in value]


def _map(item: Restore | None) -> Restore | None:
    return None if item is None else lambda value: {name: item(one) for name, one in value.items()}


class _Compiler:
    def __init__(self) -> None:
        self._named: dict[str, Restore | None] = {}

    def compile(self, schema: Any, namespace: str) -> Restore | None:
        if isinstance(schema, str):
            return self._named.get(schema) or self._named.get(f"{namespace}.{schema}")
        if isinstance(schema, list):
            return self._union(schema, namespace)
        logical = _LOGICAL.get(schema.get("logicalType", ""))
        if logical is not None:
            return logical
        kind = schema.get("type")
        if kind == "record":
            return self._record(schema, namespace)
        if kind == "array":
            return _array(self.compile(schema["items"], namespace))
        if kind == "map":
            return _map(self.compile(schema["values"], namespace))
        return self.compile(kind, namespace) if isinstance(kind, dict | list) else None

    def _record(self, schema: Any, namespace: str) -> Restore | None:
        namespace = schema.get("namespace", namespace)
        fields: dict[str, Restore] = {}

        def restore(value: Any) -> Any:
            if not isinstance(value, Mapping):
                return value
            changed = {name: field(value[name]) for name, field in fields.items() if value.get(name) is not None}
            return {**value, **changed}

        # A record may contain itself, so it is known before its fields are.
        names = {schema["name"], f"{namespace}.{schema['name']}"}
        self._named.update(dict.fromkeys(names, restore))
        for field in schema["fields"]:
            if (compiled := self.compile(field["type"], namespace)) is not None:
                fields[field["name"]] = compiled
        if all(field is restore for field in fields.values()):
            self._named.update(dict.fromkeys(names, None))
            return None
        return restore

    def _union(self, branches: list[Any], namespace: str) -> Restore | None:
        """The branch of a str is known only if no branch takes it as it is."""
        compiled = [one for one in (self.compile(branch, namespace) for branch in branches) if one is not None]
        if not compiled:
            return None
        takes_text = any(branch == "string" or (isinstance(branch, dict) and _is_text(branch)) for branch in branches)

        def restore(value: Any) -> Any:
            if value is None or (takes_text and type(value) is str):
                return value
            for one in compiled:
                value = one(value)
            return value

        return restore


def _is_text(branch: dict[str, Any]) -> bool:
    return branch.get("type") in ("string", "enum") and branch.get("logicalType") not in _LOGICAL
