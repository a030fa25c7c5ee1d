"""The tables of a checkpoint, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa

from checkpoint.state.timers import TIMER_STATES
from checkpoint.storage.restore import RestorePoint
from checkpoint.tables import keyed, small
from checkpoint.tables.point import NoSuchTable, Wanted, open_point, reading

NAMES: Final = ("state", "timers", "operator_state", "in_flight", "sources", "uncommitted", "checkpoints")
_BATCH: Final = 4096


@dataclass(frozen=True)
class Table:
    """A table: its columns, and parts that can be read side by side, each by a process of its own."""

    schema: Any
    """A `pyarrow.Schema`."""
    parts: tuple[Callable[[], Iterator[Any]], ...]
    """Each gives `pyarrow.RecordBatch`es of `schema`. They pickle.

    Raises:
        DamagedFile: a file is missing, truncated or altered; names it.
        DeletedMeanwhile: the job has deleted the checkpoint.
        NotInColumn: a value has no place in a typed column; names state and value.
        StorageError: a file can't be read.
    """

    def batches(self) -> Iterator[Any]:
        """All of it."""
        for part in self.parts:
            yield from part()

    def read(self) -> Any:
        """All of it as a `pyarrow.Table`."""
        return pa.Table.from_batches(self.batches(), schema=self.schema)


def open_table(
    uri: str,
    name: str,
    wanted: Wanted | None = None,
    *,
    positions: small.Positions = lambda state: None,
    typed: bool | keyed.Types = True,
) -> Table:
    """
    Args:
        uri: of a checkpoint or savepoint, or of a job's folder, which means its newest checkpoint.
        name: one of `NAMES`.
        wanted: which rows; for `timers` the state is the clock, `event` or `processing`.
        positions: finds the positions in a source's state.
        typed: give keys and values columns of their own type where all have one, which needs a look at all of them
            first; `False`: as JSON. Or the types.

    Raises:
        NoSuchTable: there is no such table, step or state, or the table has no such rows; lists what is there.
        StorageError: the checkpoint can't be read.
    """
    wanted = wanted or Wanted()
    _check(name, wanted)
    if name == "checkpoints":
        return Table(
            small.CHECKPOINTS_SCHEMA, (partial(_from_rows, small.CHECKPOINTS_SCHEMA, small.checkpoint_rows, uri),)
        )
    return table_of(open_point(uri), name, wanted, positions=positions, typed=typed)


def _check(name: str, wanted: Wanted) -> None:
    if name not in NAMES:
        raise NoSuchTable(f"there is no table {name!r}; there are {', '.join(NAMES)}")
    for what, tables in (
        ("step", NAMES[:-1]),
        ("state", ("state", "timers", "operator_state")),
        ("key", ("state", "timers", "in_flight")),
    ):
        if getattr(wanted, what) is not None and name not in tables:
            raise NoSuchTable(f"the table {name!r} has no rows of one {what}; these have: {', '.join(tables)}")


def table_of(
    point: RestorePoint,
    name: str,
    wanted: Wanted,
    *,
    positions: small.Positions = lambda state: None,
    typed: bool | keyed.Types = True,
) -> Table:
    """As `open_table`, of a checkpoint that is known."""
    with reading(point):
        table = _table(point, name, wanted, positions, typed)
    return Table(table.schema, tuple(partial(_read, point, part) for part in table.parts))


def _read(point: RestorePoint, part: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    with reading(point):
        yield from part()


def _table(
    point: RestorePoint, name: str, wanted: Wanted, positions: small.Positions, typed: bool | keyed.Types
) -> Table:
    if name in ("state", "timers"):
        return _keyed(point, name == "timers", wanted, typed)
    if name == "in_flight":
        parts = small.in_flight_parts(point, wanted)
        return _of_rows(small.IN_FLIGHT_SCHEMA, [partial(small.in_flight_rows, part) for part in parts])
    found = small.snapshot_parts(point, wanted)
    if name == "operator_state":
        return _of_rows(small.OPERATOR_SCHEMA, [partial(small.operator_rows, part, wanted) for part in found])
    if name == "sources":
        return _of_rows(small.SOURCES_SCHEMA, [partial(small.source_rows, part, positions) for part in found])
    return _of_rows(small.UNCOMMITTED_SCHEMA, [partial(small.uncommitted_rows, part) for part in found])


def _keyed(point: RestorePoint, timers: bool, wanted: Wanted, typed: bool | keyed.Types) -> Table:
    if timers and wanted.state is not None and wanted.state not in TIMER_STATES:
        if wanted.state not in keyed.CLOCKS:
            raise NoSuchTable(f"timers follow a clock {' or '.join(keyed.CLOCKS)}, not {wanted.state!r}")
        wanted = Wanted(wanted.step, keyed.CLOCKS[wanted.state], wanted.key)
    parts = keyed.keyed_parts(point, wanted, timers)
    types = typed if isinstance(typed, keyed.Types) else keyed.inferred(parts, timers) if typed else keyed.Types()
    schema, batches = (
        (keyed.timer_schema(types), keyed.timer_batches) if timers else (keyed.state_schema(types), keyed.state_batches)
    )
    return Table(schema, tuple(partial(batches, part, types) for part in parts))


def _of_rows(schema: Any, parts: Iterable[Callable[[], Iterator[dict[str, Any]]]]) -> Table:
    return Table(schema, tuple(partial(_from_rows, schema, part) for part in parts))


def _from_rows(schema: Any, rows: Callable[..., Iterator[dict[str, Any]]], *arguments: Any) -> Iterator[Any]:
    held: list[dict[str, Any]] = []
    for row in rows(*arguments):
        held.append(row)
        if len(held) == _BATCH:
            yield pa.RecordBatch.from_pylist(held, schema=schema)
            held = []
    if held:
        yield pa.RecordBatch.from_pylist(held, schema=schema)
