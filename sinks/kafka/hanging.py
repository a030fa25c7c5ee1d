"""Transactions that Kafka has acknowledged as ended, and that stay open for good in some of their partitions.

The coordinator writes down how a transaction ends, says so, and then tells the partitions. Kafka 4.3 and 4.4 leave a
partition out that has no leader at that moment, as if it had been deleted. That happens to every partition whose only
replica is on a broker that crashes then: once it runs again, the transaction is still open there.
(`TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue` on `KRaftMetadataCache.getPartitionLeaderEndpoint`, which
up to Kafka 4.2 told both apart.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # documented

from sinks.kafka.clients import client_config

_TIMEOUT: Final = 15.0
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def held_up_partitions(servers: str, config: Mapping[str, Any], topics: Iterable[str]) -> list[TopicPartition]:
    """Those at which readers with `read_committed` wait for the end of a transaction, whichever job's it is.

    Raises:
        KafkaException: no answer.
    """
    admin = AdminClient(client_config(servers, config))
    partitions: list[TopicPartition] = []
    for topic in topics:
        found = admin.list_topics(topic, timeout=_TIMEOUT).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        partitions += [TopicPartition(topic, number) for number in sorted(found.partitions)]
    committed, written = (
        admin.list_offsets(dict.fromkeys(partitions, _LATEST), isolation_level=level, request_timeout=_TIMEOUT)
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    )
    return [one for one in partitions if committed[one].result().offset < written[one].result().offset]
