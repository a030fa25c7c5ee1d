"""Running results: what the records of a key have come to so far, one for each record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from checkpoint.options import Seconds
from checkpoint.state import TTL, ReducingState, ValueState
from pipeline.aggregates.aggregation import Accumulators, Aggregation
from pipeline.aggregates.base import Aggregate
from pipeline.operators import KeyedOperator, OperatorContext


class RunningAggregate(KeyedOperator):
    """Emits the results of the current key's records for each of them."""

    accumulators: ValueState[Accumulators | None] = ValueState()

    def __init__(self, aggregates: Mapping[str, Aggregate]) -> None:
        self._aggregates = dict(aggregates)

    def open(self, ctx: OperatorContext) -> None:
        aggregation = Aggregation(self._aggregates)
        self._add, self._result, self._nothing = aggregation.add, aggregation.keyed_result, aggregation.create()
        self._put = self.accumulators.put_checked

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        after = self._add(self.accumulators.value or self._nothing, value, ctx.timestamp)
        self._put(after)
        return (self._result(after, ctx.key),)

    def snapshot(self, checkpoint_id: int) -> Any:
        return Aggregation(self._aggregates).layout

    def restore(self, state: Any) -> None:
        Aggregation(self._aggregates).check_layout("a running aggregate", state)


class RunningReduce(KeyedOperator):
    """Emits for each record what the current key's records are reduced to."""

    reduced: ReducingState[Any]

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        self.reduced.add(value)
        return (self.reduced.value,)


def running_aggregate(aggregates: Mapping[str, Aggregate], ttl: TTL | Seconds | None) -> KeyedOperator:
    """`ttl`: how long a key's accumulators live after its last record; `None` = for ever."""

    class Aggregating(RunningAggregate):
        accumulators = ValueState(ttl=ttl)

    return Aggregating(aggregates)


def running_reduce(function: Callable[[Any, Any], Any], ttl: TTL | Seconds | None) -> KeyedOperator:
    """`ttl`: as of `running_aggregate`."""

    class Reducing(RunningReduce):
        reduced = ReducingState(function, ttl=ttl)

    return Reducing()
