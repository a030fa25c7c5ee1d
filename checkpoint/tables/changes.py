"""What is to change in the state of keys, made from Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint.codec import decode_key, encode, encode_key
from checkpoint.shown import shown
from checkpoint.state.timers import TIMER_STATES
from checkpoint.tables.columns import JSON, NotInColumn, encoded_column
from checkpoint.tables.keyed import CLOCKS, namespace_of

_NIL: Final = encode(None)
_KNOWN: Final = frozenset(
    {"step", "subtask", "state", "clock", "key_group", "at"}
    | {name + form for name in ("key", "value") for form in ("", JSON, "_bytes")}
)


class StateName(NamedTuple):
    step: str
    state: str
    """Timers are the rows of `event timers` and `processing timers`."""


class KeyAndNamespace(NamedTuple):
    """Where a value is in a state."""

    key: bytes
    """Encoded."""
    namespace: bytes | None = None
    """Of timers, their time."""


EncodedRows = dict[KeyAndNamespace, bytes]
"""Encoded values."""


@dataclass(frozen=True)
class Deletion:
    """Keys that are to go, with all that they have."""

    keys: frozenset[bytes]
    """Encoded."""
    step: str | None = None
    """`None`: of all steps."""
    state: str | None = None
    """`None`: of all states, timers included."""

    def hits(self, step: str, state: str) -> bool:
        return self.step in (None, step) and self.state in (None, state)


@dataclass
class SavepointChanges:
    """Applied in this order: states are replaced, rows put, keys deleted."""

    replaced: dict[StateName, EncodedRows] = field(default_factory=dict)
    """States whose rows are to be these and no others."""
    put: dict[StateName, EncodedRows] = field(default_factory=dict)
    """Rows that are added, or take the place of those that are there."""
    deleted: list[Deletion] = field(default_factory=list)

    def steps(self) -> set[str]:
        """Steps that rows are given for."""
        return {name.step for name in (*self.replaced, *self.put)}

    def of_step(self, step: str) -> bool:
        """Whether they concern the step."""
        return step in self.steps() or any(one.step in (None, step) for one in self.deleted)


def rows_of(table: Any, step: str | None = None, state: str | None = None) -> dict[StateName, EncodedRows]:
    """The rows of a table as `open_table` gives it: of `state`, or of `timers` (with `clock` and `at`).

    Args:
        table: a `pyarrow.Table`. Keys are in `key`, `key_json` or `key_bytes`, values in columns of such names (see
            `columns.encoded_column`). Subtasks and key groups in it don't count: they are computed.
        step: where the table has no such column; where it has one, only rows of that step are taken.
        state: the same; for timers the clock.

    Returns:
        By state; also a state without rows that `step` and `state` name.

    Raises:
        NotInColumn: the table has columns that mean nothing here, lacks one, or names one place twice.
        EncodingError: a key or value can't be kept; names row and column.
    """
    check_names(table)
    timers = "at" in table.column_names
    steps, states, table = _named(table, step, state, "clock" if timers else "state")
    if timers:
        states = [_clock(one) for one in states]
        state = None if state is None else _clock(state)
    keys = keys_of(table)
    times = _times(table) if timers else None
    values = [_NIL] * len(keys) if timers else encoded_column(table, "value")
    if values is None:
        raise NotInColumn(
            f"the table has no column value, value{JSON} or value_bytes; it has {', '.join(table.column_names)}"
        )
    found: dict[StateName, EncodedRows] = {}
    if step is not None and state is not None:
        found[StateName(step, state)] = {}
    for row, (key, value) in enumerate(zip(keys, values, strict=True)):
        name = StateName(steps[row], states[row])
        if not timers and name.state in TIMER_STATES:
            raise NotInColumn(
                f"row {row}: {name.state} are written as a table of timers, with the columns clock and at"
            )
        rows = found.setdefault(name, {})
        place = KeyAndNamespace(key, None if times is None else namespace_of(times[row]))
        if place in rows:
            at = "" if times is None else f" at {times[row]}"
            raise NotInColumn(
                f"row {row}: {name.state!r} of step {name.step!r} has key {shown(decode_key(key))}{at} twice"
            )
        rows[place] = value
    return found


def add(into: dict[StateName, EncodedRows], found: Mapping[StateName, EncodedRows]) -> None:
    """Add the rows of one more table.

    Raises:
        NotInColumn: two tables name one place, and there is no saying which of them counts.
    """
    for name, rows in found.items():
        known = into.setdefault(name, {})
        if twice := next((place for place in rows if place in known), None):
            raise NotInColumn(
                f"two tables have key {shown(decode_key(twice.key))} of {name.state!r} of step {name.step!r}"
            )
        known.update(rows)


def check_names(table: Any) -> None:
    """
    Raises:
        NotInColumn: several columns have one name.
    """
    if twice := [name for name in table.column_names if table.column_names.count(name) > 1]:
        raise NotInColumn(f"the table has several columns called {twice[0]!r}: which one counts? Leave the others out")


def keys_of(table: Any) -> list[bytes]:
    """The encoded keys in a table.

    Raises:
        NotInColumn: it has none, or columns that mean nothing here.
        EncodingError: something is no key.
    """
    check_names(table)
    unknown = [name for name in table.column_names if name not in _KNOWN]
    if unknown:
        raise NotInColumn(
            f"the table has columns that mean nothing here: {', '.join(unknown)}; known are {', '.join(sorted(_KNOWN))}"
        )
    keys = encoded_column(table, "key", encode_key, decode_key)
    if keys is None:
        raise NotInColumn(
            f"the table has no column key, key{JSON} or key_bytes; it has {', '.join(table.column_names)}"
        )
    for row, key in enumerate(keys):
        if encode_key(decode_key(key)) != key:
            raise NotInColumn(f"row {row}: key_bytes is not how the key {shown(decode_key(key))} is encoded")
    return keys


def _named(table: Any, step: str | None, state: str | None, column: str) -> tuple[list[Any], list[Any], Any]:
    """Step and state of each row, and the table of the rows that are meant."""
    for name, given in (("step", step), (column, state)):
        if name in table.column_names:
            if table.column(name).null_count:
                row = table.column(name).is_null().index(True).as_py()
                raise NotInColumn(f"row {row}: its {name} is null; steps, states and clocks must be names")
            if given is not None:
                table = table.filter(pc.equal(table.column(name), given))
        elif given is None:
            raise NotInColumn(f"the table has no column {name!r}, so say which {name} it is of")
    n = table.num_rows
    steps = table.column("step").to_pylist() if "step" in table.column_names else [step] * n
    states = table.column(column).to_pylist() if column in table.column_names else [state] * n
    for row, pair in enumerate(zip(steps, states, strict=True)):
        if not all(isinstance(one, str) and one for one in pair):
            raise NotInColumn(f"row {row}: its step and {column} are {pair}, which must be names")
    return steps, states, table


def _clock(name: str) -> str:
    if name not in CLOCKS:
        raise NotInColumn(f"timers follow a clock {' or '.join(CLOCKS)}, not {name!r}")
    return CLOCKS[name]


def _times(table: Any) -> list[int]:
    found = table.column("at")
    if not pa.types.is_integer(found.type) or found.null_count:
        raise NotInColumn(f"column 'at' is of {found.type}; it holds integers, milliseconds since 1970, and no nulls")
    times: list[int] = found.cast(pa.int64()).to_pylist()
    return times
