"""Several aggregates as one: what running results and windows keep for a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from checkpoint.options import nearest
from pipeline.aggregates.base import Aggregate, Unfit
from pipeline.aggregates.selectors import SKIPPED
from pipeline.errors import PipelineError

Accumulators: TypeAlias = tuple[Any, ...]
"""One of each aggregate."""
RESERVED: Final = ("key", "start", "end", "final")
"""Fields of results that aren't aggregates."""

_Step: TypeAlias = Callable[[Any, Any, int | None], Any]
"""From an accumulator, a record and its timestamp to the next accumulator."""


def checked_aggregates(method: str, aggregates: Mapping[str, Any], options: Iterable[str] = ()) -> dict[str, Aggregate]:
    """What a method was given by name.

    Args:
        method: named in errors.
        options: what the method takes by name beside aggregates.

    Raises:
        PipelineError: it is none at all, has a reserved name, or is no aggregate.
    """
    if not aggregates:
        raise PipelineError(f"{method} needs an aggregate at least, by the name of its result: {method}(n=Count())")
    for name, given in aggregates.items():
        if name in RESERVED:
            raise PipelineError(
                f"{method}: a result can't be called {name!r}, which results have anyway ({', '.join(RESERVED)}); give "
                "it another name"
            )
        if isinstance(given, Aggregate):
            continue
        if isinstance(given, type) and issubclass(given, Aggregate):
            raise PipelineError(f"{method}: {name} is a class; give an instance, {given.__name__}(…)")
        hint = nearest(name, options)
        raise PipelineError(
            f'{method}: {name}={given!r} is no aggregate such as Count() or Sum("amount"){hint}'
            + (f" Its options: {', '.join(options)}" if hint else "")
        )
    return dict(aggregates)


class Aggregation:
    """Aggregates by name, compiled: their accumulators are one tuple, which a record is added to in one call.

    The order of the tuple goes by the names, the order of the result is that in which they are given. Nothing here
    changes a tuple or an accumulator: each can be kept, shared and put into state.
    """

    def __init__(self, aggregates: Mapping[str, Aggregate]) -> None:
        self.aggregates = dict(aggregates)
        """By the names of their results, in the order of the results' fields."""
        self.order: Final = tuple(sorted(aggregates))
        """The names in the order of accumulators."""
        ordered = [self.aggregates[name] for name in self.order]
        self._creates = [one.create for one in ordered]
        self._steps = [_step(one, f"{name}={one!r}") for name, one in zip(self.order, ordered, strict=True)]
        self._merges = [one.merge for one in ordered]
        self._results = [(name, self.order.index(name), one.result) for name, one in self.aggregates.items()]

    @property
    def layout(self) -> dict[str, str]:
        """What each accumulator is, as a value for checkpoints. Tuples of another layout can't be taken over."""
        return {name: type(self.aggregates[name]).__qualname__ for name in self.order}

    def check_layout(self, who: str, stored: Mapping[str, str]) -> None:
        """
        Args:
            who: the step, in errors.
            stored: the layout of restored accumulators.

        Raises:
            PipelineError: it is another one.
        """
        if dict(stored) == self.layout:
            return
        before, now = (
            ", ".join(f"{name}={kind}" for name, kind in sorted(layout.items())) for layout in (stored, self.layout)
        )
        raise PipelineError(
            f"{who}: the checkpoint has the aggregates {before}, and the step has {now} now. What was not counted then "
            "can't be made up for: give the step another id, so that it begins anew, and leave the old state behind, "
            "or keep its aggregates and add a step with others"
        )

    def create(self) -> Accumulators:
        """The accumulators of no record."""
        return tuple([create() for create in self._creates])

    def add(self, accumulators: Accumulators, record: Any, timestamp: int | None) -> Accumulators:
        """The accumulators with one more record.

        Raises:
            FieldMissing: the record lacks a field, or has `None` there.
            Unfit: an aggregate can't take the value.
        """
        return tuple([step(acc, record, timestamp) for step, acc in zip(self._steps, accumulators, strict=True)])

    def merge(self, a: Accumulators, b: Accumulators) -> Accumulators:
        """The accumulators of the records of both. Those of `b` came later where that counts."""
        return tuple([merge(one, other) for merge, one, other in zip(self._merges, a, b, strict=True)])

    def result(self, accumulators: Accumulators) -> dict[str, Any]:
        """The results by name."""
        return {name: result(accumulators[i]) for name, i, result in self._results}


def _step(aggregate: Aggregate, label: str) -> _Step:
    read, add, where = aggregate.reader(label), aggregate.add, aggregate.where

    def step(acc: Any, record: Any, timestamp: int | None) -> Any:
        if where is not None and not where(record):
            return acc
        value = read(record, timestamp)
        if value is SKIPPED:
            return acc
        try:
            return add(acc, value)
        except Unfit as error:
            raise Unfit(f"{label}: {error}") from None

    return step
