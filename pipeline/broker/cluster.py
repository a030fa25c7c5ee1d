"""`NativeCluster`: several Kafka nodes (KRaft, each broker and controller in one) as child processes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from pipeline.broker.jars import kafka_jars
from pipeline.broker.java import find_java
from pipeline.broker.native import BrokerFailed, NativeBroker
from pipeline.broker.ports import free_ports
from pipeline.broker.security import Security
from pipeline.broker.server_properties import check_properties, new_cluster_id

_HOST: Final = "127.0.0.1"
_START_TIMEOUT_S: Final = 90.0
_PORT_ATTEMPTS: Final = 3
_HEAP_MB: Final = 256


class NativeCluster:
    """Nodes 1, 2, …, which keep their ports and their data over restarts and end with this process, however that ends.

    Each is a voter of the controllers' quorum: while half of them or more are away, nothing about the cluster changes,
    so no partition gets another leader. Not thread-safe.
    """

    def __init__(self, nodes: Mapping[int, NativeBroker]) -> None:
        self._nodes = dict(nodes)

    @classmethod
    def start(
        cls,
        nodes: int = 3,
        properties: Mapping[str, object] | None = None,
        *,
        security: Security | None = None,
        timeout: float = _START_TIMEOUT_S,
    ) -> Self:
        """Start all at once and return when each answers. Kafka's own topics get three replicas (fewer on fewer nodes),
        of which all but one must be in sync for a write.

        Args:
            properties: settings of every node's server.properties.
            timeout: seconds until each must answer (fetching Kafka not counted).

        Raises:
            BrokerFailed, JavaMissing, FetchFailed, CertificateFailed: see `NativeBroker.start`.
            ValueError: fewer than one node; a property that the nodes must set themselves.
        """
        if nodes < 1:
            raise ValueError(f"a cluster needs one node at least, not {nodes}")
        check_properties(properties or {})
        settings = {**_replication(min(nodes, 3)), **(properties or {})}
        java, jars = find_java(), kafka_jars()
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            cluster = cls(_nodes(nodes, java, jars, security))
            try:
                cluster._prepare(settings, java)
                cluster._each(lambda node: node.launch(timeout))
            except BrokerFailed:
                taken = any(node.lost_its_port() for node in cluster._nodes.values())
                cluster.stop()
                if not taken or attempt == _PORT_ATTEMPTS:
                    raise
            except BaseException:
                cluster.stop()
                raise
            else:
                return cluster
        raise AssertionError("unreachable")

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self._nodes.values())

    @property
    def nodes(self) -> Mapping[int, NativeBroker]:
        return self._nodes

    def client_config(self, user: str | None = None) -> dict[str, Any]:
        """See `NativeBroker.client_config`."""
        return self._nodes[1].client_config(user)

    def kill(self, *nodes: int) -> None:
        """SIGKILL these, or all; their data stays."""
        self._each(NativeBroker.kill, nodes)

    def restart(self, *nodes: int) -> None:
        """Start these again, or all, at once, and return when each answers; shuts down first (cleanly) what runs.

        Raises:
            BrokerFailed: one ended, or doesn't answer in time, as one does that has no quorum with the others.
        """
        self._each(lambda node: node.restart(_START_TIMEOUT_S), nodes)

    def pause(self, *nodes: int) -> None:
        """SIGSTOP these, or all: they keep their connections, and say and hear nothing."""
        self._each(NativeBroker.pause, nodes)

    def resume(self, *nodes: int) -> None:
        """SIGCONT: they go on as if no time had passed."""
        self._each(NativeBroker.resume, nodes)

    def stop(self) -> None:
        """End all and remove their folders. By SIGKILL: a node that shuts down cleanly waits for the others, and there
        is nothing left that it would be good for."""
        self._each(NativeBroker.kill)
        self._each(NativeBroker.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- inside -----------------------------------------------------------------------------------------------

    def _prepare(self, settings: Mapping[str, object], java: str) -> None:
        first, cluster_id = self._nodes[1], new_cluster_id()
        first.security.prepare(first.directory / "security", java, _HOST)  # one certificate for all
        self._each(lambda node: node.prepare(settings, cluster_id))

    def _each(self, act: Callable[[NativeBroker], None], nodes: Iterable[int] = ()) -> None:
        """On these nodes, or all, at the same time; raises the first error once all are done."""
        chosen = [self._nodes[number] for number in nodes] or list(self._nodes.values())
        with ThreadPoolExecutor(len(chosen)) as threads:
            futures = [threads.submit(act, node) for node in chosen]
        for future in futures:
            future.result()


def _nodes(count: int, java: str, jars: Path, security: Security | None) -> dict[int, NativeBroker]:
    ports = free_ports(2 * count, _HOST)
    controllers = {number: ports[count + number - 1] for number in range(1, count + 1)}
    folders = {number: Path(tempfile.mkdtemp(prefix=f"weir-kafka-{number}-")) for number in controllers}
    return {
        number: NativeBroker(
            java=java,
            jars=jars,
            host=_HOST,
            port=ports[number - 1],
            directory=folders[number],
            ephemeral=True,
            controllers=controllers,
            node=number,
            security=security,
            security_folder=folders[1] / "security",
            heap_mb=_HEAP_MB,
        )
        for number in controllers
    }


def _replication(replicas: int) -> dict[str, object]:
    in_sync = max(1, replicas - 1)
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }
