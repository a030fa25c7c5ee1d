"""Waiting for a broker: it is ready once it answers a metadata request, whatever its log says."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Set
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

_RETRY_S = 0.1


def await_broker(
    bootstrap: str,
    timeout: float,
    check: Callable[[], None] = lambda: None,
    *,
    cluster_id: str | None = None,
    nodes: Set[int] = frozenset(),
    config: Mapping[str, Any] | None = None,
) -> None:
    """Return once a metadata request to `bootstrap` succeeds.

    Args:
        bootstrap: `host:port`, or several, separated by commas.
        timeout: seconds.
        check: called between attempts; raises if waiting is pointless (the broker's process has ended).
        cluster_id: the cluster that must answer; `None` = any.
        nodes: brokers that the metadata must name; it names one at least in any case.
        config: further settings of the client, such as passwords.

    Raises:
        TimeoutError: no answer in time; the message has the last error.
    """
    deadline = time.monotonic() + timeout
    trouble = "no attempt was made"
    client: AdminClient | None = None
    while True:
        check()
        try:
            if client is None:
                _connect(bootstrap)  # librdkafka backs off after a refused connection; so ask the port first
                client = AdminClient(_client_config(bootstrap, config or {}))
            left = deadline - time.monotonic()
            metadata = client.list_topics(timeout=max(0.1, min(2.0, left)))
            if cluster_id not in (None, metadata.cluster_id):
                trouble = f"another Kafka cluster ({metadata.cluster_id}) answers there"
            elif not metadata.brokers or not nodes <= metadata.brokers.keys():
                trouble = f"the metadata names the brokers {sorted(metadata.brokers)}, not yet {sorted(nodes) or 'any'}"
            else:
                return
        except (OSError, KafkaException) as error:
            trouble = str(error)
        if time.monotonic() >= deadline:
            raise TimeoutError(f"no Kafka broker answers at {bootstrap} within {timeout:g} s: {trouble}")
        time.sleep(_RETRY_S)


def _client_config(bootstrap: str, config: Mapping[str, Any]) -> dict[str, Any]:
    return {**config, "bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda _: None}


def _connect(bootstrap: str) -> None:
    errors: list[str] = []
    for server in bootstrap.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
        except OSError as error:
            errors.append(f"{server}: {error}")
        else:
            return
    raise OSError("; ".join(errors))
