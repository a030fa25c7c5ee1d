"""Greets each user at the first order and after a break, with state that is forgotten on its own.

    weir run examples/first_orders.py

A user who has ordered nothing for 5 s of event time is forgotten. Nobody clears the state: it has a time to live.
"""

from pipeline import TTL, KeyedOperator, Pipeline, ValueState, WatermarkStrategy
from sinks import PrintSink
from sources import SequenceSource


def order(record):
    """Turns {"id": 17, "partition": 0} into an order; one each second, all of ada's first ten and last ten seconds."""
    at = record["id"]
    return {"user": "ada" if at < 10 or at >= 20 else "bob", "at": 1000 * at}


class Greet(KeyedOperator):
    known = ValueState(default=False, ttl=TTL(5, time="event"))

    def process(self, order, ctx):
        if not self.known.value:
            yield {"user": ctx.key, "greeted": order["at"]}
        self.known.value = True  # each order lets it live on


p = Pipeline("first-orders", parallelism=2)
(
    p.source("orders", SequenceSource(30, rate=30), parallelism=1)
    .map(order)
    .assign_timestamps(WatermarkStrategy.bounded("at", lateness=0))
    .key_by("user")
    .process("greet", Greet())
    .sink("out", PrintSink())
)
