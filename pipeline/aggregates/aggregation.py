"""Several aggregates as one: what running results and windows keep for a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa

from checkpoint.options import nearest
from pipeline.aggregates.base import Aggregate, Step
from pipeline.errors import PipelineError

Accumulators: TypeAlias = tuple[Any, ...]
"""One of each aggregate."""
RESERVED: Final = ("key", "start", "end", "final")
"""Fields of results that aren't aggregates."""
_METHODS: Final = ("create", "add", "merge", "result")


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
            _check_methods(f"{method}: {name}", given)
            continue
        if isinstance(given, type) and issubclass(given, Aggregate):
            raise PipelineError(f"{method}: {name} is a class; give an instance, {given.__name__}(…)")
        if name == "id":
            raise PipelineError(f"{method}: the id of the step comes first, without a name: {method}({given!r}, …)")
        hint = nearest(name, options)
        raise PipelineError(
            f'{method}: {name}={given!r} is no aggregate such as Count() or Sum("amount"){hint or "."}'
            + (f" Its options: id (the first argument), {', '.join(options)}" if options else "")
        )
    return dict(aggregates)


def _check_methods(who: str, given: Aggregate) -> None:
    missing = [name for name in _METHODS if getattr(type(given), name) is getattr(Aggregate, name)]
    if missing:
        kind = type(given).__name__
        raise PipelineError(f"{who}: {kind} must implement {', '.join(missing)}, too: see Aggregate")


class Aggregation:
    """Aggregates by name, compiled: their accumulators are one tuple, which a record is added to in one call.

    The order of the tuple goes by the names, the order of the result is that in which they are given. Nothing here
    changes a tuple or an accumulator, so each can be kept and shared. State can hold each: it was looked at when it was
    made, so it may be put unchecked.
    """

    def __init__(self, aggregates: Mapping[str, Aggregate]) -> None:
        self.aggregates = dict(aggregates)
        """By the names of their results, in the order of the results' fields."""
        self.order: Final = tuple(sorted(aggregates))
        """The names in the order of accumulators."""
        ordered = [self.aggregates[name] for name in self.order]
        labels = [f"{name}={one!r}" for name, one in zip(self.order, ordered, strict=True)]
        self._labelled = list(zip(ordered, labels, strict=True))
        self._creates = [one.create for one in ordered]
        self.add: Final = _adding([one.step(label) for one, label in self._labelled])
        """From the accumulators, a record and its timestamp to the accumulators with that record.

        Raises:
            FieldMissing: the record lacks a field, or has `None` there.
            Unfit: an aggregate can't take the value.
            EncodingError: an aggregate keeps the value, which can't be encoded.
        """
        self.merge: Final = _merging([one.merger(label) for one, label in self._labelled])
        """From two tuples of accumulators to those of the records of both. Those of the second count as later where
        they have the same time."""
        self.result: Final = _giving(
            [(name, self.order.index(name), one) for name, one in self.aggregates.items()], keyed=False
        )
        """From the accumulators to the results by name."""
        self.keyed_result: Final = _giving(
            [(name, self.order.index(name), one) for name, one in self.aggregates.items()], keyed=True
        )
        """From the accumulators and a key to the key and the results by name."""

    @property
    def layout(self) -> dict[str, str]:
        """What each accumulator is, as a value for checkpoints. Tuples of another layout can't be taken over."""
        return {name: self.aggregates[name].kept_as for name in self.order}

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

    def add_batch(self, accumulators: Accumulators, batch: pa.RecordBatch, timestamps: pa.Array) -> Accumulators:
        """What `add` makes of all rows, one after the other.

        Args:
            timestamps: int64, null where a row has none.

        Raises: as `add`.
        """
        return tuple(
            [
                one.add_batch(acc, batch, timestamps, label)
                for acc, (one, label) in zip(accumulators, self._labelled, strict=True)
            ]
        )


def _adding(steps: list[Step]) -> Callable[[Accumulators, Any, int | None], Accumulators]:
    """One call for all steps. A loop over them would take as long as they do."""
    names = {f"step{i}": step for i, step in enumerate(steps)}
    calls = "".join(f"{name}(acc[{i}], record, timestamp), " for i, name in enumerate(names))
    adding: Callable[[Accumulators, Any, int | None], Accumulators]
    adding = _function(f"lambda acc, record, timestamp: ({calls})", names)
    return adding


def _merging(merges: list[Callable[[Any, Any], Any]]) -> Callable[[Accumulators, Accumulators], Accumulators]:
    names = {f"merge{i}": merge for i, merge in enumerate(merges)}
    calls = "".join(f"{name}(a[{i}], b[{i}]), " for i, name in enumerate(names))
    merging: Callable[[Accumulators, Accumulators], Accumulators]
    merging = _function(f"lambda a, b: ({calls})", names)
    return merging


def _giving(aggregates: list[tuple[str, int, Aggregate]], keyed: bool) -> Callable[..., dict[str, Any]]:
    names = {f"result{i}": one.result for _, i, one in aggregates if not one.result_is_accumulator}
    fields = ["'key': key"] if keyed else []
    for name, i, _ in aggregates:
        fields.append(f"{name!r}: result{i}(acc[{i}])" if f"result{i}" in names else f"{name!r}: acc[{i}]")
    giving: Callable[..., dict[str, Any]] = _function(
        f"lambda acc{', key' if keyed else ''}: {{{', '.join(fields)}}}", names
    )
    return giving


def _function(source: str, names: dict[str, Any]) -> Any:
    """`source` is made here, of names of results as literals and of numbers."""
    return eval(source, names)
