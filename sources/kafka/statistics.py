"""What the Kafka client has fetched, by its own count."""

from __future__ import annotations

import orjson

from checkpoint.metrics import MetricSink


class FetchStatistics:
    """Turns the client's statistics into `recordsFetched`, `bytesFetched` and `bytesRefetched`.

    What the client has fetched was handed over, waits in its queue, or was thrown away, as by `pause()`, and has to be
    fetched again. The last is known in records, and turned into bytes by their mean size.
    """

    def __init__(self, metrics: MetricSink) -> None:
        self._metrics = metrics
        self._records = self._bytes = 0
        self._refetched = 0.0
        self._handed_over = 0
        self.connected = False
        """Whether the client had a connection to a broker by the newest statistics."""

    def handed_over(self, records: int) -> None:
        """Count records that the client no longer has."""
        self._handed_over += records

    def on_statistics(self, text: str) -> None:
        """The client's callback."""
        statistics = orjson.loads(text)
        self.connected = any(broker["state"] == "UP" for broker in statistics["brokers"].values())
        records, size = statistics["rxmsgs"], statistics["rxmsg_bytes"]
        queued = sum(
            partition["fetchq_cnt"]
            for topic in statistics["topics"].values()
            for partition in topic["partitions"].values()
        )
        self._metrics.count("recordsFetched", records - self._records)
        self._metrics.count("bytesFetched", size - self._bytes)
        self._records, self._bytes = records, size
        # What was handed over since the statistics were made makes the rest too small for the moment, never too large.
        thrown_away = max(0, records - queued - self._handed_over)
        refetched = max(self._refetched, thrown_away * size / max(1, records))
        self._metrics.count("bytesRefetched", refetched - self._refetched)
        self._refetched = refetched
