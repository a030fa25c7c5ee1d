"""Word counts from Kafka to Kafka, exactly once: each line of text gives the new count of each of its words.

    weir kafka --topic lines:2 --topic counts:2          # in another terminal; any broker does
    WEIR_EXAMPLE_KAFKA=localhost:9092 weir run examples/kafka_to_kafka.py

It reads for ever; Ctrl-C ends it, and the next run goes on where it was. With WEIR_EXAMPLE_END=latest it ends where
the topic ends now. Read `counts` with isolation.level=read_committed.
"""

import os
import re
import tempfile

from pipeline import CheckpointConfig, KeyedOperator, Pipeline, ValueState
from sinks import KafkaSink
from sources import KafkaSource

SERVERS = os.environ.get("WEIR_EXAMPLE_KAFKA", "localhost:9092")
LINES = os.environ.get("WEIR_EXAMPLE_LINES", "lines")
COUNTS = os.environ.get("WEIR_EXAMPLE_COUNTS", "counts")
CHECKPOINTS = os.environ.get("WEIR_EXAMPLE_CHECKPOINTS", os.path.join(tempfile.gettempdir(), "weir-examples"))


def words(line):
    return re.findall(r"\w+", line.lower())


class Count(KeyedOperator):
    count = ValueState(default=0)

    def process(self, word, ctx):
        self.count.value += 1
        yield {"word": word, "count": self.count.value}


p = Pipeline("word-count", parallelism=2, checkpoints=CheckpointConfig(CHECKPOINTS, interval=1))
(
    p.source(
        "lines",
        KafkaSource(SERVERS, topics=[LINES], value_format="str", end=os.environ.get("WEIR_EXAMPLE_END")),
    )
    .flat_map(words)
    .key_by(lambda word: word)
    .process("count", Count())
    .sink("counts", KafkaSink(SERVERS, topic=COUNTS, key="word"))
)
