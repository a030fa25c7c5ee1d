"""When records become visible to a consumer, against when they were due (`pipeline.bench.open_loop`).

`python -m pipeline.bench.arrivals SERVERS TOPIC COUNT WARM_UP PATIENCE` goes to the end of the topic, prints
`{"ready": true}`, reads the moment of the first record from its input, and prints the delays of all records once COUNT
have come, or none for PATIENCE seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import orjson
from confluent_kafka import Consumer, TopicPartition

from pipeline.bench.percentiles import percentile

_SECOND = 1_000_000_000


@dataclass(frozen=True)
class Delays:
    """Seconds from when records were due until a consumer had them. Those of the warm-up are left out."""

    records: int
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float
    max: float
    by_second: list[list[float]]
    """The p50 and the max of the records that were due in each second."""

    @classmethod
    def of(cls, due: Sequence[int], came: Sequence[int], begin: int, warm_up: float) -> Delays | None:
        """
        Args:
            due: moments in nanoseconds.
            came: the moments at which the same records came.
            begin: the moment of the first record.
            warm_up: seconds from then that don't count.

        Returns:
            `None` if no record counts.
        """
        first = begin + int(warm_up * _SECOND)
        counted = [(at, (there - at) / _SECOND) for at, there in zip(due, came, strict=True) if at >= first]
        if not counted:
            return None
        delays = sorted(delay for _, delay in counted)
        seconds: dict[int, list[float]] = {}
        for at, delay in counted:
            seconds.setdefault((at - first) // _SECOND, []).append(delay)
        p50, p90, p95, p99, p999 = (percentile(delays, part) or 0.0 for part in (0.5, 0.9, 0.95, 0.99, 0.999))
        by_second = [[percentile(one, 0.5) or 0.0, max(one)] for _, one in sorted(seconds.items())]
        return cls(len(delays), p50, p90, p95, p99, p999, delays[-1], by_second)


def receive(consumer: Consumer, count: int, patience: float) -> tuple[list[int], list[int]]:
    """When up to `count` records were due, and when they came.

    Raises:
        RuntimeError: the broker doesn't give them.
    """
    due, came = list[int](), list[int]()
    heard = time.monotonic()
    while len(due) < count and time.monotonic() - heard < patience:
        messages = consumer.consume(1, 0.1)  # alone, since more would be waited for
        if not messages:
            continue
        messages += consumer.consume(10_000, 0)
        now = time.monotonic_ns()
        heard = now / _SECOND
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            due.append(orjson.loads(message.value() or b"")["ts"])
        came += [now] * (len(due) - len(came))
    return due, came


def main(arguments: list[str]) -> None:
    servers, topic, count, warm_up, patience = arguments
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "weir-bench-arrivals",  # required, but nothing is ever committed
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 10,
        }
    )
    partitions = [
        TopicPartition(topic, number) for number in consumer.list_topics(topic, timeout=30).topics[topic].partitions
    ]
    for partition in partitions:
        partition.offset = consumer.get_watermark_offsets(partition, timeout=30)[1]
    consumer.assign(partitions)
    consumer.poll(0.5)  # nothing is there yet; the connection is made
    print(json.dumps({"ready": True}), flush=True)
    begin = int(sys.stdin.readline())
    due, came = receive(consumer, int(count), float(patience))
    consumer.close()
    delays = Delays.of(due, came, begin, float(warm_up))
    print(json.dumps({"received": len(due), "delays": None if delays is None else asdict(delays)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
