"""Arrow arrays of Python's own values: what a row would give back equal, or nothing.

| type                      | takes                                                                             |
|---------------------------|-----------------------------------------------------------------------------------|
| bool                      | bool                                                                              |
| integers                  | int in its range                                                                  |
| floats                    | float, and int up to 2**53; of the narrow ones those that they hold exactly       |
| strings, binary           | str; bytes (of a fixed length exactly that)                                       |
| decimals                  | Decimal (finite) and int that need no rounding                                    |
| dates, times              | date; time without an offset, and not finer than the type                         |
| timestamps                | datetime, with an offset exactly if the type has a time zone, and not finer       |
| durations                 | timedelta, not finer than the type                                                |
| lists, structs, maps      | list; dict without other fields; dict, or a list of pairs                         |
| dictionaries, extensions  | what their values' type takes                                                     |
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from checkpoint.shown import shown
from formats.columns import Build, Columns, cast, check_bounds, check_instants, check_zone, is_binary, is_text

_NARROW = (pa.float16(), pa.float32())


class PythonColumns(Columns):
    """Args:
    round_floats: whether float16 and float32 take what they can hold only rounded (but nothing too large).
    """

    def __init__(self, round_floats: bool = False) -> None:
        super().__init__(self._scalar, "refuse")
        self._round_floats = round_floats

    def _scalar(self, kind: pa.DataType, path: str) -> Build | None:  # one for each kind
        if types.is_null(kind):
            return self.plain(kind, frozenset(), path)
        if types.is_boolean(kind):
            return self.plain(kind, frozenset({bool}), path)
        if types.is_integer(kind):
            return self.plain(kind, frozenset({int}), path)
        if types.is_floating(kind):
            return self._floats(kind, path)
        if is_text(kind):
            return self.plain(kind, frozenset({str}), path)
        if is_binary(kind) or types.is_fixed_size_binary(kind):
            return self.plain(kind, frozenset({bytes}), path)
        if types.is_decimal(kind):
            return self.plain(kind, frozenset({Decimal, int}), path)
        if types.is_date(kind):
            return self.plain(kind, frozenset({date}), path)
        if types.is_time(kind):
            return self._times(kind, path)
        if types.is_timestamp(kind):
            return self._timestamps(kind, path)
        if types.is_duration(kind):
            return self._durations(kind, path)
        if types.is_dictionary(kind):
            return self._dictionary(kind, path)
        if isinstance(kind, pa.BaseExtensionType):
            return self._extension(kind, path)
        return None

    def _floats(self, kind: pa.DataType, path: str) -> Build:
        doubles = self.plain(pa.float64(), frozenset({float, int}), path)
        if kind not in _NARROW:
            return doubles

        def build(values: list[Any]) -> Any:
            wide = doubles(values)
            narrow = wide.cast(kind, safe=False)
            back = narrow.cast(pa.float64())
            same = pc.or_(pc.equal(wide, back), pc.is_nan(wide))
            if self._round_floats:
                same = pc.or_(same, pc.is_finite(back))
            if pc.all(same).as_py() is False:
                value = values[pc.index(same, False).as_py()]
                raise ValueError(
                    f"the field {path!r} is {shown(value)}, which {kind} doesn't hold exactly. Make it a float64, or "
                    "let floats be rounded with round_floats=True"
                    if pc.is_finite(back[pc.index(same, False).as_py()]).as_py()
                    else f"the field {path!r} is {shown(value)}, which is too large for {kind}"
                )
            return narrow

        return build

    def _times(self, kind: pa.DataType, path: str) -> Build:
        plain = self.plain(pa.time64("us"), frozenset({time}), path)

        def build(values: list[Any]) -> Any:
            made = plain(values)
            for value in values:
                if value is not None and value.tzinfo is not None:
                    raise ValueError(f"the field {path!r} is {shown(value)}, a time with an offset, which {kind} loses")
            made = cast(made, kind, path)
            check_bounds(made, kind, path)
            return made

        return build

    def _timestamps(self, kind: pa.DataType, path: str) -> Build:
        if kind.tz is not None:
            check_zone(kind, path)
        plain = self.plain(pa.timestamp("us", kind.tz), frozenset({datetime}), path)

        def build(values: list[Any]) -> Any:
            self.check(values, frozenset({datetime}), kind, path)
            finer = False
            for value in values:
                offset = None if value is None else value.utcoffset()
                if value is not None and (offset is None) != (kind.tz is None):
                    raise ValueError(
                        f"the field {path!r} is {shown(value)}, "
                        + (f"which has no offset, and {kind} needs one" if kind.tz else f"whose offset {kind} loses")
                    )
                finer = finer or (offset is not None and offset.microseconds != 0)
            if finer:  # Arrow takes whole seconds of an offset
                values = [None if value is None else _in_utc(value, path) for value in values]
            made = plain(values)
            check_instants(made, made.type, path)
            return cast(made, kind, path)

        return build

    def _durations(self, kind: pa.DataType, path: str) -> Build:
        plain = self.plain(pa.duration("us"), frozenset({timedelta}), path)
        return lambda values: cast(plain(values), kind, path)

    def _dictionary(self, kind: pa.DataType, path: str) -> Build:
        plain = self._of(kind.value_type, path)
        return lambda values: cast(plain(values).dictionary_encode(), kind, path)

    def _extension(self, kind: pa.BaseExtensionType, path: str) -> Build:
        if isinstance(kind, pa.UuidType):
            storage = self.plain(kind.storage_type, frozenset({bytes}), path)

            def uuids(values: list[Any]) -> Any:
                self.check(values, frozenset({UUID}), kind, path)
                raw = storage([None if value is None else value.bytes for value in values])
                return pa.ExtensionArray.from_storage(kind, raw)

            return uuids
        make = self._of(kind.storage_type, path)

        def build(values: list[Any]) -> Any:
            made = pa.ExtensionArray.from_storage(kind, make(values))
            for value, back in zip(values, made.to_pylist(), strict=True):
                if type(value) is not type(back) or value != back:
                    raise ValueError(f"the field {path!r} is {shown(value)}, of which {kind} makes {shown(back)}")
            return made

        return build


def _in_utc(value: datetime, path: str) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        what = "which in UTC is outside of the years 1 to 9999"
        raise ValueError(f"the field {path!r} is {shown(value)}, {what}") from None
