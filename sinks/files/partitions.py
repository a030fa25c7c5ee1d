"""Sub-folders by the content of records: `country=NZ/day=2026-11-28`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final
from urllib.parse import quote, unquote

from sinks.files.errors import RecordRefused
from sinks.kafka.errors import shorten

PartitionBy = str | Sequence[str] | Callable[[Any], Mapping[str, Any]]

_NONE: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, Spark and others write for a missing value."""
_EQUAL_ALIKE: Final = frozenset({type(None), bool, int, str, date})
"""Types whose equal values have one text; 0.0 and -0.0 don't, nor do equal datetimes of two time zones."""
_OF_FIELDS: Final = _EQUAL_ALIKE | {float, datetime}
"""Types of fields that a folder's name can stand for; of a subclass, such as an enum, it would tell another text."""
_KNOWN: Final = 10_000
"""So many folders' names are remembered."""
_LONGEST: Final = 200
"""Bytes of one folder's name; file systems allow 255."""


def folder_of(partition_by: PartitionBy, leaves_out: bool = False) -> Callable[[Any], str]:
    """A function of the record: its folder, relative to the target.

    Args:
        leaves_out: files have no field that is in the folders' names, so that names have to tell values apart.

    Raises:
        RecordRefused: (the function) the record has no such field, or the folder can't have such a name.
    """
    if callable(partition_by):
        return lambda value: _folder(partition_by(value), value)
    fields = fields_of(partition_by)
    known: dict[Any, str] = {}

    def folder(value: Any) -> str:
        parts = {field: _field(value, field) for field in fields}
        if leaves_out and "" in parts.values():
            raise RecordRefused(
                f"a record's field {next(name for name in parts if parts[name] == '')!r} is empty text, which readers "
                "of folders' names take for a missing value, and Parquet files leave the field out. Make it None, or "
                f"another text, in a step before the sink. The record is {shorten(value)}"
            )
        kinds = tuple(map(type, parts.values()))  # 1 and True are not one folder
        if not _OF_FIELDS.issuperset(kinds):
            name, part = next((name, part) for name, part in parts.items() if type(part) not in _OF_FIELDS)
            raise _no_part(name, part, value)
        if not _EQUAL_ALIKE.issuperset(kinds):
            return _folder(parts, value)
        key = (kinds, *parts.values())
        found = known.get(key)
        if found is None:
            if len(known) >= _KNOWN:
                known.clear()
            found = known[key] = _folder(parts, value)
        return found

    return folder


def fields_of(partition_by: str | Sequence[str]) -> tuple[str, ...]:
    return (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)


def names_in(folder: str) -> list[str]:
    """The fields' names in a folder's path: country and day in `country=NZ/day=2026-11-28`."""
    return [unquote(part.partition("=")[0]) for part in folder.split("/")] if folder else []


def _field(value: Any, field: str) -> Any:
    try:
        return value[field]
    except (TypeError, KeyError, IndexError) as error:
        raise RecordRefused(f"a record has no field {field!r} to partition by: {shorten(value)}") from error


def _folder(parts: Any, value: Any) -> str:
    if not isinstance(parts, Mapping) or not parts:
        raise RecordRefused(
            f'partition_by must return a dict such as {{"day": "2026-11-28"}}, not {parts!r}, for {shorten(value)}'
        )
    return "/".join(_part(name, part, value) for name, part in parts.items())


def _part(name: Any, part: Any, value: Any) -> str:
    if not isinstance(part, str | bool | int | float | date | None):
        raise _no_part(name, part, value)
    if part == _NONE:
        raise RecordRefused(
            f"partition_by gives {part!r} for {name!r}, which readers take for a missing value, for {shorten(value)}"
        )
    text = "" if part is None else str(part).lower() if isinstance(part, bool) else str(part)
    try:
        folder = f"{quote(str(name), safe='')}={quote(text, safe=' ') if text else _NONE}"
    except UnicodeEncodeError as error:
        raise RecordRefused(
            f"partition_by gives {part!r} for {name!r}, which holds lone surrogates and is no valid Unicode, for "
            f"{shorten(value)}"
        ) from error
    if len(folder) > _LONGEST or folder.startswith(("_", ".")):
        raise RecordRefused(
            f"no folder can be called {folder[:_LONGEST]!r} (partition_by): at most {_LONGEST} bytes, beginning "
            f"neither with _ nor with ., which readers take for hidden. The record is {shorten(value)}"
        )
    return folder


def _no_part(name: Any, part: Any, value: Any) -> RecordRefused:
    return RecordRefused(
        f"partition_by gives {part!r} ({type(part).__qualname__}) for {name!r}, which is no text, number or date, for "
        f"{shorten(value)}"
    )
