"""Protobuf messages as plain values, and back, without loss.

| field                         | value                                                                     |
|-------------------------------|---------------------------------------------------------------------------|
| scalar                        | bool, int, float, str, bytes; if the message has none, the default        |
| scalar that tells presence    | `None` if the message has none (`optional`, members of a `oneof`)         |
| message                       | dict, or `None`                                                           |
| enum                          | its name as str; a number that has none as int                            |
| repeated                      | list                                                                      |
| map                           | dict                                                                      |

Well-known types are messages as any other: a Timestamp is `{"seconds": …, "nanos": …}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import NotInFormat


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


def from_plain(message: Any, value: Any) -> Any:
    """`message`, filled.

    Raises:
        NotInFormat: `value` is no mapping, has a field that the message has not, or one of the wrong type.
    """
    if not isinstance(value, Mapping):
        raise NotInFormat(f"{message.DESCRIPTOR.full_name} is made from a dict, not from {type(value).__name__}")
    fields = message.DESCRIPTOR.fields_by_name
    for name, content in value.items():
        field = fields.get(name)
        if field is None:
            raise NotInFormat(f"{message.DESCRIPTOR.full_name} has no field {name!r}")
        if content is None:
            continue
        try:
            _set(message, field, content)
        except (TypeError, ValueError, AttributeError) as error:
            if isinstance(error, NotInFormat):
                raise
            raise NotInFormat(f"the field {name!r} of {message.DESCRIPTOR.full_name}: {error}") from error
    return message


def _set(message: Any, field: Any, content: Any) -> None:
    name = field.name
    if _is_map(field):
        target, value_of = getattr(message, name), field.message_type.fields_by_name["value"]
        for key, item in content.items():
            if value_of.message_type is not None:
                from_plain(target[key], item)
            else:
                target[key] = _scalar(value_of, item)
    elif _is_repeated(field):
        if isinstance(content, str | bytes | Mapping):
            raise TypeError(f"a list is needed, not {type(content).__name__}")
        for item in content:
            if field.message_type is not None:
                from_plain(getattr(message, name).add(), item)
            else:
                getattr(message, name).append(_scalar(field, item))
    elif field.message_type is not None:
        target = getattr(message, name)
        target.SetInParent()
        from_plain(target, content)
    else:
        setattr(message, name, _scalar(field, content))


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return to_plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


def _scalar(field: Any, value: Any) -> Any:
    if field.enum_type is not None and isinstance(value, str):
        known = field.enum_type.values_by_name.get(value)
        if known is None:
            raise NotInFormat(f"enum {field.enum_type.full_name} has no {value!r}")
        return known.number
    return value


def _is_repeated(field: Any) -> bool:
    # Older releases of protobuf have only the label, newer ones warn about it.
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
