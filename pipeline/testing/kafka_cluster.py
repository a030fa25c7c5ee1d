"""`KafkaCluster`: a real cluster of several brokers for tests, with what happens to one."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, PartitionMetadata  # type: ignore[attr-defined]  # public, not marked so

from checkpoint.counted import counted
from pipeline.broker.cluster import NativeCluster
from pipeline.broker.security import Security
from pipeline.testing.kafka import KafkaBroker

_TIMEOUT_S: Final = 60.0
_RETRY_S: Final = 0.05
_REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_ELECT: Final = "org.apache.kafka.tools.LeaderElectionCommand"
_OFFSETS: Final = "__consumer_offsets"
_TRANSACTIONS: Final = "__transaction_state"


class KafkaCluster(KafkaBroker):
    """Brokers 1, 2, …; see `start`. All that a `KafkaBroker` can do, on any of them."""

    def __init__(self, cluster: NativeCluster) -> None:
        super().__init__("native", cluster)
        self._cluster = cluster

    @classmethod
    def start(  # type: ignore[override]  # a cluster is made one way only
        cls, nodes: int = 3, *, security: Security | None = None, **properties: object
    ) -> Self:
        """Start the brokers as child processes of this one. Each takes 300 to 400 MB.

        Topics get a replica on every node (three at most); a write needs all but one of them in sync, so one broker may
        be away without anybody noticing for long.

        Args:
            properties: settings of every broker, underscores for dots.

        Raises:
            BrokerFailed, JavaMissing, FetchFailed, CertificateFailed: they can't be started.
        """
        settings = {name.replace("_", "."): value for name, value in properties.items()}
        return cls(NativeCluster.start(nodes, settings, security=security))

    @property
    def nodes(self) -> list[int]:
        return list(self._cluster.nodes)

    def dead(self) -> list[int]:
        """The nodes whose process does not run."""
        return [number for number, node in self._cluster.nodes.items() if not node.alive]

    def kill(self, *nodes: int) -> None:
        """SIGKILL these brokers, or all; their data stays."""
        self._cluster.kill(*nodes)

    def restart(self, *nodes: int) -> None:
        """Start these brokers again, or all, on the ports and with the data they had, and return once each answers;
        shuts down first (cleanly) those that run.

        Raises:
            BrokerFailed: one did not come up.
        """
        self._cluster.restart(*nodes)

    def pause(self, *nodes: int) -> None:
        """SIGSTOP these brokers, or all: their connections stay, and nothing comes. After three seconds the others take
        a paused one for dead."""
        self._cluster.pause(*nodes)

    def resume(self, *nodes: int) -> None:
        """SIGCONT: they go on, not knowing that time has passed."""
        self._cluster.resume(*nodes)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        replication_factor: int | None = None,
    ) -> None:
        """As a `KafkaBroker`'s, by default with a replica on every node, three at most."""
        super().create_topic(name, partitions, config, replication_factor or min(3, len(self._cluster.nodes)))

    # -- who leads --------------------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The node; `None` while there is none.

        Raises:
            KafkaException: no such partition, or no broker answers.
        """
        found = _partition(self._admin(), topic, partition)
        return None if found.leader < 0 else found.leader

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """The nodes whose replicas have all that was acknowledged.

        Raises:
            KafkaException: as `leader`.
        """
        return sorted(_partition(self._admin(), topic, partition).isrs)

    def coordinator(self, *, transactional_id: str | None = None, group: str | None = None) -> int | None:
        """The node that coordinates a transactional id, or a group; `None` while there is none.

        Raises:
            KafkaException: nobody has used a transaction, or a group, on this cluster yet; or no broker answers.
            ValueError: not exactly one of both is given.
        """
        return self.leader(*self.coordinator_partition(transactional_id=transactional_id, group=group))

    def coordinator_partition(
        self, *, transactional_id: str | None = None, group: str | None = None
    ) -> tuple[str, int]:
        """The partition of Kafka's own topic whose leader is the coordinator, for `move_leader`.

        Raises:
            KafkaException, ValueError: as `coordinator`.
        """
        if (transactional_id is None) == (group is None):
            raise ValueError("give either transactional_id or group")
        topic, name = (_TRANSACTIONS, transactional_id) if group is None else (_OFFSETS, group)
        return topic, _java_hash(name or "") % len(_partitions(self._admin(), topic))

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make the node lead the partition, of which it must have a replica in sync, and return once it does.

        Raises:
            RuntimeError: Kafka refuses, or it doesn't lead it within a minute.
        """
        admin = self._admin()
        replicas = _partition(admin, topic, partition).replicas
        if to not in replicas:
            raise RuntimeError(f"node {to} has no replica of {topic}[{partition}]; those are on {replicas}")
        if replicas[0] != to:
            self._reassign(topic, partition, [to, *(node for node in replicas if node != to)])
        deadline = time.monotonic() + _TIMEOUT_S
        while (now := self.leader(topic, partition)) != to:
            if time.monotonic() >= deadline:
                raise RuntimeError(f"node {now} still leads {topic}[{partition}] after {_TIMEOUT_S:g} s, not {to}")
            # Does nothing while the new leader isn't in sync.
            self._tool(_ELECT, "--election-type", "preferred", "--topic", topic, "--partition", str(partition))

    def await_leader(self, topic: str, partition: int = 0, *, other_than: int | None = None) -> int:
        """The node that leads the partition, once there is one, and one that isn't `other_than`.

        Raises:
            TimeoutError: not within a minute.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        while (now := self.leader(topic, partition)) in (None, other_than):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{topic}[{partition}] is led by {now} after {_TIMEOUT_S:g} s")
            time.sleep(_RETRY_S)
        return now or 0

    def _await_partitions(self, admin: AdminClient, topic: str, count: int) -> None:
        """On every broker that runs: each learns of a topic by itself, and a client may ask any."""
        for node in self._cluster.nodes.values():
            if node.alive:
                config = {"bootstrap.servers": node.bootstrap_servers, **self.client_config(), "log_level": 0}
                super()._await_partitions(AdminClient(config), topic, count)

    def _reassign(self, topic: str, partition: int, replicas: list[int]) -> None:
        """Replicas in another order: the first is the preferred leader."""
        plan = {"version": 1, "partitions": [{"topic": topic, "partition": partition, "replicas": replicas}]}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "plan.json"
            file.write_text(json.dumps(plan))
            done = self._tool(_REASSIGN, "--execute", "--reassignment-json-file", str(file))
        if done.returncode != 0 or "Successfully started" not in done.stdout:
            raise RuntimeError(
                f"{topic}[{partition}] can't be given the replicas {replicas}: {done.stdout}{done.stderr}"
            )

    def _tool(self, main_class: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """For what the client library can't do: it has no reassignments, and its elections end in a SystemError."""
        node = self._cluster.nodes[1]
        connection = ("--bootstrap-server", self.bootstrap_servers, "--command-config", str(node.admin_config_path))
        return node.java_tool(main_class, *connection, *arguments)


def _partitions(admin: AdminClient, topic: str) -> dict[int, PartitionMetadata]:
    found = admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return dict(found.partitions)


def _partition(admin: AdminClient, topic: str, partition: int) -> Any:
    partitions = _partitions(admin, topic)
    if partition not in partitions:
        raise KafkaException(
            KafkaError(KafkaError._UNKNOWN_PARTITION, f"{topic} has {counted(len(partitions), 'partition')}")
        )
    return partitions[partition]


def _java_hash(text: str) -> int:
    """`Utils.abs(text.hashCode())`, by which Kafka chooses the partition of a group or a transactional id."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)
