"""Kafka readers without a runtime around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from deadlines import PATIENCE

from pipeline.testing import KafkaBroker
from sources import END, KafkaSource, SourceBatch, SourceContext, SourceReader
from sources.kafka.client_pauses import PausePolicy


@dataclass
class Metrics:
    counters: dict[str, float] = field(default_factory=dict)
    gauges: dict[str, float | str | None] = field(default_factory=dict)

    def count(self, name: str, n: float = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + n

    def gauge(self, name: str, value: float | str | None) -> None:
        self.gauges[name] = value


@dataclass
class Subtask:
    """A reader, driven as the task thread drives it."""

    reader: SourceReader
    metrics: Metrics
    batches: list[SourceBatch] = field(default_factory=list)
    closed: bool = False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.reader.close()

    def poll(self, max_records: int = 10_000, timeout: float = 0.01) -> SourceBatch | Any:
        batch = self.reader.poll(max_records, timeout)
        if isinstance(batch, SourceBatch):
            assert 0 < len(batch) <= max_records
            self.batches.append(batch)
        return batch

    def next_batch(self, max_records: int = 10_000) -> SourceBatch:
        """The next records, however long they take."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            batch = self.poll(max_records)
            if isinstance(batch, SourceBatch):
                return batch
            assert batch is None, "the source ended"
        raise AssertionError(f"no records within {PATIENCE} s")

    def read(self, records: int, max_records: int = 10_000) -> list[Any]:
        """Exactly so many values."""
        values: list[Any] = []
        while len(values) < records:
            values += self.next_batch(min(max_records, records - len(values))).values
        return values

    def read_to_end(self, max_records: int = 10_000) -> list[Any]:
        """All values of a bounded source."""
        deadline = time.monotonic() + PATIENCE
        values: list[Any] = []
        while time.monotonic() < deadline:
            batch = self.poll(max_records)
            if batch is END:
                return values
            if batch is not None:
                values += batch.values
        raise AssertionError(f"the source did not end within {PATIENCE} s; it has read {len(values)} records")

    def stays_silent(self, polls: int = 30) -> bool:
        """Whether nothing comes for a while (and the source does not end)."""
        return all(self.poll() is None for _ in range(polls))

    def positions(self, checkpoint_id: int = 1, emitted: int | None = None) -> dict[tuple[str, int], int]:
        """The offsets of a snapshot."""
        if emitted is None:
            emitted = len(self.batches[-1]) if self.batches else 0
        return offsets(self.reader.snapshot(checkpoint_id, emitted))


def offsets(state: Any) -> dict[tuple[str, int], int]:
    return {(topic, partition): position for topic, partition, _, position, *_ in state["splits"]}


@pytest.fixture
def pauses_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closing counts as a long one from its beginning."""
    monkeypatch.setattr(PausePolicy, "due", lambda self, now: self.closed)


OpenSubtask = Callable[..., Subtask]


@pytest.fixture
def subtask(kafka: KafkaBroker) -> Iterator[OpenSubtask]:
    """`subtask(topics=[…], end="latest")`: a reader of a KafkaSource; closed at the end of the test."""
    opened: list[Subtask] = []

    def open_subtask(
        index: int = 0,
        parallelism: int = 1,
        restored: Sequence[Any] | None = None,
        track_splits: bool = False,
        **options: Any,
    ) -> Subtask:
        metrics = Metrics()
        ctx = SourceContext("p", "in", index, parallelism, metrics, restored, track_splits=track_splits)
        source = KafkaSource(kafka.bootstrap_servers, **options)
        opened.append(Subtask(source.create_reader(ctx), metrics))
        return opened[-1]

    yield open_subtask
    for one in opened:
        one.close()
