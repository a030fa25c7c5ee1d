"""Rules against events: limits, which can change at any time, and orders, which are held against them.

    weir run examples/spending_limits.py

The limits are few and every subtask needs all of them, so they are broadcast and kept in `BroadcastState`. What a user
has spent belongs to the user, so it lies in the subtask that has the user's orders.
"""

from pipeline import BroadcastState, KeyedOperator, Pipeline, ValueState
from sinks import PrintSink
from sources import SequenceSource

USERS = ("ada", "bob", "cid")


def limit(record):
    """Turns {"id": 1, "partition": 0} into a limit for one of the first two users; the third has none."""
    return {"user": USERS[record["id"]], "limit": 20 + 20 * record["id"]}


def order(record):
    return {"user": USERS[record["id"] % 3], "amount": record["id"] % 10}


class HoldAgainstLimit(KeyedOperator):
    limits = BroadcastState()
    spent = ValueState(default=0)

    def process(self, order, ctx):
        self.spent.value += order["amount"]
        limit = self.limits.get(ctx.key)
        if limit is not None and self.spent.value > limit:
            yield {"user": ctx.key, "spent": self.spent.value, "limit": limit}

    def process_connected(self, rule, ctx):
        # The only place where `limits` may be changed: every subtask gets this record, none has a key here.
        self.limits[rule["user"]] = rule["limit"]


p = Pipeline("spending-limits", parallelism=2)
limits = p.source("limits", SequenceSource(2), parallelism=1).map(limit)
(
    p.source("orders", SequenceSource(60, rate=30))
    .map(order)
    .key_by("user")
    .connect(limits.broadcast())
    .process("alerts", HoldAgainstLimit())
    .sink("out", PrintSink())
)
