"""Watching the topics beside the task thread, since a metadata request may wait for a broker: are there new
partitions, and are the topics still the same ones?"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from checkpoint.waiting import Waiting
from sources.discovery_thread import DiscoveryThread
from sources.kafka.cluster import Cluster
from sources.kafka.errors import DataLoss, KafkaUnavailable, MissingPermission
from sources.kafka.options import DISCOVERY_S, KafkaOptions, PartitionKey
from sources.kafka.splits import Split

log = logging.getLogger(f"weir.{__name__}")

_MISSES: Final = 2
"""A broker that has just started may not know of all topics yet."""


class PartitionDiscovery(DiscoveryThread[Split]):
    """Hands over every new partition once, with the position at its beginning. It doesn't matter which subtask reads
    it. A cluster that can't be reached is tried again. One that refuses this client twice in a row is an error.

    It also fails when a topic was deleted and created again under its name. The Kafka client doesn't tell: if the
    position exists in the new log, too, it reads on there, and all records before it would be lost without a word.
    """

    def __init__(
        self,
        options: KafkaOptions,
        interval: float | None,
        known: Mapping[PartitionKey, str],
        source_id: str,
        waiting: Waiting,
    ) -> None:
        """
        Args:
            interval: seconds between two looks; `None` = the default, since new partitions are only told of.
            known: the partitions so far, with the ids of their topics.
            waiting: is told of topics that are not there any more.
        """
        super().__init__("kafka-discovery", DISCOVERY_S if interval is None else interval)
        self._options = options
        self._known = dict(known)
        self._source_id = source_id
        self._waiting = waiting
        self._missed = 0
        """How often in a row a topic was not there."""
        self._waits_for: str | None = None
        """What `waiting` was told."""
        self._refused = 0
        """How often in a row this client was refused."""
        self._begin()

    def _discover(self) -> None:
        if not self._await_next():
            return
        with Cluster(self._options) as cluster:
            self._look(cluster)
            while self._await_next():
                self._look(cluster)

    def _look(self, cluster: Cluster) -> None:
        """
        Raises:
            DataLoss: a topic was deleted, and maybe created again.
            KafkaUnavailable, MissingPermission: the brokers don't let this client in, or read what it has read.
        """
        try:
            topics = cluster.topics().values()
            existing = {(topic.name, number): topic.id for topic in topics for number in range(topic.partitions)}
            new = sorted(existing.keys() - self._known.keys())
            low = cluster.earliest(new)
            self._refused = 0
        except (KafkaUnavailable, MissingPermission) as e:  # a new topic that may not be read yet is found later
            known = {topic for topic, _ in self._known}
            lost = e.refused if isinstance(e, KafkaUnavailable) else not known.isdisjoint(e.topics)
            self._refused = self._refused + 1 if lost else 0
            if self._refused >= _MISSES:
                raise
            log.warning("looking for new partitions failed, next try in %g s: %s", self._interval, e)
            return
        except ValueError as e:
            self._miss(str(e))
            return
        for (topic, _), id in self._known.items():
            if existing.get((topic, 0), id) != id:
                raise DataLoss(
                    f"{topic} was deleted and created again under the running source: what was not read by then is "
                    'lost. KafkaSource(on_data_loss="earliest") goes on at the beginning of what is there now'
                )
        gone = {topic for topic, _ in self._known} - {topic for topic, _ in existing}
        if gone:
            self._miss(f"no topic {', '.join(sorted(gone))} at {self._options.servers} any more")
        else:
            self._missed = 0
            self._tell(None)
        if not new:
            return
        self._known.update({key: existing[key] for key in new})
        self._found.put([Split(*key, existing[key], low[key]) for key in new])

    def _miss(self, text: str) -> None:
        """A topic is not there. Only when that happens twice in a row was it deleted.

        Raises:
            DataLoss: it was, and that matters (`on_data_loss`).
        """
        self._missed += 1
        self._tell(f"its topics: {text} (source {self._source_id!r})")
        if self._missed >= _MISSES and self._options.on_data_loss == "fail":
            raise DataLoss(
                f"a topic was deleted under the running source, and what was not read by then is lost: {text}. Take it "
                'out of the source, or create it again and give KafkaSource(on_data_loss="earliest")'
            )
        log.warning("looking after the topics, next time in %g s: %s", self._interval, text)

    def _tell(self, what: str | None) -> None:
        if what == self._waits_for:
            return
        if self._waits_for is not None:
            self._waiting.end(self._waits_for)
        if what is not None:
            self._waiting.begin(what)
        self._waits_for = what
