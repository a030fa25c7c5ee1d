"""What a source does with JSON record by record beside record batches from the source on, in one run.

`python -m pipeline.bench.formats [RECORDS] [ROUNDS]` starts a broker and runs the same job twice a round, source →
two steps → sink: `value_format="json"` with `map` and `filter`, and `ArrowJson` with `map_batches` twice. One record
in a hundred reaches the sink, so the input side is what is measured. Rates go from the moment that all subtasks run
until the job has ended; the first run of each kind warms up and doesn't count.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint.config import CheckpointConfig
from pipeline.bench.cpu import CpuMeter
from pipeline.bench.errors import BenchFailed
from pipeline.bench.input import RECORD_BYTES, records
from pipeline.bench.watch import is_over
from pipeline.broker import NativeBroker
from pipeline.broker.topics import create_topics, publish
from pipeline.job import Pipeline
from sinks import KafkaSink
from sources import ArrowJson, KafkaSource

Api = Literal["records", "arrow"]

_PARTITIONS: Final = 2
_SCHEMA: Final = pa.schema([("user", pa.string()), ("ts", pa.int64()), ("amount", pa.float64())])
_LARGE: Final = 99.0
"""Amounts go from 0 to 100."""


def _with_cents(record: dict[str, Any]) -> dict[str, Any]:
    return {"user": record["user"], "ts": record["ts"], "amount": record["amount"], "cents": record["amount"] * 100}


def _is_large(record: dict[str, Any]) -> bool:
    return bool(record["amount"] > _LARGE)


def _with_cents_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("cents", pc.multiply(batch["amount"], 100))


def _only_large(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.greater(batch["amount"], _LARGE))


def _job(name: str, servers: str, source: str, target: str, folder: str, api: Api) -> Pipeline:
    p = Pipeline(name, parallelism=1, checkpoints=CheckpointConfig(folder, interval=1.0))
    if api == "records":
        read = KafkaSource(servers, topics=[source], end="latest", value_format="json")
        stream = p.source("in", read).map(_with_cents).filter(_is_large)
    else:
        read = KafkaSource(servers, topics=[source], end="latest", value_format=ArrowJson(_SCHEMA))
        stream = p.source("in", read).map_batches(_with_cents_batch).map_batches(_only_large)
    stream.sink("out", KafkaSink(servers, topic=target, key="user", delivery="at_least_once"))
    return p


@dataclass(frozen=True)
class Run:
    rate: float
    """Records/s."""
    cpu: float
    """CPU seconds of the subtasks' processes for a million records."""


def measure(servers: str, source: str, target: str, count: int, api: Api) -> Run:
    """

    Raises:
        BenchFailed: the job did not end well.
    """
    name = f"weir-formats-{api}-{uuid.uuid4().hex[:6]}"
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        handle = _job(name, servers, source, target, f"file://{folder}", api).start(restore="none")
        meter = CpuMeter()
        try:
            while not is_over(handle):
                time.sleep(0.02)
                meter.sample(set(handle.processes().values()))
            ended, running = time.monotonic(), handle.running_since
        finally:
            handle.cancel()
    if handle.status != "finished" or handle.restarts or running is None:
        raise BenchFailed(f"the job {handle.status} after {handle.restarts} restarts: {handle.failure}")
    return Run(count / (ended - running), 1e6 * meter.seconds / count)


def main(count: int = 2_000_000, rounds: int = 3) -> None:
    with NativeBroker.start() as broker:
        servers = broker.bootstrap_servers
        create_topics(servers, {"in": _PARTITIONS, "out": _PARTITIONS})
        print(f"publishing {count:,} records of {RECORD_BYTES} bytes")
        publish(servers, "in", records(count))
        runs: dict[Api, list[Run]] = {"records": [], "arrow": []}
        for number in range(rounds + 1):
            for api in runs:
                run = measure(servers, "in", "out", count, api)
                name = f"round {number}" if number else "warm-up"
                print(f"{name}: {api}: {run.rate:,.0f} records/s, {run.cpu:.2f} CPU s for a million", flush=True)
                if number:
                    runs[api].append(run)
        for what, value, unit in (("rate", "rate", "records/s"), ("CPU", "cpu", "s for a million")):
            row, column = (statistics.median(getattr(run, value) for run in runs[api]) for api in runs)
            print(f"{what}: records {row:,.2f} {unit}, arrow {column:,.2f}: {column / row:.2f} times")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
