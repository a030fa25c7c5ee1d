"""Every metric of Weir in typed lists; docs/metrics.md is made from them (`checkpoint/metrics_page.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from checkpoint.options import nearest


@dataclass(frozen=True, slots=True)
class Metric:
    """One of a subtask."""

    name: str
    kind: Literal["counter", "gauge", "text", "by split"]
    """`"text"`: a gauge that is words; `"by split"`: one with a value for each split of a source."""
    unit: str
    help: str


Gauged = float | str | Mapping[str, float] | None
"""What a gauge may have: a number, words, or numbers by split, as its kind says; `None` = nothing now."""


METRICS: Final[tuple[Metric, ...]] = (
    Metric("recordsIn", "counter", "records", "Records taken from input channels, or polled by a source."),
    Metric("recordsOut", "counter", "records", "Records emitted to output channels, or taken by a sink's writer."),
    Metric("recordsToSinks", "counter", "records", "Of recordsOut, those that a sink's writer has taken."),
    Metric("recordsInPerSecond", "gauge", "records/s", "Growth of recordsIn over the last 10 s."),
    Metric("recordsOutPerSecond", "gauge", "records/s", "Growth of recordsOut over the last 10 s."),
    Metric("bytesIn", "counter", "bytes", "Bytes of data frames received, or of records polled by a source."),
    Metric("bytesOut", "counter", "bytes", "Bytes of data frames sent."),
    Metric("busyMsPerSecond", "gauge", "ms/s", "Time spent in operators."),
    Metric("idleMsPerSecond", "gauge", "ms/s", "Time spent waiting for input."),
    Metric(
        "backPressuredMsPerSecond",
        "gauge",
        "ms/s",
        "Time spent waiting for room in an output queue, for commits, or by `limit_rate`.",
    ),
    Metric("sourceGateClosedMsPerSecond", "gauge", "ms/s", "Time the source gate was closed: neither idle nor busy."),
    Metric("sourceGateClosedMs", "counter", "ms", "Time the source gate was closed in this attempt."),
    Metric("sourceGateReason", "text", "", "Why the source gate is closed; none while it is open."),
    Metric("spanRecords", "gauge", "records", "Records emitted since the last barrier."),
    Metric(
        "gateWindowRecords",
        "gauge",
        "records",
        "Records that a source may emit between two barriers while one is under way, as its gate has learned; none "
        "without a window.",
    ),
    Metric("gateWindowChange", "text", "", "The window's last change, and why."),
    Metric("inFlightBytes", "gauge", "bytes", "Bytes in the input and output queues of the subtask."),
    Metric("heldMs", "gauge", "ms", "How long operators or the sink's writer have kept the task from looking around."),
    Metric("gcMs", "counter", "ms", "Time that Python's garbage collector held the subtask's process."),
    Metric(
        "overdraftBytes",
        "gauge",
        "bytes",
        "The most by which what one record emitted has exceeded an output queue's limit in this attempt.",
    ),
    Metric("estimatedTimeToConsumeMs", "gauge", "ms", "How long the queued input takes at the measured rate."),
    Metric("bufferBudgetBytes", "gauge", "bytes", "Current input budget of the subtask, set by debloating."),
    Metric(
        "watermark",
        "gauge",
        "ms",
        "The last watermark that the subtask has passed on, since the epoch; none before the first, 2^63 - 1 at the "
        "end.",
    ),
    Metric(
        "watermarkLagMs",
        "gauge",
        "ms",
        "How far the watermark is behind the clock of the host; below 0 = ahead of it. None before the first one and "
        "at the end.",
    ),
    Metric(
        "eventTimeIdle",
        "gauge",
        "",
        "1 while the subtask is idle and holds no watermark back, else 0.",
    ),
    Metric(
        "recordsLate",
        "counter",
        "records",
        "Records whose timestamp was not above the watermark where assign_timestamps took it, in this attempt.",
    ),
    Metric(
        "recordsAhead",
        "counter",
        "records",
        "Records that did not move the watermark, since their timestamps were further ahead than max_ahead, in this "
        "attempt.",
    ),
    Metric(
        "timersDropped",
        "counter",
        "timers",
        "Event timers not set at the end of event time, since timers would have set each other for ever.",
    ),
    Metric(
        "stateEntriesExpired",
        "counter",
        "entries",
        "Values, items of lists and entries of maps that were removed from keyed state since their time to live was "
        "over, in this attempt. They are not seen from that time on; some of them are removed later.",
    ),
    Metric(
        "rocksdbReads",
        "counter",
        "values",
        "Values of keyed state in RocksDB that did not lie ready in memory and were looked up, in this attempt.",
    ),
    Metric("rocksdbCacheHits", "counter", "blocks", "Blocks of RocksDB that were in its cache when they were needed."),
    Metric("rocksdbCacheMisses", "counter", "blocks", "Blocks of RocksDB that had to be read from files."),
    Metric("rocksdbStallMs", "counter", "ms", "Time for which RocksDB let writes wait, since files pile up."),
    Metric("rocksdbCompactionBytes", "counter", "bytes", "Bytes that RocksDB has written to merge files."),
    Metric("rocksdbSizeBytes", "gauge", "bytes", "Size of the subtask's state in RocksDB, in files and memory."),
    Metric(
        "rocksdbMemoryBytes",
        "gauge",
        "bytes",
        "Memory for blocks, indexes, filters and memory tables of all RocksDB state in the subtask's process.",
    ),
    Metric(
        "waitingMs",
        "gauge",
        "ms",
        "How long the subtask's source or sinks have waited for something outside of the job, such as brokers that are "
        "down; 0 when they don't. `waits` beside it, and in `handle.metrics()`, says for what, and for whom event time "
        "waits.",
    ),
    Metric("requestsInFlight", "gauge", "records", "Records that a map_async step has taken and not emitted yet."),
    Metric("requests", "counter", "requests", "Requests that a map_async step has begun, retries included."),
    Metric("requestRetries", "counter", "requests", "Of them, retries."),
    Metric("requestTimeouts", "counter", "requests", "Of them, those that had no answer in time."),
    Metric("requestsAnswered", "counter", "requests", "Requests that have ended, with their retries."),
    Metric("requestMs", "counter", "ms", "How long they took in all, with their retries."),
    Metric("requestMsP50", "gauge", "ms", "The median of that, of the last 1000 requests; none before the first."),
    Metric("requestMsP95", "gauge", "ms", "What 95 % of the last 1000 requests stayed below; none before the first."),
    Metric(
        "lookupCacheHits",
        "counter",
        "keys",
        "Keys of a lookup join that were in its cache, or that another record was asking for.",
    ),
    Metric("lookupCacheMisses", "counter", "keys", "Keys that a lookup join had to ask for."),
    Metric("pendingCommits", "gauge", "epochs", "Completed checkpoints whose output is not committed yet."),
    Metric("recordsSkipped", "counter", "records", "Bad records left out by a source's on_bad_record option."),
    Metric(
        "recordsDeadLettered",
        "counter",
        "records",
        "Bad records that have reached the topic for dead letters (a source's on_bad_record option).",
    ),
    Metric(
        "recordsFailed",
        "counter",
        "records",
        "Records and timers that steps with on_error have failed on and left out, in this attempt.",
    ),
    Metric("lastFailure", "text", "", "Which step failed last on a record that it left out, and why."),
    Metric(
        "recordsLag",
        "gauge",
        "records",
        "Offsets from what a Kafka source has emitted to the ends of its partitions, those of open transactions "
        "included; of a bounded source to where it ends. None while they are not known.",
    ),
    Metric(
        "recordsLagByPartition",
        "by split",
        "records",
        "The same for each partition, as in `orders[3]`, but for records that lie ready in the source; of the first "
        "256 partitions of a subtask.",
    ),
    Metric(
        "partitionsAssigned",
        "gauge",
        "partitions",
        "Partitions that the subtask of a Kafka source has to read, those that it has read to their end included; 0 = "
        "it has nothing to do.",
    ),
    Metric(
        "recordsUnreadByPartition",
        "by split",
        "records",
        "Offsets in partitions that came while the job ran and that nobody reads, since discovery_interval=None: for "
        "each of the first 256 of a subtask. None while there is no such partition.",
    ),
    Metric(
        "recordsFetched",
        "counter",
        "records",
        "Records that the client of a Kafka source has fetched, by its own count, taken every 5 s "
        "(statistics.interval.ms).",
    ),
    Metric(
        "bytesFetched",
        "counter",
        "bytes",
        "Size of their keys and values, decompressed. Its growth per second is the fetch rate.",
    ),
    Metric(
        "bytesRefetched",
        "counter",
        "bytes",
        "Size of the part of them that the client had to throw away, since the gate closed for long, and has fetched "
        "or will fetch again: what it has fetched less what it has handed over and what is queued, in records, times "
        "their mean size. Also of records that lie beyond a source's end.",
    ),
    Metric(
        "restoredBytes",
        "counter",
        "bytes",
        "Size of the files of keyed state and in-flight data that the subtask was restored from in this attempt.",
    ),
    Metric("restoredLocalBytes", "counter", "bytes", "Size of those of them that were read from local copies."),
    Metric(
        "mergedStateBytes",
        "counter",
        "bytes",
        "Size of the files that merges of incremental checkpoints' files have made, beside those of the checkpoints.",
    ),
    Metric(
        "failedStateMerges",
        "counter",
        "merges",
        "Merges of such files that could not be done. The files stay, and the next checkpoint tries again.",
    ),
)


_KINDS: Final = {metric.name: metric.kind for metric in METRICS}


class MetricSink(Protocol):
    """Where readers, writers and the runtime report."""

    def count(self, name: str, n: float = 1) -> None:
        """Add to a counter.

        Raises:
            ValueError: there is no counter of this name.
        """

    def gauge(self, name: str, value: Gauged) -> None:
        """Set a gauge, or a counter that is counted elsewhere.

        Raises:
            ValueError: there is no metric of this name.
        """


def check_counter(name: str) -> None:
    """
    Raises:
        ValueError: there is no counter of this name.
    """
    check_metric(name)
    if _KINDS[name] != "counter":
        raise ValueError(f"{name} is a gauge, which is set and not counted")


def check_metric(name: str) -> None:
    """
    Raises:
        ValueError: there is no metric of this name.
    """
    if name not in _KINDS:
        raise ValueError(
            f"there is no metric {name!r}{nearest(name, _KINDS) or '.'} checkpoint.metrics.METRICS has them all"
        )
