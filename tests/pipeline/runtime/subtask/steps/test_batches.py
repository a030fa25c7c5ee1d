"""`map_batches`: Arrow in, Arrow out; what a batch holds, when it is handed over, and what its rows carry."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from edge_values import EVERYTHING, anything, same, shown
from hypothesis import given
from hypothesis import strategies as st

from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.steps.batches import BatchDriver
from pipeline.testing import ManualClock


class Step:
    """A driver whose function notes the batches that it gets."""

    def __init__(self, function: Callable[[Any], Any] = lambda batch: batch, seconds_per_row: float = 0.0) -> None:
        self.record = RecordInProgress()
        self.batches: list[Any] = []
        self.rows: list[Any] = []
        self.timestamps: list[int | None] = []
        clock = ManualClock()

        def call(batch: Any) -> Any:
            self.batches.append(batch)
            clock.advance(batch.num_rows * seconds_per_row)
            return function(batch)

        self.driver = BatchDriver("step", call, self._emitted, self.record, clock)

    def _emitted(self, value: Any) -> None:
        self.rows.append(value)
        self.timestamps.append(self.record.timestamp)

    def push(self, values: list[Any], timestamps: list[int | None] | None = None) -> None:
        for i, value in enumerate(values):
            self.record.timestamp = None if timestamps is None else timestamps[i]
            self.driver.push(value)

    def push_as_one(self, values: list[Any]) -> None:
        """In one batch."""
        self.driver._values, self.driver._timestamps = list(values), [None] * len(values)
        self.driver.flush()

    def sizes(self) -> list[int]:
        return [batch.num_rows for batch in self.batches]


def as_one_batch(values: list[Any], function: Callable[[Any], Any] = lambda batch: batch) -> Step:
    """All `values` lie in one batch, since earlier ones were quick."""
    step = Step(lambda batch: batch if "warm" in batch.schema.names else function(batch))
    step.push([{"warm": 0}] * 4095)
    step.batches.clear()
    step.rows.clear()
    step.timestamps.clear()
    step.push(values)
    step.driver.flush()
    return step


def test_records_come_as_columns_and_rows_go_on_as_records() -> None:
    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"id": pc.multiply(batch["id"], 2), "name": batch["name"]})

    step = as_one_batch([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], double)
    assert isinstance(step.batches[0], pa.RecordBatch)
    assert step.rows == [{"id": 2, "name": "a"}, {"id": 4, "name": "b"}]


def test_a_field_that_only_later_records_have_is_a_column_too() -> None:
    """Arrow itself would take the columns of the first record and drop what the others have more."""
    step = as_one_batch([{"a": 1}, {"b": 2, "a": 3}, {}])
    assert step.rows == [{"a": 1, "b": None}, {"a": 3, "b": 2}, {"a": None, "b": None}]


def test_a_table_or_nothing_may_come_back() -> None:
    def table(batch: Any) -> pa.Table:
        return pa.concat_tables([pa.Table.from_batches([batch])] * 2)

    assert as_one_batch([{"a": 1}], table).rows == [{"a": 1}, {"a": 1}]
    assert as_one_batch([{"a": 1}], lambda batch: None).rows == []
    assert as_one_batch([{"a": 1}], lambda batch: batch.slice(0, 0)).rows == []


# -- values ---------------------------------------------------------------------------------------------------


INDIA = timezone(timedelta(hours=5, minutes=30))
ODD = [
    datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=INDIA), datetime(2026, 7, 2, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(seconds=1))), [1, None], [1, 2.5], [[1], []], [[1], ["a"]],
    {"x": 1, "y": {}}, {"x": {"y": 1.5}}, {"x": [{"y": 1}, {"z": 1}]}, Decimal("1.50"),
]  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from("ab"), anything | st.sampled_from(ODD), min_size=1), min_size=1))
def test_values_come_out_of_a_batch_as_they_went_in_or_are_refused(values: list[Any]) -> None:
    step = Step()
    try:
        step.push_as_one(values)
    except TypeError as error:
        assert "map_batches 'step'" in str(error)  # noqa: PT017
        return
    names = dict.fromkeys(name for value in values for name in value)
    assert same(step.rows, [{name: value.get(name) for name in names} for value in values])


@pytest.mark.parametrize("value", [*EVERYTHING, *ODD], ids=shown)
def test_every_value_comes_out_of_a_batch_as_it_went_in_or_is_refused(value: Any) -> None:
    for beside in (None, value, 1, 1.5, "a", b"a", {"x": 1}, [1]):
        values = [{"v": beside}, {"v": value}]
        step = Step()
        try:
            step.push_as_one(values)
        except TypeError as error:
            assert "the field 'v" in str(error) or "'v" in str(error)  # noqa: PT017
            continue
        assert same(step.rows, values)


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (1, 1.5, r"field 'v' is the int 1 in row 0 and the float 1.5 in row 2. Give a schema"),
        ("a", b"a", r"the str 'a' in row 0 and the bytes b'a' in row 2"),
        (True, 1, r"the bool True in row 0 and the int 1 in row 2"),
        ({"a": 1}, {"b": 1}, r"dict with the fields 'a' .* dict with the fields 'b'"),
        ([1], ["a"], r"field 'v\[\]' is the int 1"),
        ({"a": 1}, {"a": "x"}, r"field 'v.a' is the int 1"),
        (-1, 2**63, r"integers from -1 to 9223372036854775808"),
        (datetime(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC), r"time zone None .* time zone UTC"),
    ],
)
def test_values_of_two_types_are_refused_with_both_rows(one: Any, other: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Step().push_as_one([{"v": one}, {"v": None}, {"v": other}])


def test_with_a_schema_values_must_fit_it_and_batches_have_its_types() -> None:
    schema = pa.schema([("n", pa.float64()), ("s", pa.string())])
    step = Step()
    step.driver = BatchDriver("step", step.driver._function, step._emitted, step.record, ManualClock(), None, schema)
    step.push_as_one([{"n": 1}, {"n": 1.5, "s": "a"}, {}])
    assert step.batches[0].schema == schema
    assert step.rows == [{"n": 1.0, "s": None}, {"n": 1.5, "s": "a"}, {"n": None, "s": None}]
    for bad in ({"n": "1"}, {"n": 2**53 + 1}, {"s": b"a"}, {"other": 1}):
        with pytest.raises(TypeError, match="map_batches 'step'"):
            step.push_as_one([bad])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1], pa.timestamp("ns")),
        pa.array([1], pa.time64("ns")),
        pa.array([1], pa.duration("ns")),
        pa.array([90_000], pa.time32("s")),
        pa.array([2**60], pa.timestamp("s")),
        pa.array([[1]], pa.list_(pa.timestamp("ns", "UTC"))),
        pa.array([b"\xff"]).view(pa.string()),
        pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
    ],
    ids=lambda column: str(column.type),
)
def test_what_python_does_not_have_is_refused_when_it_becomes_a_record(column: Any) -> None:
    with pytest.raises(TypeError, match=r"what the function returned can't become records.*Cast it in the function"):
        Step(lambda batch: pa.table({"v": column})).push([{"a": 1}])


def test_whole_microseconds_become_records_whatever_the_unit() -> None:
    column = pa.array([1_000], pa.timestamp("ns", "UTC"))
    step = Step(lambda batch: pa.table({"v": column, "h": pa.array([1.5]).cast(pa.float16())}))
    step.push([{"a": 1}])
    assert same(step.rows, [{"v": datetime(1970, 1, 1, microsecond=1, tzinfo=UTC), "h": 1.5}])


# -- when -----------------------------------------------------------------------------------------------------


def test_batches_grow_while_they_are_quick_up_to_a_bound() -> None:
    step = Step()
    step.push([{"a": 1}] * 20_000)
    assert step.sizes()[:5] == [1, 2, 4, 8, 16]
    assert max(step.sizes()) == 4096


def test_a_batch_takes_no_longer_than_10_ms_or_holds_one_record() -> None:
    """A barrier waits for no more."""
    step = Step(seconds_per_row=1 / 1024)
    step.push([{"a": 1}] * 45)
    assert step.sizes() == [1, 2, 4, 8, 10, 10, 10]
    slow = Step(seconds_per_row=1.0)
    slow.push([{"a": 1}] * 3)
    assert slow.sizes() == [1, 1, 1]


def test_what_is_buffered_is_handed_over_when_the_record_loop_is_left() -> None:
    step = Step()
    step.push([{"a": i} for i in range(5)])
    assert [row["a"] for row in step.rows] == [0, 1, 2]
    step.driver.flush()
    assert [row["a"] for row in step.rows] == [0, 1, 2, 3, 4]
    step.driver.flush()
    assert len(step.batches) == 3


# -- what rows carry ------------------------------------------------------------------------------------------


def timestamps_of(function: Callable[[Any], Any], timestamps: list[int | None]) -> list[int | None]:
    step = as_one_batch([], function)
    step.push([{"a": i} for i in range(len(timestamps))], timestamps)
    step.driver.flush()
    return step.timestamps


def test_each_row_keeps_its_timestamp_if_there_are_as_many_as_before_and_else_gets_the_latest() -> None:
    assert timestamps_of(lambda batch: batch, [5, None, 3]) == [5, None, 3]
    assert timestamps_of(lambda batch: batch.slice(1), [5, None, 3]) == [5, 5]
    assert timestamps_of(lambda batch: batch.slice(1), [None, None]) == [None]


def test_behind_it_there_is_no_record_in_progress_and_afterwards_there_is_again() -> None:
    seen: list[Any] = []
    record = RecordInProgress()
    context = Context(record, 0, 1)
    driver = BatchDriver("step", lambda batch: batch, lambda value: look(), record, ManualClock())

    def look() -> None:
        with pytest.raises(AttributeError, match=r"ctx\.offset isn't there"):
            context.offset  # noqa: B018
        seen.append((context.key, context.timestamp))

    class Row:
        offset = 17

    record.key_bytes, record.timestamp, record.source_rows = b"\xa1k", 5, [Row()]
    driver.push({"a": 1})
    assert seen == [(None, 5)]
    assert (context.key, context.timestamp, context.offset) == ("k", 5, 17)


# -- mistakes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1, 2]], "got a list: its records must be dicts"),
        (["text"], "got a str: its records must be dicts"),
        ([{}], "records without fields"),
        ([{1: "a"}], "the field 1, but names of columns must be str"),
        ([{"a": 1}, {"a": "x"}], "the field 'a' can't be a column"),
        ([{"a": object()}], "the field 'a' can't be a column"),
        ([{"a": 2**70}], "the field 'a' can't be a column"),
    ],
)
def test_records_that_are_no_rows_are_refused(values: list[Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"map_batches 'step'.*{message}"):
        as_one_batch(values)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([{"a": 1}], "returned a list; it must return a pyarrow.RecordBatch, a pyarrow.Table or None"),
        (pa.table([[1], [2]], names=["a", "a"]), "several columns of one name"),
        (pa.table({"a": [1, 2]}).select([]), "returned a Table without columns; for no rows at all return None"),
    ],
)
def test_what_is_no_batch_of_records_is_refused(returned: Any, message: str) -> None:
    step = Step(lambda batch: returned)
    with pytest.raises(TypeError, match=f"map_batches 'step'.*{message}"):
        step.push([{"a": 1}])


def test_an_error_of_the_function_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        Step(lambda batch: 1 // 0).push([{"a": 1}])


# -- record batches as they are ---------------------------------------------------------------------------------------


def chained(function: Callable[[Any], Any]) -> tuple[Step, list[tuple[Any, Any]]]:
    """A step whose result goes on as a whole, and what it hands on."""
    step, handed = Step(function), []
    step.driver = BatchDriver(
        "step",
        step.driver._function,
        step._emitted,
        step.record,
        ManualClock(),
        lambda batch, timestamps: handed.append((batch, timestamps)),
    )
    return step, handed


def test_a_record_batch_is_handed_over_as_it_is_with_its_types() -> None:
    given = pa.record_batch({"id": pa.array([1, 2], pa.int8())})
    step = Step()
    step.driver.push_batch(given, [10, None])
    assert step.batches == [given]
    assert (step.rows, step.timestamps) == ([{"id": 1}, {"id": 2}], [10, None])


def test_what_was_buffered_goes_first() -> None:
    step = Step()
    step.push([{"id": i} for i in range(5)])  # the last two fill no batch
    step.driver.push_batch(pa.record_batch({"id": [5]}), None)
    assert [row["id"] for row in step.rows] == list(range(6))


def test_results_go_on_whole_to_steps_that_take_batches() -> None:
    step, handed = chained(lambda batch: pa.Table.from_batches([batch.slice(0, 1), batch.slice(1)]))
    step.driver.push_batch(pa.record_batch({"id": pa.array([1, 2, 3], pa.int8())}), [1, 2, 3])
    assert [(batch.to_pylist(), timestamps) for batch, timestamps in handed] == [
        ([{"id": 1}, {"id": 2}, {"id": 3}], [1, 2, 3])
    ]
    assert handed[0][0].schema.types == [pa.int8()]
    assert step.rows == []


@pytest.mark.parametrize("timestamps", [[1, 3, 2], None])
def test_a_result_of_another_length_goes_on_with_the_latest_timestamp(timestamps: list[int | None] | None) -> None:
    step, handed = chained(lambda batch: batch.slice(0, 2))
    step.driver.push_batch(pa.record_batch({"id": [1, 2, 3]}), timestamps)
    assert [times for _, times in handed] == [[3, 3] if timestamps else None]


def test_nothing_goes_on_for_no_rows() -> None:
    step, handed = chained(lambda batch: batch.slice(0, 0))
    step.driver.push_batch(pa.record_batch({"id": [1]}), [1])
    step.driver.push_batch(pa.record_batch({"id": [1]}).slice(0, 0), [])
    assert handed == []
    assert step.sizes() == [1]
