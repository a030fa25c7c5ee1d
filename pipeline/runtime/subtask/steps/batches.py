"""`map_batches`: records gathered into Arrow batches, and what comes back taken apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from checkpoint.counted import counted
from formats.arrow_rows import rows
from formats.columns import Build
from formats.inferred_columns import infer
from formats.python_columns import PythonColumns
from pipeline.graph import BatchFunction
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.slices import SliceSize
from pipeline.runtime.subtask.steps.compiled import CompiledStep, Push, PushBatch, Site, Timestamps


def compile_map_batches(site: Site) -> CompiledStep:
    function = site.step.payload
    schema = function.schema if isinstance(function, BatchFunction) else None
    driver = BatchDriver(
        site.step.id, function, site.downstream, site.record, site.clock, site.downstream_batch, schema
    )
    return CompiledStep(driver.push, runs=driver, push_batch=driver.push_batch, flush=driver.flush)


class BatchDriver:
    """Buffers records until a call of the user's function takes about 10 ms, and emits the rows of its result, or the
    result as it is where a step behind takes record batches."""

    def __init__(
        self,
        step: str,
        function: Callable[[Any], Any],
        downstream: Push,
        record: RecordInProgress,
        clock: Callable[[], float],
        downstream_batch: PushBatch | None = None,
        schema: pa.Schema | None = None,
    ):
        """
        Args:
            schema: of the batches that are made of records; `None` = inferred from each.
            downstream_batch: takes what `downstream` would as a whole; `None` if no step behind does.
        """
        self.step = step
        self._function = function
        self._downstream = downstream
        self._downstream_batch = downstream_batch
        self._record = record
        self._clock = clock
        self._slice = SliceSize()
        self._schema = schema
        self._columns = PythonColumns()
        self._builders: list[tuple[str, Build]] | None = None
        if schema is not None:
            self._builders = [(field.name, self._columns.builder(field, field.name)) for field in schema]
        self._values: list[Any] = []
        self._timestamps: list[int | None] = []

    def push(self, value: Any) -> None:
        self._values.append(value)
        self._timestamps.append(self._record.timestamp)
        if len(self._values) >= self._slice.rows:
            self.flush()

    def flush(self) -> None:
        """Hand over what is buffered, so that nothing is held back."""
        values, timestamps = self._values, self._timestamps
        if not values:
            return
        self._values, self._timestamps = [], []
        started = self._clock()
        result = self._function(self._batch(values))
        if self._downstream_batch is not None:
            self._emit(result, len(values), timestamps)  # whose size decides what the steps behind take
            self._slice.took(len(values), self._clock() - started)
        else:
            self._slice.took(len(values), self._clock() - started)
            self._emit(result, len(values), timestamps)

    def push_batch(self, batch: pa.RecordBatch, timestamps: Timestamps) -> None:
        """Hand a batch over as it is. Whoever made it has seen to its size."""
        self.flush()
        if len(batch):
            self._emit(self._function(batch), len(batch), timestamps)

    def _emit(self, result: Any, given: int, timestamps: Timestamps) -> None:
        """`timestamps`: of the `given` rows that `result` was made of."""
        if result is None:
            return
        self._check(result)
        if timestamps is not None and len(result) != given:
            latest = max((at for at in timestamps if at is not None), default=None)
            timestamps = [latest] * len(result)
        # A row is no longer the record that came: it has no key, and the source knows nothing of it.
        record = self._record
        kept = record.timestamp, record.key_bytes, record.source_rows
        record.key_bytes, record.source_rows = None, None
        try:
            if self._downstream_batch is not None:
                self._emit_batches(result, timestamps, self._downstream_batch)
            else:
                self._emit_rows(self._rows(result), timestamps)
        finally:
            record.timestamp, record.key_bytes, record.source_rows = kept

    def _emit_rows(self, rows: list[Any], timestamps: Timestamps) -> None:
        record, downstream = self._record, self._downstream
        for row, timestamp in zip(rows, timestamps or [None] * len(rows), strict=True):
            record.timestamp = timestamp
            downstream(row)

    def _rows(self, result: Any) -> list[Any]:
        try:
            return rows(result)
        except ValueError as error:
            raise TypeError(
                f"map_batches {self.step!r}: what the function returned can't become records: {error}. Cast it in the "
                "function"
            ) from error

    def _emit_batches(self, result: Any, timestamps: Timestamps, push: PushBatch) -> None:
        at = 0
        for batch in result.combine_chunks().to_batches() if isinstance(result, pa.Table) else [result]:
            end = at + len(batch)
            if end > at:
                push(batch, None if timestamps is None else timestamps[at:end])
            at = end

    def _batch(self, values: list[Any]) -> Any:
        fields: dict[str, None] = {}
        for value in values:
            if type(value) is not dict:
                raise TypeError(
                    f"map_batches {self.step!r} got a {type(value).__name__}: its records must be dicts, whose fields "
                    "become columns; put a map in front that makes them"
                )
            fields.update(dict.fromkeys(value))
        if self._builders is not None:
            return self._of_schema(fields, values, self._builders)
        if not fields:
            raise TypeError(f"map_batches {self.step!r} got records without fields, which give no columns")
        return pa.RecordBatch.from_arrays([self._column(name, values) for name in fields], names=list(fields))

    def _of_schema(self, fields: dict[str, None], values: list[Any], builders: list[tuple[str, Build]]) -> Any:
        others = fields.keys() - {name for name, _ in builders}
        if others:
            raise TypeError(f"map_batches {self.step!r}: the schema has no field {', '.join(map(repr, others))}")
        try:
            arrays = [build([value.get(name) for value in values]) for name, build in builders]
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
            raise TypeError(f"map_batches {self.step!r}: a record doesn't fit the schema: {error}") from error

    def _column(self, name: Any, values: list[Any]) -> Any:
        if type(name) is not str:
            raise TypeError(
                f"map_batches {self.step!r}: a record has the field {name!r}, but names of columns must be str"
            )
        column = [value.get(name) for value in values]
        try:
            return self._columns.builder(pa.field(name, infer(column, name)), name)(column)
        except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
            raise TypeError(
                f"map_batches {self.step!r}: the field {name!r} can't be a column, of a batch of "
                f"{counted(len(values), 'record')}: {error}"
            ) from error

    def _check(self, result: Any) -> None:
        if not isinstance(result, pa.RecordBatch | pa.Table):
            raise TypeError(
                f"map_batches {self.step!r}: the function returned a {type(result).__name__}; it must return a "
                "pyarrow.RecordBatch, a pyarrow.Table or None"
            )
        names = result.schema.names
        if len(set(names)) < len(names):
            raise TypeError(
                f"map_batches {self.step!r}: the function returned several columns of one name ({', '.join(names)}), "
                "of which a record can have only one"
            )
        if not names:
            raise TypeError(
                f"map_batches {self.step!r}: the function returned a {type(result).__name__} without columns; for no "
                "rows at all return None"
            )
