"""The job: two source subtasks that could give a multiple of what two slow operators take, keyed between them."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Sequence
from typing import Any, Final

import orjson

from checkpoint.state import ValueState
from pipeline.bench.backpressure.load import Load
from pipeline.bench.backpressure.variants import PARALLELISM, Settings, Variant
from pipeline.bench.input import RECORD_BYTES, USERS
from pipeline.job import Pipeline
from pipeline.operators import KeyedOperator, OperatorContext
from pipeline.runtime.driver.restart import RestartStrategy
from sinks.sink import Sink, SinkBatch, SinkWriter, WriterContext
from sources.rate_limit import RateLimit
from sources.sequence import SequenceReader, SequenceSource
from sources.source import End, SourceBatch, SourceContext, SourceReader

SOURCE: Final = "records"
OPERATOR: Final = "slow"
_PARTITIONS: Final = 12
"""Partitions of the source. With up to four subtasks each has the same number of them."""
_LOOK_EACH: Final = 64
"""Records between two looks at the load while it doesn't slow the operators down."""
_STRIDE: Final = 7919
"""A prime, so that neighbours have different users and all users come equally often."""
_NOISE: Final = base64.b64encode(random.Random(7).randbytes(3 << 18)).decode()
"""A MiB that doesn't compress: what records in flight cost a checkpoint must not depend on what fills them up."""


class RecordSource(SequenceSource):
    """Numbered records of 110 bytes (as JSON), without end."""

    def __init__(self, variant: Variant) -> None:
        super().__init__(None, partitions=_PARTITIONS)
        self.load = variant.load
        self.shares = variant.shares
        self.active_backpressure = variant.gate
        self.span_window = variant.window
        self.max_span_records = variant.max_span_records

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        return _RecordReader(self, ctx)


class _RecordReader(SequenceReader):
    """Its rate follows the load from the first poll on."""

    def __init__(self, source: RecordSource, ctx: SourceContext) -> None:
        super().__init__(source, ctx)
        self._load = source.load
        self._share = source.shares[ctx.subtask] / sum(source.shares) if source.shares else 1 / ctx.parallelism
        self._began: float | None = None
        self._rate = 0.0
        """Records/s of this subtask, now."""

    def poll(self, max_records: int, timeout: float) -> SourceBatch | End | None:
        now = time.monotonic()
        if self._began is None:
            self._began = now
        self._follow(self._share * self._load.rate_at(now - self._began), now)
        if not self._rate:
            time.sleep(timeout)
            return None
        polled = super().poll(max_records, timeout)
        if isinstance(polled, SourceBatch):
            values = [record(numbered["id"]) for numbered in polled.values]
            return SourceBatch(values, size=RECORD_BYTES * len(values))
        return polled

    def _follow(self, rate: float, now: float) -> None:
        if rate == self._rate:
            return
        self._rate = rate
        if not rate:
            return
        if self._limit is None:
            self._limit = RateLimit(rate, now)
        else:
            self._limit.set_rate(rate, now)


def record(id: int) -> dict[str, Any]:
    """Record number `id`: 110 bytes as JSON."""
    made = {"user": f"u{id * _STRIDE % USERS}", "amount": id % 100, "id": id, "pad": ""}
    missing = RECORD_BYTES - len(orjson.dumps(made))
    start = id * missing % (len(_NOISE) - missing)
    made["pad"] = _NOISE[start : start + missing]
    return made


class SlowSum(KeyedOperator):
    """A running sum that takes as long for a record as the load says, from the first record on."""

    total = ValueState(default=0)

    def __init__(self, load: Load) -> None:
        self.load = load

    def open(self, ctx: OperatorContext) -> None:
        self._delay = self.load.delay_at(0.0)
        self._changes = self.load.change is not None and self.load.change.delay is not None
        self._began: float | None = None
        self._unlooked = 0
        """Records that go by without a look at the load."""

    def process(self, value: dict[str, Any], ctx: OperatorContext) -> list[dict[str, Any]]:
        if self._changes:
            self._follow()
        if self._delay:
            time.sleep(self._delay)
        total = self.total.value = self.total.value + value["amount"]
        return [{"user": value["user"], "total": total}]

    def _follow(self) -> None:
        self._unlooked -= 1
        if self._unlooked > 0:
            return
        now = time.monotonic()
        if self._began is None:
            self._began = now
        self._delay = self.load.delay_at(now - self._began)
        self._unlooked = 1 if self._delay else _LOOK_EACH


class DropSink(Sink):
    """Takes all and keeps nothing."""

    def create_writer(self, ctx: WriterContext) -> SinkWriter:
        return _Dropped()


class _Dropped(SinkWriter):
    def write_batch(self, batch: SinkBatch) -> None:
        pass

    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        return []


def job(variant: Variant, settings: Settings, folder: str, parallelism: int = PARALLELISM) -> Pipeline:
    """
    Raises:
        ValueError: this version of Weir can't run the variant.
    """
    interruption = variant.interruption
    restarted = interruption is not None and interruption.kind == "restart"
    p = Pipeline(
        f"backpressure-{variant.name}",
        parallelism=parallelism,
        checkpoints=variant.checkpoint_config(folder, settings),
        restart=RestartStrategy.fixed_delay(attempts=1) if restarted else RestartStrategy.none(),
        buffers=variant.buffer_config,
    )
    (
        p.source(SOURCE, RecordSource(variant), parallelism=len(variant.shares) or None)
        .key_by("user")
        .process(OPERATOR, SlowSum(variant.load))
        .sink("dropped", DropSink())
    )
    return p
