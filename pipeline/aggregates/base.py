"""The contract of aggregates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checkpoint.errors import Explained
from checkpoint.options import one_of
from pipeline.aggregates.selectors import Read, Selector, WhenMissing, check_selector, reading, shown_selector
from pipeline.errors import PipelineError
from pipeline.user_code import is_async, is_generator


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
        check_selector(name, of)
        try:
            one_of(missing, "missing", ("fail", "skip"))
        except ValueError as error:
            raise PipelineError(f"{name}: {error}") from None
        if where is not None and (not callable(where) or is_async(where) or is_generator(where)):
            raise PipelineError(f"{name}: where must be a function of the record that is true or false, not {where!r}")
        self.of, self.missing, self.where = of, missing, where

    def create(self) -> Any:
        """The accumulator of no record."""
        raise NotImplementedError(f"{type(self).__name__} must implement create")

    def add(self, acc: Any, value: Any) -> Any:
        """The accumulator with one more value.

        Raises:
            Unfit: it takes no such value.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement add")

    def merge(self, a: Any, b: Any) -> Any:
        """The accumulator of all that was added to `a`, and then to `b`."""
        raise NotImplementedError(f"{type(self).__name__} must implement merge")

    def result(self, acc: Any) -> Any:
        """What was added comes to this: a value that can travel."""
        raise NotImplementedError(f"{type(self).__name__} must implement result")

    def reader(self, label: str) -> Read:
        """A function that takes what is added out of a record and its timestamp: what `of` says, without the latter.

        Args:
            label: names the aggregate in errors.
        """
        return reading(self.of, self.missing, label)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.of is None else shown_selector(self.of)})"
