"""The job: two source subtasks that could give 100 times what two slow operators take, keyed between them."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Sequence
from typing import Any, Final

import orjson

from checkpoint.state import ValueState
from pipeline.bench.backpressure.variants import PARALLELISM, Settings, Variant
from pipeline.bench.input import RECORD_BYTES, USERS
from pipeline.job import Pipeline
from pipeline.operators import KeyedOperator, OperatorContext
from pipeline.runtime.driver.restart import RestartStrategy
from sinks.sink import Sink, SinkBatch, SinkWriter, WriterContext
from sources.sequence import SequenceReader, SequenceSource
from sources.source import End, SourceBatch, SourceContext, SourceReader

SOURCE: Final = "records"
OPERATOR: Final = "slow"
_STRIDE: Final = 7919
"""A prime, so that neighbours have different users and all users come equally often."""
_NOISE: Final = base64.b64encode(random.Random(7).randbytes(3 << 18)).decode()
"""A MiB that doesn't compress: what records in flight cost a checkpoint must not depend on what fills them up."""


class RecordSource(SequenceSource):
    """Numbered records of 110 bytes (as JSON), without end."""

    def __init__(self, rate: float, gate: bool, max_span_records: int | None) -> None:
        super().__init__(None, rate=rate)
        self.active_backpressure = gate
        self.max_span_records = max_span_records

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        return _RecordReader(self, ctx)


class _RecordReader(SequenceReader):
    def poll(self, max_records: int, timeout: float) -> SourceBatch | End | None:
        polled = super().poll(max_records, timeout)
        if isinstance(polled, SourceBatch):
            values = [record(numbered["id"]) for numbered in polled.values]
            return SourceBatch(values, size=RECORD_BYTES * len(values))
        return polled


def record(id: int) -> dict[str, Any]:
    """Record number `id`: 110 bytes as JSON."""
    made = {"user": f"u{id * _STRIDE % USERS}", "amount": id % 100, "id": id, "pad": ""}
    missing = RECORD_BYTES - len(orjson.dumps(made))
    start = id * missing % (len(_NOISE) - missing)
    made["pad"] = _NOISE[start : start + missing]
    return made


class SlowSum(KeyedOperator):
    """A running sum, `delay` seconds a record."""

    total = ValueState(default=0)

    def __init__(self, delay: float) -> None:
        self.delay = delay

    def process(self, value: dict[str, Any], ctx: OperatorContext) -> list[dict[str, Any]]:
        if self.delay:
            time.sleep(self.delay)
        total = self.total.value = self.total.value + value["amount"]
        return [{"user": value["user"], "total": total}]


class DropSink(Sink):
    """Takes all and keeps nothing."""

    def create_writer(self, ctx: WriterContext) -> SinkWriter:
        return _Dropped()


class _Dropped(SinkWriter):
    def write_batch(self, batch: SinkBatch) -> None:
        pass

    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        return []


def job(variant: Variant, settings: Settings, folder: str) -> Pipeline:
    """
    Raises:
        ValueError: this version of Weir can't run the variant.
    """
    p = Pipeline(
        f"backpressure-{variant.name}",
        parallelism=PARALLELISM,
        checkpoints=variant.checkpoint_config(folder, settings),
        restart=RestartStrategy.none(),
        buffers=variant.buffer_config,
    )
    (
        p.source(SOURCE, RecordSource(variant.rate, variant.gate, variant.max_span_records))
        .key_by("user")
        .process(OPERATOR, SlowSum(variant.delay))
        .sink("dropped", DropSink())
    )
    return p
