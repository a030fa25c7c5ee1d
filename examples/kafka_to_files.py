"""Orders from Kafka to Parquet files, exactly once, in a folder for each country.

    weir kafka --topic orders:2                          # in another terminal; any broker does
    WEIR_EXAMPLE_KAFKA=localhost:9092 weir run examples/kafka_to_files.py

Each checkpoint that completes makes its files visible, in <folder>/country=NZ/part-….parquet. It reads for ever; Ctrl-C
ends it, and the next run goes on where it was. With WEIR_EXAMPLE_END=latest it ends where the topic ends now.
"""

import os
import tempfile

import pyarrow as pa

from pipeline import CheckpointConfig, Pipeline
from sinks import FileSink
from sources import KafkaSource

SERVERS = os.environ.get("WEIR_EXAMPLE_KAFKA", "localhost:9092")
ORDERS = os.environ.get("WEIR_EXAMPLE_ORDERS", "orders")
FOLDER = os.environ.get("WEIR_EXAMPLE_FOLDER", os.path.join(tempfile.gettempdir(), "weir-orders"))
CHECKPOINTS = os.environ.get("WEIR_EXAMPLE_CHECKPOINTS", os.path.join(tempfile.gettempdir(), "weir-examples"))

SCHEMA = pa.schema([("id", pa.int64()), ("country", pa.string()), ("amount", pa.float64())])


def as_row(order):
    return {"id": order["id"], "country": order.get("country"), "amount": float(order["amount"])}


p = Pipeline("orders-to-files", parallelism=2, checkpoints=CheckpointConfig(CHECKPOINTS, interval=60))
(
    p.source("orders", KafkaSource(SERVERS, topics=[ORDERS], end=os.environ.get("WEIR_EXAMPLE_END")))
    .map(as_row)
    .sink("files", FileSink(FOLDER, schema=SCHEMA, partition_by="country"))
)
