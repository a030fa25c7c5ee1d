"""Aggregates of the user's own, from functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checkpoint.options import named_arguments
from checkpoint.shown import shown
from checkpoint.state import StateAccessError
from checkpoint.state.defaults import check_factory
from pipeline.aggregates.base import Aggregate
from pipeline.aggregates.selectors import Selector, WhenMissing
from pipeline.errors import PipelineError
from pipeline.user_code import is_async, is_generator, returns_nothing, takes


@named_arguments
class Fold(Aggregate):
    """An aggregate made of functions. With names of their own they are better off in a subclass of `Aggregate`.

    longest = Fold("", add=lambda acc, word: max(acc, word, key=len), merge=lambda a, b: max(a, b, key=len), of="word")
    """

    def __init__(
        self,
        create: Any,
        add: Callable[[Any, Any], Any],
        merge: Callable[[Any, Any], Any],
        result: Callable[[Any], Any] | None = None,
        *,
        of: Selector = None,
        missing: WhenMissing = "fail",
        where: Callable[[Any], Any] | None = None,
    ) -> None:
        """
        Args:
            create: the accumulator of no record; or a function that makes it, as `list` does, which it must be if that
                can be changed.
            add: from an accumulator and a value to the next accumulator. It must leave the former as it is.
            merge: from two accumulators to that of both.
            result: from an accumulator to the result; `None` = it is the result.
            of, missing, where: see `Aggregate`.

        Raises:
            PipelineError: an argument is none of these, or no checkpoint can hold what `create` makes.
        """
        super().__init__(of, missing=missing, where=where)
        for name, function, arguments in (
            ("add", add, ("acc", "value")),
            ("merge", merge, ("a", "b")),
            ("result", result, ("acc",)),
        ):
            if function is None and name == "result":
                continue
            if not callable(function) or is_async(function) or is_generator(function) or returns_nothing(function):
                raise PipelineError(f"Fold: {name} must be a function that returns a value, not {shown(function)}")
            if not takes(function, len(arguments)):
                raise PipelineError(f"Fold: {name} can't be called with ({', '.join(arguments)}): {shown(function)}")
        self._create = create if callable(create) else (lambda: create)
        try:
            check_factory(self._create, "create, the accumulator of no record,")
        except (StateAccessError, ValueError, TypeError) as error:
            raise PipelineError(f"Fold: {error}") from error
        self._add, self._merge, self._result = add, merge, result

    def create(self) -> Any:
        return self._create()

    def add(self, acc: Any, value: Any) -> Any:
        return self._add(acc, value)

    def merge(self, a: Any, b: Any) -> Any:
        return self._merge(a, b)

    def result(self, acc: Any) -> Any:
        return acc if self._result is None else self._result(acc)
