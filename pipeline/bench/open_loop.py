"""A load that comes at a constant rate, however slow the job is: an open loop.

A producer that waits for the job would send less while the job is slow, and so hide the worst delays. Here each record
has a moment at which it is due, and carries it; what is late counts from then.

`python -m pipeline.bench.open_loop SERVERS TOPIC RATE COUNT` prints `{"ready": true}`, reads the moment of the first
record from its input (nanoseconds of `time.monotonic_ns`, which all processes of a machine share), sends, and prints
how far behind it was.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import dataclass

from confluent_kafka import KafkaError, Producer

from checkpoint.counted import counted
from pipeline.bench.input import record
from pipeline.bench.percentiles import percentile

_TICK_S = 0.001
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class Schedule:
    """When each record is due. Pure; moments are nanoseconds."""

    begin: int
    """When the first one is due."""
    rate: float
    """Records/s."""
    count: int

    def due_at(self, number: int) -> int:
        return self.begin + int(number * _SECOND / self.rate)

    def due_by(self, now: int) -> int:
        """How many are due at `now`."""
        if now < self.begin:
            return 0
        number = min(self.count, int((now - self.begin) * self.rate / _SECOND))
        while number < self.count and self.due_at(number) <= now:  # at most one, by rounding
            number += 1
        return number


@dataclass(frozen=True)
class Sent:
    """How far behind the sender was: seconds from when a record was due until the client had it. It is part of each
    latency."""

    late_p50: float
    late_p99: float
    late_max: float
    seconds: float
    """From the first record's moment to the last acknowledgement."""


def send(servers: str, topic: str, schedule: Schedule, seed: int = 7) -> Sent:
    """
    Raises:
        RuntimeError: a record was not taken.
    """
    failures: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "queue.buffering.max.messages": 2_000_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failures.append(error) if error is not None else None,
        }
    )
    producer.list_topics(topic, timeout=30)  # so that the first record doesn't wait for it
    rng, sent, late = random.Random(seed), 0, list[float]()
    while sent < schedule.count and not failures:
        now = time.monotonic_ns()
        due = schedule.due_by(now)
        if due == sent:
            producer.poll(0)
            time.sleep(min(_TICK_S, max(0.0, (schedule.due_at(sent) - now) / _SECOND)))
            continue
        for number in range(sent, due):
            moment = schedule.due_at(number)
            key, value = record(rng, moment)
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.01)
            late.append((time.monotonic_ns() - moment) / _SECOND)
        sent = due
        producer.poll(0)
    left = producer.flush(60)
    if failures or left:
        raise RuntimeError(f"{counted(left, 'record was', 'records were')} not acknowledged: {failures[:1]}")
    took = (time.monotonic_ns() - schedule.begin) / _SECOND
    return Sent(percentile(late, 0.5) or 0.0, percentile(late, 0.99) or 0.0, max(late), took)


def main(arguments: list[str]) -> None:
    servers, topic, rate, count = arguments
    print(json.dumps({"ready": True}), flush=True)
    begin = int(sys.stdin.readline())
    sent = send(servers, topic, Schedule(begin, float(rate), int(count)))
    print(json.dumps(sent.__dict__), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
