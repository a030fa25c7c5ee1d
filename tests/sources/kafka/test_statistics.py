"""What a KafkaSource reports of itself: lag, fetches, and what was fetched in vain."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from deadlines import PATIENCE

from pipeline.testing import KafkaBroker
from sources import END
from sources.kafka import reader as reader_module
from sources.kafka.statistics import FetchStatistics

MakeTopic = Callable[..., str]
OpenSubtask = Callable[..., Any]


@pytest.fixture(autouse=True)
def _lag_at_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_LAG_EVERY_S", 0.0)
    monkeypatch.setattr("sources.kafka.lag._ASK_EVERY_S", 0.1)


def lag_becomes(reading: Any, lag: int) -> None:
    """Polls, without taking a record, until the gauge says so."""
    deadline = time.monotonic() + PATIENCE
    while reading.metrics.gauges.get("recordsLag") != lag:
        assert time.monotonic() < deadline, reading.metrics.gauges
        assert reading.poll() is None


@pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
def test_the_lag_of_a_closed_source_grows_although_nothing_is_fetched(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask, request: pytest.FixtureRequest, long: bool
) -> None:
    if long:
        request.getfixturevalue("pauses_at_once")
    topic = make_topic(partitions=2)
    kafka.produce(topic, [{"id": i} for i in range(10)], partition=lambda value: value["id"] % 2)
    reading = subtask(topics=[topic], fetch_budget=4 * 1024 * 1024)
    reading.read(4, max_records=4)
    reading.reader.pause()
    lag_becomes(reading, 6)
    # More than the client takes before its queue is full: it has never heard of the last ones.
    kafka.produce(topic, [b"x" * 10_000] * 1500, partition=0)
    lag_becomes(reading, 1506)
    kafka.produce(topic, [{"id": 0}] * 7, partition=1)
    lag_becomes(reading, 1513)


def test_the_lag_is_nothing_once_all_is_read_though_markers_and_aborted_records_come_last(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for commit in (True, False):
        producer.begin_transaction()
        for i in range(5):
            producer.produce(topic, b'{"id": %d}' % i, partition=0)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.flush(10)
            producer.abort_transaction(30)
    reading = subtask(topics=[topic])
    reading.read(5)

    lag_becomes(reading, 0)


def test_records_of_an_open_transaction_count_as_lag(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    kafka.produce(topic, [{"id": 0}])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, b"{}", partition=0)
    assert producer.flush(10) == 0
    reading = subtask(topics=[topic])
    reading.read(1)

    lag_becomes(reading, 3)
    producer.abort_transaction(30)
    lag_becomes(reading, 0)


def test_an_idle_source_has_no_lag_whether_its_partitions_were_ever_written_to_or_not(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic(partitions=2)
    kafka.produce(topic, [{"id": 0}] * 3, partition=0)
    reading = subtask(topics=[topic], start="latest")

    lag_becomes(reading, 0)
    assert reading.positions() == {(topic, 0): 3, (topic, 1): 0}


def test_the_lag_of_a_bounded_source_counts_to_its_end_and_is_nothing_there(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic()
    kafka.produce(topic, [{"id": i} for i in range(20)])
    reading = subtask(topics=[topic], end="latest")
    kafka.produce(topic, [{"id": i} for i in range(20, 50)])
    reading.read(15, max_records=5)
    monkeypatch.setattr(reader_module, "_LAG_EVERY_S", 10_000.0)  # told of now, and not again before the end
    reading.read(1, max_records=1)
    assert reading.metrics.gauges["recordsLag"] == 5
    reading.read(4)
    assert reading.poll() is END
    assert reading.metrics.gauges["recordsLag"] == 0


def test_the_lag_of_a_source_that_is_held_up_is_told_at_its_barriers(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task neither polls nor emits, but takes barriers, and those that call the client are served then."""
    monkeypatch.setattr(reader_module, "_UNPOLLED_S", 0.0)
    topic = make_topic()
    kafka.produce(topic, [{"id": i} for i in range(20)])
    reading = subtask(topics=[topic], config={"statistics.interval.ms": 50})
    batch = reading.next_batch(10)
    kafka.produce(topic, [{"id": i} for i in range(20, 50)])
    deadline = time.monotonic() + PATIENCE
    checkpoint = 0
    while reading.metrics.gauges.get("recordsLag") != 50 - 1 or reading.metrics.counters.get("recordsFetched") != 50:
        assert time.monotonic() < deadline, reading.metrics
        checkpoint += 1
        assert reading.reader.snapshot(checkpoint, 1)["splits"][0][3] == 1

    read = [value["id"] for value in batch.values + reading.read(50 - len(batch))]
    assert read == list(range(50))


def test_what_is_fetched_and_what_is_fetched_in_vain_is_counted(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask, request: pytest.FixtureRequest
) -> None:
    topic = make_topic()
    values = [b"x" * 998 for _ in range(1000)]
    kafka.produce(topic, values, key=lambda value: b"kk")
    reading = subtask(topics=[topic], value_format="bytes", config={"statistics.interval.ms": 50})
    counted = reading.metrics.counters
    reading.read(10, max_records=10)
    _poll_until(reading, lambda: counted.get("recordsFetched", 0) == 1000, held_up=True)
    assert counted["bytesFetched"] == 1_000_000
    assert counted.get("bytesRefetched", 0) == 0

    request.getfixturevalue("pauses_at_once")
    reading.reader.pause()
    in_vain = 1000 * (1000 - 10 - len(reading.reader._held))  # all that the pause threw away
    _poll_until(reading, lambda: counted["bytesRefetched"] == in_vain)
    reading.reader.resume()
    reading.read(990)
    _poll_until(reading, lambda: counted["bytesFetched"] == 1_000_000 + in_vain)
    assert counted["bytesRefetched"] == in_vain > 0


def _poll_until(reading: Any, condition: Callable[[], bool], held_up: bool = False) -> None:
    """Polls that bring no records, as the gate is closed or there are none."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, reading.metrics.counters
        if held_up:
            reading.reader._serve_client()
            time.sleep(0.02)  # each call takes a record, of which many are to be left when statistics come
        else:
            assert reading.poll() is None


def test_a_count_of_what_was_fetched_in_vain_never_goes_back() -> None:
    """Statistics are older than what was handed over in the meantime."""

    class Counts(dict[str, float]):
        def count(self, name: str, n: float = 1) -> None:
            assert n >= 0
            self[name] = self.get(name, 0) + n

        def gauge(self, name: str, value: float | str | None) -> None: ...

    counts = Counts()
    statistics = FetchStatistics(counts)
    topics = '"topics": {"t": {"partitions": {"0": {"fetchq_cnt": %d}}}}'
    template = '{"rxmsgs": %d, "rxmsg_bytes": %d, "brokers": {}, ' + topics + "}"
    statistics.handed_over(10)
    statistics.on_statistics(template % (100, 1000, 50))
    assert counts == {"recordsFetched": 100, "bytesFetched": 1000, "bytesRefetched": 400}
    statistics.handed_over(50)
    statistics.on_statistics(template % (120, 1200, 50))
    assert counts == {"recordsFetched": 120, "bytesFetched": 1200, "bytesRefetched": 400}
