"""The extension types of the codec: how values that msgpack has no type for become bytes, and their numbers.

Numbers are part of the format of checkpoints: none is ever given to something else. Timestamps (-1) are msgpack's own
and hold datetimes whose time zone is `datetime.UTC`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pickle import PicklingError
from typing import Any, Final, cast
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import ormsgpack
from ormsgpack import Ext, Fragment, packb, unpackb

from checkpoint.codec.errors import UnknownTimeZone


class Extension:
    """Numbers of msgpack extension types."""

    TUPLE: Final = 1
    """An array of the items."""
    DICT: Final = 2
    """An array of keys and values in turn: of dicts with keys that can't be keys of a msgpack map."""
    SET: Final = 3
    """An array of the members, ordered by their encoding."""
    FROZENSET: Final = 4
    """As `SET`."""
    BYTEARRAY: Final = 5
    """The bytes."""
    INT: Final = 6
    """An integer beyond 64 bits: big-endian, two's complement."""
    STR: Final = 7
    """A string with lone surrogates, as UTF-8 would have them."""
    DATETIME: Final = 8
    """[year, month, day, hour, minute, second, microsecond, fold, zone] on its own clock. A zone is nil, the key of a
    `ZoneInfo`, or an array: microseconds from UTC and, if it has one of its own, its name; of a zone that pydantic has
    made microseconds, nil and `_PYDANTIC`."""
    DATE: Final = 9
    """The proleptic Gregorian ordinal."""
    TIME: Final = 10
    """[hour, minute, second, microsecond, fold, zone]."""
    TIMEDELTA: Final = 11
    """[days, seconds, microseconds]."""
    DECIMAL: Final = 12
    """Its text."""
    UUID: Final = 13
    """16 bytes."""
    RECORD: Final = 14
    """A value of a user's class (see `checkpoint.codec.records`): [name of the class, content], or these and a map of
    what else it holds. The content is a map by field, the name of an enum's member, the names of combined flags with
    `|` in between or their number, or a pickle."""


CONTAINERS: Final[dict[type, int]] = {
    tuple: Extension.TUPLE,
    set: Extension.SET,
    frozenset: Extension.FROZENSET,
}
_PYDANTIC: Final = "pydantic"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def leaf(value: Any) -> Ext | Fragment:
    """The encoding of a value of one of the types in `LEAVES`.

    Raises:
        TypeError: this very value can't be encoded; the message says why, and what to do.
    """
    pack = LEAVES.get(type(value))
    if pack is None:
        raise TypeError(f"{type(value).__qualname__} has no encoding")
    return pack(value)


def unpack_leaf(code: int, data: bytes) -> Any:
    """The value of an extension that is no container.

    Raises:
        UnknownTimeZone: it needs a time zone that this machine doesn't know.
        ValueError: it is damaged.
    """
    match code:
        case Extension.DATETIME:
            year, month, day, hour, minute, second, micros, fold, zone = unpackb(data)
            return datetime(year, month, day, hour, minute, second, micros, _zone_of(zone), fold=fold)
        case Extension.DATE:
            return date.fromordinal(unpackb(data))
        case Extension.DECIMAL:
            return Decimal(data.decode())
        case Extension.UUID:
            return UUID(bytes=data)
        case Extension.TIMEDELTA:
            return timedelta(*unpackb(data))
        case Extension.TIME:
            hour, minute, second, micros, fold, zone = unpackb(data)
            return time(hour, minute, second, micros, _zone_of(zone), fold=fold)
        case Extension.BYTEARRAY:
            return bytearray(data)
        case Extension.INT:
            return int.from_bytes(data, "big", signed=True)
        case Extension.STR:
            return data.decode("utf-8", "surrogatepass")
    raise ValueError(f"unknown extension type {code}")


def _datetime(value: datetime) -> Ext | Fragment:
    zone = value.tzinfo
    if zone is UTC and not value.fold:
        since = value - _EPOCH
        nanos, at = since.microseconds * 1000, since.days * 86_400 + since.seconds
        if nanos >= 2**29 and 0 <= at < 2**34:
            # ormsgpack drops the fraction where its topmost bit is set; this is msgpack's timestamp 64.
            return Fragment(b"\xd7\xff" + (nanos << 34 | at).to_bytes(8, "big"))
        return Fragment(packb(value, None, ormsgpack.OPT_DATETIME_AS_TIMESTAMP_EXT))
    fields = (value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)
    return Ext(Extension.DATETIME, packb([*fields, value.fold, _zone(zone)]))


def _time(value: time) -> Ext:
    fields = (value.hour, value.minute, value.second, value.microsecond, value.fold)
    return Ext(Extension.TIME, packb([*fields, _zone(value.tzinfo)]))


LEAVES: Final[dict[type, Callable[[Any], Ext | Fragment]]] = {
    datetime: _datetime,
    date: lambda value: Ext(Extension.DATE, packb(value.toordinal())),
    time: _time,
    timedelta: lambda value: Ext(Extension.TIMEDELTA, packb([value.days, value.seconds, value.microseconds])),
    Decimal: lambda value: Ext(Extension.DECIMAL, str(value).encode()),
    UUID: lambda value: Ext(Extension.UUID, value.bytes),
}


def _zone(zone: tzinfo | None) -> Any:
    if zone is None:
        return None
    if type(zone) is ZoneInfo:
        return _key(zone)
    if type(zone) is timezone:
        # Not `tzname`: `timezone(timedelta(0), "UTC")` isn't `datetime.UTC`.
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]  # as pickle does it
        return [offset // _MICROSECOND, *name]
    kind = type(zone)
    if (kind.__module__.partition(".")[0], kind.__name__) == ("pydantic_core", "TzInfo"):  # of a time read from a text
        offset = zone.utcoffset(None)
        assert offset is not None
        return [offset // _MICROSECOND, None, _PYDANTIC]
    raise TypeError(
        f"its time zone is a {kind.__module__}.{kind.__qualname__}, which would not come back; give it a "
        "zoneinfo.ZoneInfo or a datetime.timezone, such as x.astimezone(datetime.timezone.utc)"
    )


def _key(zone: ZoneInfo) -> str:
    try:
        if ZoneInfo(zone.key) is not zone:
            zone.__reduce__()  # refuses what was read from a file of the user's own, whatever its key
    except (PicklingError, TypeError, ValueError, OSError, ZoneInfoNotFoundError):
        raise TypeError(
            "its ZoneInfo was read from a file, so it would not come back; make it by its name, such as "
            'zoneinfo.ZoneInfo("Europe/Berlin")'
        ) from None
    return zone.key


def _zone_of(zone: Any) -> tzinfo | None:
    if zone is None:
        return None
    if type(zone) is str:
        try:
            return ZoneInfo(zone)
        except ZoneInfoNotFoundError:
            raise UnknownTimeZone(
                f"a time in the zone {zone!r} can't be read, since this machine doesn't know that zone; install the "
                "package tzdata"
            ) from None
    micros, *name = zone
    if len(name) > 1:
        try:
            from pydantic_core import TzInfo
        except ImportError:
            raise UnknownTimeZone(
                "a time in a zone of pydantic's can't be read, since pydantic isn't installed here; install it"
            ) from None
        return cast(tzinfo, TzInfo(micros // 1_000_000))
    return timezone(timedelta(microseconds=micros), *name)
