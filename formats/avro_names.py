"""Names of Avro's types, and how a value says which branch of a union it is."""

from __future__ import annotations

from typing import Any, Final

TYPE: Final = "-type"
"""In a record of a union: which one it is. No field can be called so."""
VALUE: Final = "-value"
"""Beside `TYPE`: the value, of a branch that is no record."""
PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class Names:
    """The types that a schema has defined so far."""

    def __init__(self) -> None:
        self._others: set[str] = set()
        """Those that are no records."""

    def add(self, schema: Any, namespace: str) -> tuple[str, str]:
        """The full name of a record, enum or fixed, and the namespace within."""
        name = schema["name"]
        if "." in name:
            namespace = name.rpartition(".")[0]
        else:
            namespace = schema.get("namespace") or namespace
            name = f"{namespace}.{name}" if namespace else name
        if schema.get("type") != "record":
            self._others.add(name)
        return name, namespace

    def may_be_record(self, full: str) -> bool:
        """Whether a branch is a record, or is defined in another schema and may be one."""
        return full not in PRIMITIVES and full != "array" and full != "map" and full not in self._others

    def full(self, name: str, namespace: str) -> str:
        if name in PRIMITIVES or name in ("array", "map") or "." in name or not namespace:
            return name
        return f"{namespace}.{name}"

    def of(self, branch: Any, namespace: str) -> str:
        """What a branch of a union is called: the full name of a named type, else its type."""
        if isinstance(branch, str):
            return self.full(branch, namespace)
        kind = branch["type"]
        if isinstance(kind, dict):
            return self.of(kind, namespace)
        return self.add(branch, namespace)[0] if kind in ("record", "enum", "fixed") else self.full(kind, namespace)
