"""Values for Avro's writer, checked.

fastavro would cut 1.5 to an int, take "no" for true, leave out fields that a record doesn't have, and write a record of
a union as another one. A checked value is what fastavro takes, with the branches of unions by name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from checkpoint.counted import counted
from checkpoint.shown import shown
from formats.avro_names import PRIMITIVES, TYPE, VALUE, Names
from formats.avro_values import check_name
from formats.errors import NotInFormat

Check = Callable[[Any, str], Any]
"""Takes a value and the path to it; returns it as fastavro takes it.

Raises:
    NotInFormat: it would not be read back equal.
"""
_RANGES: Final = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}
_MILLI: Final = 1000
_EXACT, _NARROWER, _CONVERTED, _ROUNDED = range(4)
"""How well a branch of a union fits a value. Narrower are symbols, bytes of a fixed length, and float beside double;
converted are ints for a double."""


def checker(schema: Any, round_floats: bool) -> Check:
    """Checks values against a schema that is given as Python objects."""
    return _Compiler(round_floats).compile(schema, "")


def _refuse(path: str, value: Any, what: str) -> NotInFormat:
    return NotInFormat(f"{path} is {shown(value)}, of type {type(value).__qualname__}, where the schema has {what}")


def _of_type(kind: type, what: str) -> Check:
    def check(value: Any, path: str) -> Any:
        if type(value) is not kind:
            raise _refuse(path, value, what)
        return value

    return check


def _null(value: Any, path: str) -> Any:
    if value is not None:
        raise _refuse(path, value, "null")


def _integer(kind: str) -> Check:
    low, high = _RANGES[kind]

    def check(value: Any, path: str) -> Any:
        if type(value) is not int or not low <= value <= high:
            raise _refuse(path, value, kind)
        return value

    return check


def _double(value: Any, path: str) -> Any:
    if type(value) is float or (type(value) is int and -(2**53) <= value <= 2**53):
        return value
    raise _refuse(path, value, "double")


def _float(round_floats: bool) -> Check:
    def check(value: Any, path: str) -> Any:
        number = _double(value, path)
        try:
            (back,) = struct.unpack("<f", struct.pack("<f", number))
        except OverflowError as error:
            raise _refuse(path, value, "float, for which it is too large") from error
        if back == number or round_floats or number != number:
            return value
        raise _refuse(
            path,
            value,
            "float, which doesn't hold it exactly. Make the field a double, or let floats be rounded with "
            "Avro(…, round_floats=True)",
        )

    return check


def _string(value: Any, path: str) -> Any:
    if type(value) is not str:
        raise _refuse(path, value, "string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _refuse(path, value, "string: it holds lone surrogates and is no valid Unicode") from error
    return value


def _date(value: Any, path: str) -> Any:
    if type(value) is not date:
        raise _refuse(path, value, "a date")
    return value


def _time(millis: bool) -> Check:
    what = f"a time without an offset, in {'milli' if millis else 'micro'}seconds"

    def check(value: Any, path: str) -> Any:
        if type(value) is not time or value.tzinfo is not None or (millis and value.microsecond % _MILLI):
            raise _refuse(path, value, what)
        return value

    return check


def _timestamp(local: bool, millis: bool) -> Check:
    what = f"a datetime {'without' if local else 'with'} an offset, in {'milli' if millis else 'micro'}seconds"

    def check(value: Any, path: str) -> Any:
        if type(value) is not datetime or (value.utcoffset() is None) is not local:
            raise _refuse(path, value, what)
        try:
            found = value if local else value.astimezone(UTC)
        except OverflowError as error:
            raise _refuse(path, value, f"{what}, between the years 1 and 9999 in UTC") from error
        if millis and found.microsecond % _MILLI:  # of an offset, too
            raise _refuse(path, value, what)
        return found

    return check


def _decimal(precision: int, scale: int) -> Check:
    what = f"a decimal of {counted(precision, 'digit')}, {scale} of them behind the point"

    def check(value: Any, path: str) -> Any:
        if type(value) is not Decimal:
            raise _refuse(path, value, what)
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int) or (exponent < -scale and any(digits[exponent + scale :])):
            raise _refuse(path, value, what)
        if len(digits) + exponent + scale > precision and any(digits):
            raise _refuse(path, value, what)
        if not any(digits):
            return Decimal(0)  # of the negative zero fastavro makes -2 in a fixed
        return Decimal((sign, digits[: exponent + scale], -scale)) if exponent < -scale else value

    return check


_LOGICAL: Final[Mapping[str, Check]] = {
    "int-date": _date,
    "int-time-millis": _time(True),
    "long-time-micros": _time(False),
    "long-timestamp-millis": _timestamp(False, True),
    "long-timestamp-micros": _timestamp(False, False),
    "long-local-timestamp-millis": _timestamp(True, True),
    "long-local-timestamp-micros": _timestamp(True, False),
    "string-uuid": _of_type(UUID, "a UUID"),
}
"""Those that fastavro converts; it leaves all others as they are."""


class _Compiler:
    def __init__(self, round_floats: bool) -> None:
        self._names = Names()
        self._checks: dict[str, Check] = {
            "null": _null,
            "boolean": _of_type(bool, "boolean"),
            "int": _integer("int"),
            "long": _integer("long"),
            "float": _float(round_floats),
            "double": _double,
            "bytes": _of_type(bytes, "bytes"),
            "string": _string,
        }
        """By name; those of named types, too."""
        self._named: dict[str, str] = {}
        """The kinds of named types."""

    def compile(self, schema: Any, namespace: str) -> Check:
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if isinstance(schema, str):
            return self._reference(self._names.full(schema, namespace))
        kind, logical = schema["type"], schema.get("logicalType")
        if kind == "bytes" and logical == "decimal":
            return _decimal(schema["precision"], schema.get("scale", 0))
        if isinstance(kind, str) and (found := _LOGICAL.get(f"{kind}-{logical}")) is not None:
            return found
        if kind == "record":
            return self._record(schema, namespace)
        if kind == "enum":
            return self._enum(schema, namespace)
        if kind == "fixed":
            return self._fixed(schema, namespace)
        if kind == "array":
            return self._array(schema, namespace)
        if kind == "map":
            return self._map(schema, namespace)
        return self.compile(kind, namespace)

    def _reference(self, full: str) -> Check:
        """The check of a type that may just be being compiled, since a record may contain itself."""
        checks = self._checks
        if full in PRIMITIVES:
            return checks[full]
        # What a schema only refers to is defined in another one, of which fastavro knows.
        return lambda value, path: checks[full](value, path) if full in checks else value

    def _enum(self, schema: Any, namespace: str) -> Check:
        full, _ = self._names.add(schema, namespace)
        symbols, what = frozenset(schema["symbols"]), f"the enum {full} of {', '.join(schema['symbols'])}"

        def check(value: Any, path: str) -> Any:
            if type(value) is not str or value not in symbols:
                raise _refuse(path, value, what)
            return value

        return self._keep(full, "enum", check)

    def _fixed(self, schema: Any, namespace: str) -> Check:
        full, _ = self._names.add(schema, namespace)
        size = schema["size"]

        if schema.get("logicalType") == "decimal":
            return self._keep(full, "fixed", _decimal(schema["precision"], schema.get("scale", 0)))

        def check(value: Any, path: str) -> Any:
            if type(value) is not bytes or len(value) != size:
                raise _refuse(path, value, f"{full}, {counted(size, 'byte')}")
            return value

        return self._keep(full, "fixed", check)

    def _keep(self, full: str, kind: str, check: Check) -> Check:
        self._checks[full], self._named[full] = check, kind
        return check

    def _array(self, schema: Any, namespace: str) -> Check:
        items = self.compile(schema["items"], namespace)

        def check(value: Any, path: str) -> Any:
            if type(value) is not list:
                raise _refuse(path, value, "an array, which is a list")
            return [items(one, f"{path}[{i}]") for i, one in enumerate(value)]

        return check

    def _map(self, schema: Any, namespace: str) -> Check:
        values = self.compile(schema["values"], namespace)

        def check(value: Any, path: str) -> Any:
            if type(value) is not dict:
                raise _refuse(path, value, "a map, which is a dict")
            return {_string(name, f"a key of {path}"): values(one, f"{path}[{name!r}]") for name, one in value.items()}

        return check

    def _record(self, schema: Any, namespace: str) -> Check:
        full, namespace = self._names.add(schema, namespace)
        fields: dict[str, Check] = {}
        needed: list[str] = []

        def check(value: Any, path: str) -> Any:
            if type(value) is not dict:
                raise _refuse(path, value, f"the record {full}, which is a dict")
            found = {}
            for name, item in value.items():
                field = fields.get(name)
                if field is None or type(name) is not str:
                    if name == TYPE and check_name(item, {full: None}, path):
                        continue
                    raise NotInFormat(
                        f"{path} has the field {shown(name)}, which the record {full} of the schema has not"
                    )
                found[name] = field(item, f"{path}[{name!r}]")
            for name in needed:
                if name not in found:
                    raise NotInFormat(f"{path} has no field {name!r}, for which the record {full} has no default")
            return found

        self._keep(full, "record", check)
        for field in schema["fields"]:
            fields[field["name"]] = self.compile(field["type"], namespace)
            if "default" not in field:
                needed.append(field["name"])
        return check

    def _union(self, branches: list[Any], namespace: str) -> Check:
        found = {self._names.of(branch, namespace): self.compile(branch, namespace) for branch in branches}
        if len(found) == 2 and "null" in found:
            ((only, other),) = ((name, check) for name, check in found.items() if name != "null")
            # Named, since fastavro would not find the branch of an array whose items are named.
            return lambda value, path: None if value is None else (only, other(value, path))
        kinds = {name: self._named.get(name, name) for name in found}

        def named(name: str, value: Any, path: str) -> Any:
            branch = check_name(name, found, path)
            return branch, found[branch](value, path)

        def check(value: Any, path: str) -> Any:
            if type(value) is tuple and len(value) == 2:  # as fastavro has it
                return named(value[0], value[1], path)
            if type(value) is dict and TYPE in value:
                if VALUE in value and len(value) == 2:
                    return named(value[TYPE], value[VALUE], path)
                return named(value[TYPE], {name: one for name, one in value.items() if name != TYPE}, path)
            fits: dict[int, list[tuple[str, Any]]] = {}
            reasons = []
            for name, branch in found.items():
                try:
                    made = branch(value, path)
                except NotInFormat as error:
                    reasons.append(str(error))
                else:
                    fits.setdefault(_fit(kinds[name], value, made), []).append((name, made))
            if not fits:
                raise NotInFormat(f"{path} fits no branch of the union of {', '.join(found)}: {'; '.join(reasons)}")
            best = fits[min(fits)]
            if len(best) > 1 and best[0][0] not in PRIMITIVES:
                raise _ambiguous(path, value, [name for name, _ in best])
            return best[0]

        return check


def _fit(kind: str, value: Any, made: Any) -> int:
    if type(value) is int and kind in ("float", "double"):
        return _CONVERTED if kind == "double" else _ROUNDED
    return _NARROWER if kind in ("enum", "fixed", "float") else _EXACT


def _ambiguous(path: str, value: Any, names: list[str]) -> NotInFormat:
    way = f'{{"{TYPE}": {names[0]!r}, …}}' if type(value) is dict else f'{{"{TYPE}": {names[0]!r}, "{VALUE}": …}}'
    return NotInFormat(
        f"{path} fits several branches of a union, {' and '.join(names)}; say which one it is: {way}, as a source does"
    )
