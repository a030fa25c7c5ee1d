"""What Avro's reader gives, with the names of records where a union has several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from checkpoint.shown import shown
from formats.avro_names import TYPE, VALUE, Names
from formats.errors import NotInFormat

Name = Callable[[Any], Any]
"""Takes what the reader made of a schema, in which records of unions are pairs of name and fields."""


def plain(value: Any) -> Any:
    """`value` without the names of records in unions in which they say nothing; containers are changed in place."""
    kind = type(value)
    if kind is dict:
        for name, item in value.items():
            if type(item) in _CONTAINERS:
                value[name] = plain(item)
    elif kind is list:
        value[:] = [plain(item) if type(item) in _CONTAINERS else item for item in value]
    elif kind is tuple:
        return plain(value[1])
    return value


_CONTAINERS: Final = frozenset({dict, list, tuple})


def namer(schema: Any) -> Name | None:
    """Puts the names of records into them where a union has several, or a map beside; `None` if none has."""
    return _Namer().compile(schema, "")


class _Namer:
    def __init__(self) -> None:
        self._names = Names()
        self._compiled: dict[str, Name | None] = {}

    def compile(self, schema: Any, namespace: str) -> Name | None:
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if isinstance(schema, str):
            return self._compiled.get(self._names.full(schema, namespace))
        kind = schema.get("type")
        if kind == "record":
            return self._record(schema, namespace)
        if kind in ("enum", "fixed"):
            self._names.add(schema, namespace)
        if kind == "array":
            items = self.compile(schema["items"], namespace)
            return None if items is None else lambda value: [items(one) for one in value]
        if kind == "map":
            values = self.compile(schema["values"], namespace)
            return None if values is None else lambda value: {name: values(one) for name, one in value.items()}
        return self.compile(kind, namespace) if isinstance(kind, dict | list) else None

    def _record(self, schema: Any, namespace: str) -> Name | None:
        full, namespace = self._names.add(schema, namespace)
        fields: dict[str, Name] = {}

        def name(value: Any) -> Any:
            for field, one in fields.items():
                if (content := value.get(field)) is not None:
                    value[field] = one(content)
            return value

        self._compiled[full] = name  # before its fields are: a record may contain itself
        for field in schema["fields"]:
            if (compiled := self.compile(field["type"], namespace)) is not None:
                fields[field["name"]] = compiled
        if all(one is name for one in fields.values()):
            self._compiled[full] = None
            return None
        return name

    def _union(self, branches: list[Any], namespace: str) -> Name | None:
        compiled = {self._names.of(branch, namespace): self.compile(branch, namespace) for branch in branches}
        dicts = [one for one in compiled if one == "map" or self._names.may_be_record(one)]
        several = len(dicts) > 1
        if not several and not any(compiled.values()):
            return None
        lists, maps = compiled.get("array"), compiled.get("map")

        def name(value: Any) -> Any:
            if type(value) is tuple:
                full, fields = value
                inner = compiled.get(full)
                fields = fields if inner is None else inner(fields)
                return {TYPE: full, **fields} if several and type(fields) is dict else fields
            if type(value) is dict:
                if several and TYPE in value:
                    value = {TYPE: "map", VALUE: value if maps is None else maps(value)}
                return value if maps is None else maps(value)
            return lists(value) if type(value) is list and lists is not None else value

        return name


def check_name(full: Any, names: Mapping[str, Any], path: str) -> str:
    """The branch of a union that is meant by `full`, a full name or the last part of one.

    Raises:
        NotInFormat: no type of the union fits, or several do.
    """
    found = [name for name in names if name.rpartition(".")[2] == full]
    if isinstance(full, str) and full in names:
        return full
    if len(found) != 1:
        raise NotInFormat(
            f"{path} is to be {shown(full)}, which is no branch of the union of {', '.join(map(repr, names))}"
        )
    return found[0]
