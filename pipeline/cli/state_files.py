"""Tables as files: Parquet, and lines of JSON in the form of `checkpoint.tables.json_form`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final, Literal

import click
import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint.tables.columns import JSON
from checkpoint.tables.json_form import from_json, to_json

Format = Literal["parquet", "jsonl"]
_TYPES: Final = {
    "step": pa.string(),
    "state": pa.string(),
    "clock": pa.string(),
    "subtask": pa.int32(),
    "key_group": pa.int16(),
    "at": pa.int64(),
}


def save(schema: Any, batches: Iterable[Any], format_: Format, path: str | None) -> int:
    """Write a table to a new file, or as lines of JSON to the standard output; how many rows it has.

    Raises:
        ClickException: the file is there already, or can't be written.
    """
    if path is None:
        if format_ == "parquet":
            raise click.UsageError("--format parquet needs a file: --output FILE")
        return _write_lines(sys.stdout, batches)
    if os.path.exists(path):
        raise click.ClickException(f"{path} is there already; nothing is overwritten")
    unfinished = f"{path}.unfinished-{os.getpid()}"
    try:
        if format_ == "parquet":
            rows = _write_parquet(unfinished, schema, batches)
        else:
            with open(unfinished, "x", encoding="utf-8") as file:
                rows = _write_lines(file, batches)
        os.link(unfinished, path)  # fails if somebody has made the file meanwhile
        return rows
    except OSError as error:
        raise click.ClickException(f"{path} can't be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)


def _write_parquet(path: str, schema: Any, batches: Iterable[Any]) -> int:
    rows = 0
    with pq.ParquetWriter(path, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _write_lines(file: IO[str], batches: Iterable[Any]) -> int:
    rows = 0
    for batch in batches:
        for row in batch.to_pylist():
            file.write(f"{line_of(row)}\n")
            rows += 1
    return rows


def line_of(row: dict[str, Any]) -> str:
    """A row as JSON; what its columns hold as JSON texts is part of it: `key_json` becomes `key`."""
    members = []
    for name, value in row.items():
        if name.endswith(JSON):
            members.append(f"{to_json(name.removesuffix(JSON))}:{'null' if value is None else value}")
        else:
            members.append(f"{to_json(name)}:{to_json(value)}")
    return f"{{{','.join(members)}}}"


def load(path: str) -> Any:
    """A table from a Parquet file, a folder of such, or lines of JSON (`.jsonl`).

    Raises:
        ClickException: it can't be read; says which line.
    """
    try:
        if Path(path).suffix in (".jsonl", ".ndjson", ".json"):
            with open(path, encoding="utf-8") as file:
                return _table_of(list(_rows_in(path, file)))
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise click.ClickException(f"{path} can't be read: {error}") from error


def _rows_in(path: str, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = from_json(line)
            if type(row) is not dict or not all(type(name) is str for name in row):
                raise ValueError("it is no object")
        except (ValueError, RecursionError) as error:
            raise click.ClickException(f"{path}, line {number}: {error}") from error
        yield row


def _table_of(rows: list[dict[str, Any]]) -> Any:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        missing = next((i for i, row in enumerate(rows, 1) if name not in row), None)
        if missing is not None:
            raise click.ClickException(f"row {missing} has no {name!r}, and others have")
        values = [row[name] for row in rows]
        if name in ("key", "value"):
            columns[name + JSON] = pa.array(map(to_json, values), pa.string())
        else:
            binary = pa.binary() if name.endswith("_bytes") else None
            columns[name] = pa.array(values, _TYPES.get(name, binary))
    return pa.table(columns)
