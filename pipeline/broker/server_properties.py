"""The configuration files of an embedded broker: what it is told besides its addresses and its security."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final

DEFAULTS: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "broker.session.timeout.ms": "3000",  # a restart after a kill waits for it
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}

_OWNED: Final = frozenset(
    ("process.roles", "node.id", "listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs")
)

LOGGING: Final = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server
logger.server.level = info
"""


def check_properties(properties: Mapping[str, object]) -> None:
    """
    Raises:
        ValueError: one that the embedded broker must set itself.
    """
    if owned := sorted(_OWNED.intersection(properties)):
        raise ValueError(f"the embedded broker sets {', '.join(owned)} itself; give host, port or directory instead")


def new_cluster_id() -> str:
    while True:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not cluster_id.startswith("-"):  # the storage tool would take it for an option
            return cluster_id


def write_properties(path: Path, properties: Mapping[str, object]) -> None:
    """Readable by the owner only: passwords are in it."""
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={_text(value)}\n" for name, value in properties.items()))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
