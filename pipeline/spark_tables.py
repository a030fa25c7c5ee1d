"""Checkpoints and savepoints as tables in Spark.

    spark.read.format("weir").option("path", URI).option("table", "state").option("step", "totals").load()

Spark finds it in the package `pyspark_weir`. The state of each subtask, be it one file or several, is a partition. See
docs/state-tables.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from checkpoint.codec import EncodingError, encode_key
from checkpoint.tables.columns import JSON, type_of
from checkpoint.tables.json_form import from_json, to_json
from checkpoint.tables.keyed import Types
from checkpoint.tables.point import NoSuchTable, Wanted
from checkpoint.tables.tables import NAMES, open_table
from sources.positions import positions

_OPTIONS: Final = ("path", "table", "step", "state", "key", "untyped")
_UNTYPED: Final = {"true": True, "false": False}


class WeirDataSource(DataSource):
    """The data source `weir`.

    Options: `path` (URI of a checkpoint, a savepoint or a job's folder) and `table`; `step`, `state` and `key` (JSON,
    see `checkpoint.tables.json_form`) choose rows; `untyped` = `true` gives keys and values as JSON without a look at
    all of them. With a schema of the user's no look is taken either: it may name some of the columns, and values that
    don't fit it are an error.
    """

    @classmethod
    def name(cls) -> str:
        return "weir"

    def schema(self) -> Any:
        """
        Raises:
            ValueError: an option is unknown or missing, or names what isn't there.
        """
        path, table, rows, untyped = _read_options(self.options)
        found = open_table(path, table, rows, positions=positions, typed=not untyped)
        return from_arrow_schema(found.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return WeirReader(*_read_options(self.options)[:3], schema)


def _read_options(options: Mapping[str, str]) -> tuple[str, str, Wanted, bool]:
    unknown = sorted(name for name in options if name.lower() not in _OPTIONS)
    if unknown:
        raise ValueError(f"format weir has no option {', '.join(unknown)}; it has {', '.join(_OPTIONS)}")
    for name, what in (("path", "the URI of a checkpoint, a savepoint or a job's folder"), ("table", ", ".join(NAMES))):
        if name not in options:
            raise ValueError(f"format weir needs option({name!r}, …): {what}")
    untyped = options.get("untyped", "false").lower()
    if untyped not in _UNTYPED:
        raise ValueError(f"option 'untyped' is true or false, not {untyped!r}")
    key = None if "key" not in options else encode_key(from_json(options["key"]))
    return options["path"], options["table"], Wanted(options.get("step"), options.get("state"), key), _UNTYPED[untyped]


class _Part(InputPartition):
    """A subtask's state of keys, or what else is read by one process."""

    def __init__(self, batches: Callable[[], Iterator[Any]]) -> None:
        super().__init__(None)
        self.batches = batches


class WeirReader(DataSourceReader):
    """Reads one table."""

    def __init__(self, path: str, table: str, wanted: Wanted, schema: StructType) -> None:
        self._path = path
        self._table = table
        self._wanted = wanted
        self._schema = schema

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        """Takes what says which key it is: then only the key's group is read. (Spark from 4.1 on asks, with
        `spark.sql.python.filterPushdown.enabled`.)"""
        for one in filters:
            key = self._key_in(one)
            if key is None or self._wanted.key not in (None, key):
                yield one
            else:
                self._wanted = replace(self._wanted, key=key)

    def _key_in(self, condition: Any) -> bytes | None:
        if self._table not in ("state", "timers") or not isinstance(condition, datasource.EqualTo):
            return None
        name, value = condition.attribute, condition.value
        try:
            if name == ("key_bytes",):
                return bytes(value)
            if name == ("key" + JSON,) and to_json(from_json(value)) == value:
                return encode_key(from_json(value))
            if name == ("key",) and type_of(value) == self._types().key:
                return encode_key(value)
        except (EncodingError, ValueError, TypeError):
            pass  # a text that is no key: Spark finds that there is none
        return None

    def partitions(self) -> list[InputPartition]:
        """
        Raises:
            ValueError: the schema has columns that the table hasn't.
        """
        found = open_table(self._path, self._table, self._wanted, positions=positions, typed=self._types())
        unknown = [name for name in self._schema.names if name not in found.schema.names]
        if unknown:
            raise NoSuchTable(
                f"table {self._table!r} has no column {', '.join(unknown)}; it has {', '.join(found.schema.names)}"
            )
        return [_Part(part) for part in found.parts]

    def _types(self) -> Types:
        """What the schema says of keys and values."""
        types = dict(zip(self._schema.names, _arrow(self._schema).types, strict=True))
        return Types(types.get("key"), types.get("value"))

    def read(self, partition: Any) -> Iterator[Any]:
        if not isinstance(partition, _Part):  # what Spark gives if there are no partitions
            return
        target = _arrow(self._schema)
        for batch in partition.batches():
            columns = [batch.column(batch.schema.get_field_index(name)) for name in target.names]
            fitting = [column.cast(kind) for column, kind in zip(columns, target.types, strict=True)]
            yield pa.RecordBatch.from_arrays(fitting, schema=target)


def _arrow(schema: StructType) -> Any:
    """The schema that Spark wants to be given."""
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)
