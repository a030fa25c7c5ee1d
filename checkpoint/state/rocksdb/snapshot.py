"""A snapshot of the RocksDB backend: its rows as they were at a barrier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from checkpoint.codec import EncodingError, encode
from checkpoint.state.contents import Declared
from checkpoint.state.keyed_snapshot import WholeSnapshot
from checkpoint.state.snapshot_writer import FrozenGroup, TtlRows

BEHIND_ALL_GROUPS: Final = b"\xff\xff"
"""Rows from here on are no state."""
Row: TypeAlias = tuple[bytes, bytes]
_PART: Final = 512
"""Rows that are read in one go."""
NIL: Final = encode(None)
"""What a file has as the value of a timer."""


class State(NamedTuple):
    name: str
    timers: bool


class RocksSnapshot(WholeSnapshot):
    """A view of RocksDB that doesn't change."""

    _encoded = True

    def __init__(
        self,
        operator: str,
        max_parallelism: int,
        states: Mapping[bytes, State],
        ttl: Mapping[str, TtlRows],
        view: Iterator[Row] | None,
        error: EncodingError | None,
        declared: Mapping[str, Declared],
    ) -> None:
        """
        Args:
            states: by number.
            view: all rows, in order; `None`: there are none.
            error: why a value is not in it.
        """
        super().__init__(operator, max_parallelism, ttl, declared)
        self._states = states
        self._view = view
        self._error = error

    def _free(self) -> None:
        self._view = None

    def _groups(self) -> Iterator[FrozenGroup]:
        if self._error is not None:
            raise self._error
        return self._rows_by_group()

    def _rows_by_group(self) -> Iterator[FrozenGroup]:
        """In the order of the rows; each group is gone through before the next one is asked for."""
        rows = self._view
        if rows is None:
            return
        head = next(rows, None)
        while head is not None and (group := head[0][:2]) != BEHIND_ALL_GROUPS:
            rest: list[Row | None] = []
            yield int.from_bytes(group, "big"), self._parts(group, head, rows, rest)
            (head,) = rest

    def _parts(
        self, group: bytes, head: Row, rows: Iterator[Row], rest: list[Row | None]
    ) -> Iterator[tuple[str, Mapping[bytes, Any]]]:
        """`rest`: gets the first row of the next group."""
        number, part, state = b"", dict[bytes, Any](), self._states[head[0][2:4]]
        row: Row | None = head
        while row is not None and row[0].startswith(group):
            key, value = row
            if not key.startswith(number, 2) or not number or len(part) >= _PART:
                if part:
                    yield state.name, part
                number, part = key[2:4], {}
                state = self._states[number]
            if state.timers:
                part[key[4:12] + group + key[12:]] = NIL
            else:
                part[key[4:]] = value
            row = next(rows, None)
        if part:
            yield state.name, part
        rest.append(row)
