"""A user's file, for type checkers only: `assert_type` is what they must see, `error` where they must complain."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

from pipeline import AsyncFunction, Count, KeyedOperator, Operator, Pipeline, Tumbling, ValueState
from pipeline.operators import OperatorContext
from pipeline.streams import KeyedStream, Stream
from sinks import KafkaSink, PrintSink
from sinks.sink import Sink
from sources import FileSource, KafkaSource, SequenceSource


@dataclass
class Order:
    user: str
    amount: float


@dataclass
class Total:
    user: str
    total: float


class Rule(TypedDict):
    user: str
    limit: float


class RunningTotal(KeyedOperator[Order, Total]):
    total = ValueState(default=0.0)

    def process(self, value: Order, ctx: OperatorContext) -> Iterator[Total]:
        self.total.value += value.amount
        yield Total(value.user, self.total.value)


class Limited(KeyedOperator[Order, str, Rule]):
    def process(self, value: Order, ctx: OperatorContext) -> Iterable[str]:
        return [value.user]

    def process_connected(self, value: Rule, ctx: OperatorContext) -> None:
        return None

    def on_timer(self, timestamp: int, ctx: OperatorContext) -> Iterable[str]:
        return [str(timestamp)]


class Plain(Operator):
    def process(self, value: dict[str, Any], ctx: OperatorContext) -> Iterator[int]:
        yield 1


class WrongOutput(Operator[Order, Total]):
    def process(self, value: Order, ctx: OperatorContext) -> Iterable[str]:  # error
        return []


class WrongInput(Operator[Order, Total]):
    def process(self, value: str, ctx: OperatorContext) -> Iterable[Total]:  # error
        return []


class TotalSink(Sink[Total], ABC):
    pass


async def ask(order: Order) -> str:
    return order.user


async def ask_many(orders: list[Order]) -> list[str]:
    return [order.user for order in orders]


class Client(AsyncFunction):
    async def __call__(self, value: Any) -> Any:
        return value


def typed(p: Pipeline, totals_sink: TotalSink) -> None:
    orders = p.source("orders", KafkaSource("b:9092", ["orders"], value_type=Order))
    assert_type(orders, Stream[Order])
    assert_type(p.source("rules", FileSource("/rules", format="jsonl", value_type=Rule)), Stream[Rule])
    assert_type(p.source("any", KafkaSource("b:9092", ["any"])), Stream[Any])
    assert_type(p.source("files", FileSource("/files")), Stream[Any])
    assert_type(p.source("ids", SequenceSource(10)).map(lambda record: record["id"]), Stream[int])

    assert_type(orders.filter(lambda order: order.amount > 1), Stream[Order])
    assert_type(orders.filter_not(lambda order: order.amount > 1), Stream[Order])
    assert_type(orders.peek(print), Stream[Order])
    assert_type(orders.limit_rate(10), Stream[Order])
    assert_type(orders.map(lambda order: order.amount), Stream[float])
    branches = orders.split(large=lambda order: order.amount > 100)
    assert_type(branches.large, Stream[Order])
    assert_type(branches["default"], Stream[Order])

    by_user = orders.key_by(lambda order: order.user)
    assert_type(by_user, KeyedStream[Order])
    once: Stream[Order] = by_user.distinct(within=60)
    late: Stream[Order] = by_user.distinct(within=60).late()
    table: Stream[Order] = by_user.latest_by_key(deleted=lambda order: order.amount < 0)
    assert_type(by_user.reduce(lambda a, b: a if a.amount > b.amount else b), Stream[Order])
    counts: Stream[dict[str, Any]] = by_user.aggregate(n=Count())

    minutes = by_user.window(Tumbling(60)).aggregate(n=Count())
    counts = minutes
    assert_type(minutes.late(), Stream[Order])

    assert_type(orders.map_async(ask), Stream[str])
    assert_type(orders.map_async(ask_many, batch_size=10), Stream[str])
    assert_type(orders.map_async(Client(), batch_size=10), Stream[Any])

    totals = by_user.process("totals", RunningTotal())
    assert_type(totals, Stream[Total])
    assert_type(by_user.process("plain", Plain()), Stream[Any])
    rules = p.source("rules", FileSource("/rules", format="jsonl", value_type=Rule))
    both = by_user.connect(rules.key_by("user")).process("limited", Limited())
    assert_type(both, Stream[str])

    totals.sink("totals", totals_sink)
    totals.sink("printed", PrintSink())
    once.union(late, table).sink("kafka", KafkaSink("b:9092", "out"))
    counts.sink("counts", PrintSink())

    orders.map(lambda order: order.amout)  # error
    orders.map_async(ask_many)  # error
    orders.map_async(ask, batch_size=10)  # error
    orders.filter(lambda order: order.amount + "x")  # error
    orders.split(large=lambda order: order.colour)  # error
    orders.key_by(lambda order: order.id)  # error
    totals.process("wrong", RunningTotal())  # error
    by_user.connect(orders.key_by("user")).process("wrong", Limited())  # error
    orders.sink("wrong", totals_sink)  # error
    wrong: Stream[str] = orders  # error
    wrong.sink("wrong", PrintSink())
