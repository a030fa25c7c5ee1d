"""Two brokers of a Kafka that forgets a partition without a leader when a transaction ends that has written to it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # public, but not marked so
from deadlines import eventually

from pipeline.broker import NativeBroker
from pipeline.broker.jars import kafka_jars
from pipeline.broker.java import find_java
from pipeline.broker.ports import free_ports
from pipeline.broker.server_properties import new_cluster_id
from pipeline.testing import KafkaBroker

_VERSION = "4.4.0"
_HOST = "127.0.0.1"
_COORDINATOR, _LEADER = 1, 2
_OWN_TOPICS = {"__transaction_state": _COORDINATOR, "__consumer_offsets": _LEADER}


class _Broker(NativeBroker):
    """One of the two. Only the coordinator is a controller, so the cluster goes on without the leader."""

    def prepare(self, properties: Mapping[str, object], cluster_id: str) -> None:
        if self.node == _LEADER:
            properties = {**properties, "process.roles": "broker", "listeners": f"CLIENTS://{_HOST}:{self.port}"}
        super().prepare(properties, cluster_id)


class ForgetfulBrokers(KafkaBroker):
    """The coordinator of all transactions, and the leader of all topics' partitions and of the groups' offsets. If a
    transaction ends while the leader is away, that is acknowledged, and it stays open for good."""

    def __init__(self, coordinator: NativeBroker, leader: NativeBroker) -> None:
        super().__init__("native", coordinator)
        self._leader = leader

    @classmethod
    def start(cls) -> Self:
        java, jars, cluster_id = find_java(), kafka_jars(version=_VERSION), new_cluster_id()
        ports = free_ports(4, _HOST)
        properties = {
            "controller.quorum.voters": f"{_COORDINATOR}@{_HOST}:{ports[0]}",
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.num.partitions": 1,
        }
        with ExitStack() as stack:
            brokers = [
                stack.enter_context(
                    _Broker(
                        java=java,
                        jars=jars,
                        host=_HOST,
                        port=ports[node + 1],
                        directory=Path(tempfile.mkdtemp(prefix=f"weir-kafka-{node}-")),
                        ephemeral=True,
                        controllers=dict(zip((_COORDINATOR, _LEADER), ports, strict=False)),
                        node=node,
                    )
                )
                for node in (_COORDINATOR, _LEADER)
            ]
            for broker in brokers:
                broker.prepare(properties, cluster_id)
                broker.launch()
            started = cls(*brokers)
            for topic, node in _OWN_TOPICS.items():
                started._create(topic, node, 1, {"cleanup.policy": "compact"})
            stack.pop_all()
        return started

    def create_topic(self, name: str, partitions: int = 1) -> None:
        self._create(name, _LEADER, partitions, {})

    @contextmanager
    def leader_away(self) -> Iterator[None]:
        """From when the cluster has noticed it, until it has noticed that the leader is back."""
        self._leader.pause()
        try:
            eventually(lambda: self._leaders() == {_COORDINATOR, -1})
            yield
        finally:
            self._leader.resume()
            eventually(lambda: self._leaders() == {_COORDINATOR, _LEADER})

    def stop(self) -> None:
        self._leader.kill()  # nothing is left that it would have to write down
        self._leader.stop()
        super().stop()

    def _leaders(self) -> set[int]:
        topics = self._admin().list_topics(timeout=30).topics.values()
        return {partition.leader for topic in topics for partition in topic.partitions.values()}

    def _create(self, name: str, node: int, partitions: int, config: Mapping[str, str]) -> None:
        topic = NewTopic(name, partitions, replica_assignment=[[node]] * partitions, config=dict(config))
        admin: AdminClient = self._admin()
        admin.create_topics([topic])[name].result(60)
        self._await_partitions(admin, name, partitions)
