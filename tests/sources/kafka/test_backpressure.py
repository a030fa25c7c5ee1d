"""KafkaSource when the job can't keep up: closed, slow, limited, with large records, without a broker."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from pipeline.testing import KafkaBroker
from sources import KafkaSource, SourceContext
from sources.kafka.client_pauses import PausePolicy

MakeTopic = Callable[..., str]
OpenSubtask = Callable[..., Any]
MIB = 1024 * 1024


def numbered(n: int, start: int = 0) -> list[dict[str, int]]:
    return [{"id": i} for i in range(start, start + n)]


def ids(values: list[Any]) -> list[int]:
    return [value["id"] for value in values]


# -- closed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
def test_a_closed_source_is_polled_emits_nothing_and_goes_on_where_it_was(
    kafka: KafkaBroker,
    make_topic: MakeTopic,
    subtask: OpenSubtask,
    request: pytest.FixtureRequest,
    long: bool,
) -> None:
    if long:
        request.getfixturevalue("pauses_at_once")
    topic = make_topic(partitions=2)
    kafka.produce(topic, numbered(100), partition=lambda value: value["id"] % 2)
    reading = subtask(topics=[topic])
    seen: list[int] = []
    for start in (100, 200, 300):
        seen += ids(reading.read(30, max_records=30))
        reading.reader.pause()
        before = reading.positions(emitted=30)
        kafka.produce(topic, numbered(100, start=start), partition=lambda value: value["id"] % 2)
        assert reading.stays_silent()
        assert reading.positions(emitted=0) == before
        reading.reader.resume()
    seen += ids(reading.read(400 - len(seen)))

    assert sorted(seen) == list(range(400))
    assert [i for i in seen if i % 2 == 0] == list(range(0, 400, 2))
    assert reading.stays_silent()


@pytest.mark.usefixtures("pauses_at_once")
def test_a_partition_found_while_paused_is_paused_too(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    reading = subtask(topics=[topic], discovery_interval=0.1)
    reading.reader.pause()
    assert reading.poll() is None
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, numbered(5), partition=1)
    while (topic, 1) not in reading.positions():
        assert reading.poll() is None
    assert reading.stays_silent(polls=200)  # the client takes about a second to learn of the partition
    assert reading.positions() == {(topic, 0): 0, (topic, 1): 0}
    assert not reading.reader._held  # nothing was fetched: it would be kept, without bounds
    reading.reader.resume()

    assert ids(reading.read(5)) == list(range(5))


def test_a_stall_beyond_the_poll_interval_neither_evicts_nor_redelivers(
    kafka: KafkaBroker, make_topic: MakeTopic, unique_name: Callable[[str], str], subtask: OpenSubtask
) -> None:
    topic = make_topic()
    kafka.produce(topic, numbered(1000))
    limits = {"max.poll.interval.ms": 500, "session.timeout.ms": 500, "heartbeat.interval.ms": 100}
    reading = subtask(topics=[topic], group_id=unique_name("group"), config=limits)
    seen = ids(reading.read(100, max_records=100))
    time.sleep(1.5)  # the stall itself
    seen += ids(reading.read(900))

    assert seen == list(range(1000))
    assert reading.stays_silent()


def test_an_hour_of_alternating_load_fetches_at_most_a_fifth_more_than_it_delivers() -> None:
    """However much is delivered between closings of whatever length; a pause fetches the whole prefetch again."""
    prefetch = 8 * MIB
    for rate in (50_000, 1 * MIB, 30 * MIB):
        for open_s, closed_s in ((0.1, 0.5), (1, 2), (5, 15), (1, 60)):
            policy = PausePolicy(prefetch)
            delivered = fetched = 0.0
            now = 0.0
            while now < 3600:
                delivered += rate * open_s
                fetched += rate * open_s
                policy.delivered(int(rate * open_s))
                now += open_s
                policy.close(now)
                paused = False
                for _ in range(int(closed_s * 10)):
                    now += 0.1
                    if not paused and policy.due(now):
                        policy.paused()
                        paused = True
                        fetched += prefetch
                policy.open()
            assert fetched / delivered <= 1.2, (rate, open_s, closed_s)


def test_a_long_closing_of_a_busy_source_pauses_and_a_short_one_does_not() -> None:
    policy = PausePolicy(prefetch_bytes=MIB)
    policy.delivered(10 * MIB)
    policy.close(now=5.0)

    assert not policy.due(5.9)
    assert policy.due(6.0)
    policy.paused()
    policy.open()
    policy.close(now=10.0)
    assert not policy.due(100.0)  # the last refetch is not paid off yet


# -- latency, rate, size ---------------------------------------------------------------------------------------------


def test_at_ten_messages_a_second_none_waits_for_a_full_batch(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    reading = subtask(topics=[topic])
    assert reading.poll() is None
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})
    stop = threading.Event()

    def produce() -> None:
        while not stop.wait(0.1):
            producer.produce(topic, json.dumps({"sent": time.time()}).encode())
            producer.poll(0)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        medians = []
        while len(medians) < 5 and min(medians, default=1.0) >= 0.1:  # a busy machine may spoil some rounds
            latencies = []
            for _ in range(15):
                oldest = reading.next_batch().values[0]
                latencies.append(time.time() - oldest["sent"])
            medians.append(statistics.median(latencies))
    finally:
        stop.set()
        thread.join()
        producer.flush(10)

    assert min(medians) < 0.1, medians


def test_the_rate_is_shared_by_subtasks_with_partitions(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic(partitions=2)
    kafka.produce(topic, numbered(100), partition=lambda value: value["id"] % 2)
    subtasks = [subtask(i, 3, topics=[topic], rate_limit=200) for i in range(3)]
    working = [one for one in subtasks if one.positions()]
    assert len(working) == 2
    for one in working:
        one.read(1)

    started = time.monotonic()
    for one in working:
        one.read(30)
    assert time.monotonic() - started >= 0.15  # 30 more at 100/s, less a burst of 10 and what was saved up meanwhile


def test_batches_of_large_records_are_small(kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask) -> None:
    topic = make_topic()
    kafka.produce(topic, [b"x" * 175_000] * 40)
    reading = subtask(topics=[topic], value_format="bytes")
    reading.read(40)

    assert max(batch.size for batch in reading.batches) <= MIB


_READ_ONE_BY_ONE = """
import json, sys, time
import psutil
from sources import KafkaSource, SourceBatch, SourceContext

class NoMetrics:
    def count(self, name, n=1): ...
    def gauge(self, name, value): ...

servers, topic, budget = sys.argv[1], sys.argv[2], int(sys.argv[3])
process = psutil.Process()
source = KafkaSource(servers, topics=[topic], value_format="bytes", fetch_budget=budget, end="latest")
before = process.memory_info().rss
reader = source.create_reader(SourceContext("p", "in", 0, 1, NoMetrics()))
largest = read = 0
reached = time.monotonic() + 3  # long enough to fetch the whole topic, if nothing bounds it
while read < 400:
    batch = reader.poll(1, 0.01)
    if isinstance(batch, SourceBatch):
        read += len(batch)
        while read == 1 and time.monotonic() < reached:
            time.sleep(0.05)
            largest = max(largest, process.memory_info().rss)
    largest = max(largest, process.memory_info().rss)
reader.close()
print(json.dumps({"growth": largest - before, "read": read}))
"""


@pytest.mark.parametrize("n", [1000, pytest.param(20_000, marks=[pytest.mark.stress, pytest.mark.timeout(900)])])
def test_memory_stays_within_the_budget_while_one_large_record_at_a_time_is_polled(
    kafka: KafkaBroker, make_topic: MakeTopic, n: int
) -> None:
    topic = make_topic(partitions=4)
    kafka.produce(topic, (b"x" * 175_000 for _ in range(n)), partition=None)
    budget = 16 * MIB

    assert _growth(kafka, topic, budget) <= budget + 64 * MIB


@pytest.mark.full
@pytest.mark.parametrize(
    ("partitions", "records", "size", "filled"),
    [
        pytest.param(200, 2000, 50_000, 1.0, id="many partitions"),
        pytest.param(4, 200_000, 1000, 0.1, id="compressed 10 to 1"),
    ],
)
def test_memory_stays_within_the_budget_with_many_partitions_and_batches_that_expand(
    kafka: KafkaBroker, make_topic: MakeTopic, partitions: int, records: int, size: int, filled: float
) -> None:
    topic = make_topic(partitions=partitions)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "zstd", "linger.ms": 50})
    random = int(size * filled)
    for i in range(records):
        producer.produce(topic, os.urandom(random) + bytes(size - random), partition=i % partitions)
        while len(producer) > 20_000:
            producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0
    budget = 16 * MIB

    assert _growth(kafka, topic, budget) <= budget + 64 * MIB


def _growth(kafka: KafkaBroker, topic: str, budget: int) -> int:
    """Bytes of resident memory that a source takes in a process of its own; the topic, many megabytes, is deleted."""
    ran = subprocess.run(
        [sys.executable, "-c", _READ_ONE_BY_ONE, kafka.bootstrap_servers, topic, str(budget)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(60)
    return int(json.loads(ran.stdout)["growth"])


# -- without a broker ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_broker_that_is_down_for_a_while_is_waited_for() -> None:
    class NoMetrics:
        def count(self, name: str, n: float = 1) -> None: ...

        def gauge(self, name: str, value: float | str | None) -> None: ...

    with KafkaBroker.start(kind="native") as broker:
        broker.create_topic("orders")
        broker.produce("orders", numbered(10))
        source = KafkaSource(broker.bootstrap_servers, topics=["orders"], group_id="g", discovery_interval=0.5)
        reader = source.create_reader(SourceContext("p", "in", 0, 1, NoMetrics()))
        seen: list[Any] = []

        def read(n: int) -> None:
            deadline = time.monotonic() + 60
            while len(seen) < n and time.monotonic() < deadline:
                batch = reader.poll(100, 0.01)
                seen.extend(batch.values if batch is not None else ())  # type: ignore[union-attr]
            assert len(seen) == n

        read(10)
        broker.kill()
        for checkpoint_id in range(1, 101):
            assert reader.poll(100, 0.01) is None
            assert reader.snapshot(checkpoint_id, 0)["splits"][0][3] == 10
            reader.on_checkpoint_complete(checkpoint_id)
        broker.restart()
        broker.produce("orders", numbered(10, start=10))
        read(20)
        assert ids(seen) == list(range(20))
        broker.kill()
        reader.snapshot(1000, 0)
        reader.on_checkpoint_complete(1000)
        started = time.monotonic()
        reader.close()
        assert time.monotonic() - started < 50  # not the minute that the outstanding commit takes
