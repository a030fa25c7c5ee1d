"""The yardstick: one process that consumes and produces with the bare client, and does nothing in between.

`python -m pipeline.bench.bare_loop SERVERS INPUT OUTPUT RECORDS` prints seconds and CPU seconds as JSON.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from checkpoint.counted import counted

_BATCH = 10_000


def copy(servers: str, source: str, target: str, records: int) -> tuple[float, float]:
    """Copy `records` records; wall and CPU seconds from the first record received to the last acknowledgement.

    Raises:
        RuntimeError: a record was not read or not taken.
    """
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failures.append(str(error)) if error is not None else None,
        }
    )
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "weir-bench-bare", "enable.auto.commit": False})
    partitions = consumer.list_topics(source, timeout=30).topics[source].partitions
    consumer.assign([TopicPartition(source, number, 0) for number in partitions])
    done, began, cpu = 0, 0.0, 0.0
    while done < records:
        messages = consumer.consume(_BATCH, 1.0) if done else consumer.consume(1, 30.0)
        if not messages and not done:
            raise RuntimeError(f"nothing comes from {source}")
        if not done:
            began, cpu = time.monotonic(), time.process_time()
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            while True:
                try:
                    producer.produce(target, message.value(), message.key())
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
        done += len(messages)
    left = producer.flush(60)
    if failures or left:
        raise RuntimeError(f"{counted(left, 'record was', 'records were')} not acknowledged: {failures[:1]}")
    consumer.close()
    return time.monotonic() - began, time.process_time() - cpu


def main(arguments: list[str]) -> None:
    servers, source, target, records = arguments
    seconds, cpu = copy(servers, source, target, int(records))
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu}))


if __name__ == "__main__":
    main(sys.argv[1:])
