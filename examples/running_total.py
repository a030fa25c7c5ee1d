"""A running total per user over a made-up stream.

    weir run examples/running_total.py

The lines that it prints come from the job's own processes, and by way of Spark on standard error.
"""

from pipeline import KeyedOperator, Pipeline, ValueState
from sinks import PrintSink
from sources import SequenceSource


def order(record):
    """Turns {"id": 17, "partition": 0} into an order of one of three users."""
    return {"user": ("ada", "bob", "cid")[record["id"] % 3], "amount": record["id"] % 10}


class RunningTotal(KeyedOperator):
    total = ValueState(default=0)

    def process(self, order, ctx):
        self.total.value += order["amount"]
        yield {"user": ctx.key, "total": self.total.value}


p = Pipeline("running-total", parallelism=2)
(
    p.source("orders", SequenceSource(30))
    .map(order)
    .key_by("user")
    .process("totals", RunningTotal())
    .sink("out", PrintSink())
)
