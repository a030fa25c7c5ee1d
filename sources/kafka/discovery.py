"""Looks for new partitions beside the task thread, since a metadata request may wait for a broker."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable

from .cluster import Cluster
from .errors import KafkaUnavailable
from .options import KafkaOptions, PartitionKey
from .splits import Split

log = logging.getLogger(__name__)


class PartitionDiscovery:
    """Hands over every partition that was not there before, once, standing at its beginning."""

    def __init__(self, options: KafkaOptions, interval: float, known: Iterable[PartitionKey]) -> None:
        self._options = options
        self._interval = interval
        self._known = set(known)
        self._found: queue.SimpleQueue[list[Split]] = queue.SimpleQueue()
        self._failure: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-discovery", daemon=True)
        self._thread.start()

    def found(self) -> list[Split]:
        """Partitions of all subtasks found since the last call; never waits.

        Raises:
            Exception: what ended the thread, other than an unreachable cluster, which is tried again.
        """
        if self._failure is not None:
            raise self._failure
        splits: list[Split] = []
        while not self._found.empty():
            splits += self._found.get_nowait()
        return splits

    def stop(self) -> None:
        """Ask the thread to end; it is a daemon, so a request under way holds nobody up."""
        self._stop.set()

    def _run(self) -> None:
        try:
            with Cluster(self._options) as cluster:
                while not self._stop.wait(self._interval):
                    self._look(cluster)
        except Exception as e:
            self._failure = e

    def _look(self, cluster: Cluster) -> None:
        try:
            topics = cluster.topics().values()
            existing = {(topic.name, number): topic.id for topic in topics for number in range(topic.partitions)}
            new = sorted(existing.keys() - self._known)
            low = cluster.earliest(new)
        except (KafkaUnavailable, ValueError) as e:  # no broker, or a topic is gone: reading says so if it matters
            log.warning("looking for new partitions failed, next try in %g s: %s", self._interval, e)
            return
        if not new:
            return
        self._known.update(new)
        self._found.put([Split(*key, existing[key], low[key]) for key in new])
