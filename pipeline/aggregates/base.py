"""The contract of aggregates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa

from checkpoint.codec import EncodingError, check, encode
from checkpoint.errors import Explained
from checkpoint.options import one_of
from checkpoint.state.private_copy import IMMUTABLE
from formats.arrow_rows import rows
from pipeline.aggregates.selectors import (
    SKIPPED,
    Read,
    Selector,
    WhenMissing,
    check_selector,
    field_is_none,
    reading,
    shown_selector,
)
from pipeline.errors import PipelineError
from pipeline.lazy_results import NO_ANSWER, check_answer
from pipeline.user_code import is_async, is_generator, takes

Step: TypeAlias = Callable[[Any, Any, int | None], Any]
"""From an accumulator, a record and its timestamp to the next accumulator."""


class Unfit(Explained, TypeError):
    """A value that an aggregate can't take. The message says which, and what it takes."""


class Aggregate:
    """What many records of a key come to: an accumulator that one record after the other is added to, and its result.

    A subclass implements `create`, `add`, `merge` and `result`:

        class Longest(Aggregate):
            def create(self):
                return ""

            def add(self, acc, value):
                return max(acc, value, key=len)

            def merge(self, a, b):
                return max(a, b, key=len)

            def result(self, acc):
                return acc

    An accumulator is a value as any state may hold it. It is never changed: `add` and `merge` return another one. What
    has been in a checkpoint comes back equal, as another object. Adding some records to one accumulator and the next
    ones to another, and merging both, gives the same result as adding all to one.
    """

    of: Selector = None
    missing: WhenMissing = "fail"
    where: Callable[[Any], Any] | None = None

    checks: ClassVar[bool] = False
    """Whether `add` and `merge` make sure that state can hold what they return, so that nobody else has to look."""
    result_is_accumulator: ClassVar[bool] = False
    """Whether `result` returns what it is given, so that it needn't be called."""

    def __init__(
        self,
        of: Selector = None,
        *,
        missing: WhenMissing = "fail",
        where: Callable[[Any], Any] | None = None,
    ) -> None:
        """
        Args:
            of: what of a record is added: a field name, an index or a function of the record; `None` = the record.
            missing: what becomes of a record that lacks the field, or has `None` there: "fail" = the step fails and
                names it, "skip" = it isn't added.
            where: a function of the record; only those for which it is true are added.

        Raises:
            PipelineError: an argument is none of these.
        """
        name = type(self).__name__
        check_selector(f"{name}: of", of)
        try:
            one_of(missing, "missing", ("fail", "skip"))
        except ValueError as error:
            raise PipelineError(f"{name}: {error}") from None
        if where is not None and (not callable(where) or is_async(where) or is_generator(where) or not takes(where, 1)):
            raise PipelineError(f"{name}: where must be a function of the record that is true or false, not {where!r}")
        self.of, self.missing, self.where = of, missing, where

    def create(self) -> Any:
        """The accumulator of no record."""
        raise NotImplementedError(f"{type(self).__name__} must implement create")

    def add(self, acc: Any, value: Any, /) -> Any:
        """The accumulator with one more value.

        Raises:
            Unfit: it takes no such value.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement add")

    def merge(self, a: Any, b: Any, /) -> Any:
        """The accumulator of all that was added to `a`, and then to `b`."""
        raise NotImplementedError(f"{type(self).__name__} must implement merge")

    def result(self, acc: Any, /) -> Any:
        """What was added comes to this: a value that can travel."""
        raise NotImplementedError(f"{type(self).__name__} must implement result")

    @property
    def kept_as(self) -> str:
        """What its accumulators are, for checkpoints: an aggregate that says something else can't take them over. To be
        overridden where an option changes what they mean."""
        return type(self).__qualname__

    # -- what adds records, and may be overridden where that is worth it ----------------------------------------

    def reader(self, label: str) -> Read:
        """A function that takes what is added out of a record and its timestamp: what `of` says, without the latter.

        Args:
            label: names the aggregate in errors.
        """
        return reading(self.of, self.missing, label)

    def step(self, label: str) -> Step:
        """A function that adds a record to an accumulator. It raises `FieldMissing` and `Unfit`.

        Args:
            label: names the aggregate in errors.
        """
        add = self.add if self.checks else self._checking(self.add, label)
        if self.where is None and isinstance(self.of, str | int) and type(self).reader is Aggregate.reader:
            return self._step_of_field(add, label)
        read, where = self.reader(label), self.where

        def step(acc: Any, record: Any, timestamp: int | None) -> Any:
            if where is not None:
                answer = where(record)
                if type(answer) in NO_ANSWER:
                    check_answer(f"{label}: where", answer)
                if not answer:
                    return acc
            value = read(record, timestamp)
            if value is SKIPPED:
                return acc
            try:
                return add(acc, value)
            except Unfit as error:
                raise Unfit(f"{label}: {error}") from None

        return step

    def _step_of_field(self, add: Callable[[Any, Any], Any], label: str) -> Step:
        """With fewer calls a record."""
        field: Any = self.of
        read = self.reader(label)

        def step(acc: Any, record: Any, timestamp: int | None) -> Any:
            try:
                value = record[field]
            except (LookupError, TypeError):
                value = None
            if value is None:
                value = read(record, timestamp)  # which says what is missing
                if value is SKIPPED:
                    return acc
            try:
                return add(acc, value)
            except Unfit as error:
                raise Unfit(f"{label}: {error}") from None

        return step

    def merger(self, label: str) -> Callable[[Any, Any], Any]:
        """A function that merges two accumulators.

        Args:
            label: names the aggregate in errors.
        """
        return self.merge if self.checks else self._checking(self.merge, label)

    def _checking(self, function: Callable[[Any, Any], Any], label: str) -> Callable[[Any, Any], Any]:
        merging = function.__name__ == "merge"
        who = f"{label}: " if merging else ""  # a step names itself

        def checked(acc: Any, value: Any) -> Any:
            before = _as_seen(acc), merging and _as_seen(value)
            after = function(acc, value)
            if before != (_as_seen(acc), merging and _as_seen(value)):
                raise Unfit(
                    f"{who}{function.__name__} has changed an accumulator that it was given, which may be in a "
                    "checkpoint, in other windows or of other keys: make a new one, such as [*acc, value] for a list"
                )
            if after is None and acc is not None:
                raise Unfit(f"{who}{function.__name__} returned no accumulator; it must return the next one")
            try:
                check(after)
            except EncodingError as error:
                raise EncodingError(f"{label}: the accumulator can't be kept in a checkpoint: {error}") from None
            return after

        return checked

    def add_batch(self, acc: Any, batch: pa.RecordBatch, timestamps: pa.Array, label: str) -> Any:
        """What its `step` makes of all rows, one after the other.

        Args:
            timestamps: int64, null where a row has none.
        """
        of = self.of
        if isinstance(of, str) and self.where is None and type(self).reader is Aggregate.reader:
            values = batch.column(of) if of in batch.schema.names else pa.nulls(len(batch))
            if values.null_count:
                if self.missing == "fail":
                    row = rows(batch.filter(values.is_null()).slice(0, 1))[0]
                    raise field_is_none(label, of, row)
                timestamps = timestamps.filter(values.is_valid())
                values = values.drop_null()
            try:
                return self.add_column(acc, values, timestamps)
            except Unfit as error:
                raise Unfit(f"{label}: {error}") from None
        step = self.step(label)
        for row, timestamp in zip(rows(batch), timestamps.to_pylist(), strict=True):
            acc = step(acc, row, timestamp)
        return acc

    def add_column(self, acc: Any, values: pa.Array, timestamps: pa.Array) -> Any:
        """What `add` makes of all values, one after the other. None of them is null.

        Raises:
            Unfit: as `add`.
        """
        for value in python_values(values):
            acc = self.add(acc, value)
        return acc

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.of is None else shown_selector(self.of)})"


def _as_seen(accumulator: Any) -> bytes | None:
    """What tells whether it has been changed; `None` of what can't be."""
    kind = type(accumulator)
    if kind in IMMUTABLE or (kind is tuple and IMMUTABLE.issuperset(map(type, accumulator))):
        return None
    try:
        return encode(accumulator)
    except EncodingError:
        return None  # it is refused as soon as it is to be kept


def python_values(values: pa.Array) -> list[Any]:
    """As a record has them."""
    return [row["values"] for row in rows(pa.record_batch([values], names=["values"]))]
