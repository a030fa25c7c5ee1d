"""Protobuf messages as plain values, and back, without loss.

| field                         | value                                                                     |
|-------------------------------|---------------------------------------------------------------------------|
| scalar                        | bool, int, float, str, bytes; if the message has none, the default        |
| scalar that tells presence    | `None` if the message has none (`optional`, members of a `oneof`)         |
| message                       | dict, or `None`                                                           |
| enum                          | its name as str; a number that has none as int                            |
| repeated                      | list                                                                      |
| map                           | dict                                                                      |

A sink takes these, and only what is read back equal: of a oneof one member, no `None` where presence isn't told. A
double takes int up to 2**53, a float what it holds exactly.

Well-known types are messages as any other: a Timestamp is `{"seconds": …, "nanos": …}`.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, Final

from checkpoint.shown import shown
from formats.errors import NotInFormat


def to_plain(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        name = field.name
        if _is_map(field):
            value_of = field.message_type.fields_by_name["value"]
            found[name] = {key: _plain(value_of, item) for key, item in getattr(message, name).items()}
        elif _is_repeated(field):
            found[name] = [_plain(field, item) for item in getattr(message, name)]
        elif field.has_presence and not message.HasField(name):
            found[name] = None
        else:
            found[name] = _plain(field, getattr(message, name))
    return found


def from_plain(message: Any, value: Any, round_floats: bool = False, path: str = "value") -> Any:
    """`message`, filled.

    Args:
        round_floats: whether a field of type float takes what it holds only rounded.

    Raises:
        NotInFormat: `value` is no dict, has a field that the message has not, two of a oneof, or one whose value would
            not be read back equal.
    """
    full_name = message.DESCRIPTOR.full_name
    if type(value) is not dict:
        raise _refuse(path, value, f"the message {full_name}, which is a dict")
    fields = message.DESCRIPTOR.fields_by_name
    chosen: dict[str, str] = {}
    for name, content in value.items():
        field = fields.get(name) if type(name) is str and name.isascii() else None
        if field is None:
            raise NotInFormat(f"{path}: {full_name} has no field {shown(name)}")
        at = f"{path}[{name!r}]"
        if content is None:
            if not field.has_presence:
                raise NotInFormat(
                    f"{at} is None, but {full_name} can't tell that from its default; leave the field out"
                )
            continue
        oneof = field.containing_oneof
        if oneof is not None and (other := chosen.setdefault(oneof.name, name)) != name:
            raise NotInFormat(
                f"{path} has {other!r} and {name!r}, of which {full_name} holds one only (oneof {oneof.name})"
            )
        try:
            _set(message, field, content, round_floats, at)
        except (TypeError, ValueError, AttributeError) as error:
            if isinstance(error, NotInFormat):
                raise
            raise _refuse(at, content, f"{_kind(field)}: {error}") from error
    return message


def _set(message: Any, field: Any, content: Any, round_floats: bool, path: str) -> None:
    name = field.name
    if _is_map(field):
        if type(content) is not dict:
            raise _refuse(path, content, "a map, which is a dict")
        target = getattr(message, name)
        key_of, value_of = (field.message_type.fields_by_name[part] for part in ("key", "value"))
        for key, item in content.items():
            key = _scalar(key_of, key, round_floats, f"a key of {path}")
            if value_of.message_type is not None:
                from_plain(target[key], item, round_floats, f"{path}[{key!r}]")
            else:
                target[key] = _scalar(value_of, item, round_floats, f"{path}[{key!r}]")
    elif _is_repeated(field):
        if type(content) is not list:
            raise _refuse(path, content, "repeated values, which are a list")
        target = getattr(message, name)
        for i, item in enumerate(content):
            if field.message_type is not None:
                from_plain(target.add(), item, round_floats, f"{path}[{i}]")
            else:
                target.append(_scalar(field, item, round_floats, f"{path}[{i}]"))
    elif field.message_type is not None:
        target = getattr(message, name)
        target.SetInParent()
        from_plain(target, content, round_floats, path)
    else:
        setattr(message, name, _scalar(field, content, round_floats, path))


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return to_plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


def _scalar(field: Any, value: Any, round_floats: bool, path: str) -> Any:
    """What protobuf takes; it checks ranges itself, but takes a bool for an int, bytes for text, and rounds."""
    kind = type(value)
    if field.enum_type is not None:
        return _enum(field.enum_type, value, path)
    if field.cpp_type == field.CPPTYPE_FLOAT:
        return _float(value, round_floats, path)
    if field.cpp_type == field.CPPTYPE_DOUBLE and kind is int and -(2**53) <= value <= 2**53:
        return value
    if kind is not _PYTHON.get(_kind(field), int):
        raise _refuse(path, value, _kind(field))
    return value


def _enum(enum: Any, value: Any, path: str) -> int:
    if type(value) is str and value.isascii() and (known := enum.values_by_name.get(value)) is not None:
        if enum.values_by_number[known.number].name != value:
            raise _refuse(path, value, f"the enum {enum.full_name}, where it is another name of the same number")
        return int(known.number)
    if type(value) is int and value not in enum.values_by_number:
        return value
    raise _refuse(path, value, f"the enum {enum.full_name} of {', '.join(enum.values_by_name)}")


def _float(value: Any, round_floats: bool, path: str) -> Any:
    if type(value) is not float and (type(value) is not int or abs(value) > 2**24):
        raise _refuse(path, value, "float")
    try:
        (back,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError as error:
        raise _refuse(path, value, "float, for which it is too large") from error
    if back == value or value != value or round_floats:
        return value
    raise _refuse(
        path,
        value,
        "float, which doesn't hold it exactly. Make the field a double, or let floats be rounded with "
        "Protobuf(…, round_floats=True)",
    )


_PYTHON: Final = {"bool": bool, "double": float, "string": str, "bytes": bytes}


def _kind(field: Any) -> str:
    """As .proto files call it."""
    if field.message_type is not None:
        return f"the message {field.message_type.full_name}"
    return _kinds()[field.type]


@cache
def _kinds() -> dict[int, str]:
    from google.protobuf.descriptor import FieldDescriptor

    return {getattr(FieldDescriptor, name): name[5:].lower() for name in dir(FieldDescriptor) if name[:5] == "TYPE_"}


def _refuse(path: str, value: Any, what: str) -> NotInFormat:
    return NotInFormat(f"{path} is {shown(value)}, of type {type(value).__qualname__}, where the schema has {what}")


def _is_repeated(field: Any) -> bool:
    # Older releases of protobuf have only the label, newer ones warn about it.
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
