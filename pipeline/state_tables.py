"""State outside of a job: checkpoints as Arrow tables, and savepoints made from tables.

    totals = read_table("file:///weir/orders", "state", step="totals", state="total")        # a pyarrow.Table
    diff_tables("file:///weir/orders/chk-7-1", "file:///weir/orders/chk-8-1")
    write_savepoint("file:///backups/edited", base="file:///backups/monday", put=[frame.toArrow()], step=…, state=…)

With Spark, `spark.read.format("weir")` reads the same tables (`pipeline.spark_tables`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from checkpoint.codec import encode_key
from checkpoint.tables import diff as comparing
from checkpoint.tables import writing
from checkpoint.tables.changes import Deletion, SavepointChanges, add, keys_of, rows_of
from checkpoint.tables.point import Wanted, open_point
from checkpoint.tables.tables import Table, open_table
from checkpoint.tables.writing import NewPipeline, Written
from pipeline.version import VERSION
from sources.positions import positions

__all__ = ["NewPipeline", "Written", "diff_tables", "read_table", "table", "wanted", "write_savepoint"]

_ANY: Any = object()


def wanted(step: str | None = None, state: str | None = None, key: Any = _ANY) -> Wanted:
    """Which rows of a table; all, as far as nothing is said.

    Raises:
        EncodingError: no state has such a key.
    """
    return Wanted(step, state, None if key is _ANY else encode_key(key))


def table(uri: str, name: str, rows: Wanted | None = None, typed: bool = True) -> Table:
    """As `read_table`, to be read part by part."""
    return open_table(uri, name, rows, positions=positions, typed=typed)


def read_table(
    uri: str, name: str, *, step: str | None = None, state: str | None = None, key: Any = _ANY, typed: bool = True
) -> Any:
    """A table of a checkpoint as a `pyarrow.Table`.

    Args:
        uri: of a checkpoint or savepoint, or of a job's folder, which means its newest checkpoint.
        name: `state`, `timers`, `operator_state`, `in_flight`, `sources`, `uncommitted` or `checkpoints`.
        step, state, key: which rows; all, as far as nothing is said.
        typed: give keys and values columns of their own type where all have one; else as JSON.

    Raises:
        ValueError: there is no such table, step or state; lists what is there.
        StorageError: it can't be read, or is damaged; names the file.
    """
    return table(uri, name, wanted(step, state, key), typed).read()


def diff_tables(before: str, after: str, *, step: str | None = None, state: str | None = None) -> Any:
    """What differs in the state of two checkpoints, as a `pyarrow.Table`: a row for each value that was added, removed
    or changed.

    Raises:
        ValueError: neither has the step.
        StorageError: one can't be read, or is damaged; names the file.
    """
    rows = list(comparing.diff(open_point(before), open_point(after), Wanted(step, state)))
    return pa.Table.from_pylist(rows, schema=comparing.SCHEMA)


def write_savepoint(
    target: str,
    *,
    base: str | NewPipeline,
    replace: Iterable[Any] = (),
    put: Iterable[Any] = (),
    delete: Iterable[Any] = (),
    delete_keys: Sequence[Any] = (),
    step: str | None = None,
    state: str | None = None,
    made_from: Iterable[str] = (),
) -> Written:
    """Write a new savepoint: another one, or a checkpoint, with changed state; or one made of tables alone. What it is
    made from stays as it is.

    Args:
        target: URI of its folder, which is empty or not there yet.
        base: URI of what to change, or the pipeline that it is for.
        replace: `pyarrow.Table`s, whose states are to have these rows and no others.
        put: `pyarrow.Table`s of rows that are added, or take the place of those that are there.
        delete: `pyarrow.Table`s with the keys that are to go, with all that they have in the given step and state.
        delete_keys: such keys.
        step, state: where a table doesn't say it; where it does, only rows of that step and state are taken.
        made_from: what the tables are, for the savepoint's metadata.

    Raises:
        ValueError: a table is no state, or what is to be deleted isn't known; says what to change.
        TypeError: a key or value can't be kept in a checkpoint.
        StorageError: `target` is in use or can't be written, or `base` is damaged; there is no new savepoint then.
    """
    changes = SavepointChanges()
    for into, tables in ((changes.replaced, replace), (changes.put, put)):
        for one in tables:
            add(into, rows_of(one, step, state))
    gone = {encode_key(key) for key in delete_keys}.union(*(keys_of(one) for one in delete))
    if gone:
        changes.deleted.append(Deletion(frozenset(gone), step, state))
    point = base if isinstance(base, NewPipeline) else open_point(base)
    return writing.write_savepoint(target, changes, point, VERSION, made_from)
