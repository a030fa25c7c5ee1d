"""A running total per user, from topic to topic. Where the broker and the checkpoints are, compose.yaml says.

docker compose up -d
echo '{"user": "ada", "amount": 3}' | docker compose exec -T orders weir kafka produce orders --key user
docker compose exec orders weir kafka consume totals --read-committed --count 1
docker compose exec orders weir status orders
"""

import os

from pipeline import KeyedOperator, Pipeline, ValueState
from sinks import KafkaSink
from sources import KafkaSource

BROKER = os.environ.get("WEIR_KAFKA_BOOTSTRAP", "localhost:9094")


class RunningTotal(KeyedOperator):
    total = ValueState(default=0)

    def process(self, order, ctx):
        self.total.value += order["amount"]
        yield {"user": ctx.key, "total": self.total.value}


p = Pipeline("orders")
(
    p.source("orders", KafkaSource(BROKER, topics=["orders"], value_format="json"))
    .key_by("user")
    .process("totals", RunningTotal())
    .sink("out", KafkaSink(BROKER, topic="totals", key="user"))
)
