"""Transactions that are open in a cluster, by Kafka's own tool: librdkafka can't list them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final

from pipeline.broker.java_tool import run_java_tool

_TOOL: Final = "org.apache.kafka.tools.TransactionsCommand"
_OVER: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
"""States of a transactional id without an open transaction."""
_JAVAS_NAMES: Final = (
    "--command-config takes the names of Kafka's Java client (security.protocol, sasl.mechanism, sasl.jaas.config, "
    "ssl.truststore.location), not librdkafka's (sasl.username, ssl.ca.location)"
)
_EXCEPTION: Final = re.compile(r'^(?:Exception in thread "[^"]*" |Caused by: )(?:[\w$]+\.)*', re.MULTILINE)
"""What stands before an exception's name."""
_HINT: Final = " Enable debug logging for additional detail."
"""The tool says so behind what it has to say; there is no such option here."""


class TransactionsNotListed(Exception):
    """The tool has failed."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    """As Kafka says it: Ongoing, PrepareCommit, PrepareAbort, …"""
    seconds: float
    """How long it has been open."""
    timeout: float
    """Seconds after which the broker ends it."""
    partitions: tuple[str, ...]
    """`topic-0`, …"""


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """One that no coordinator will end: it holds readers up for ever."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    start_offset: int
    minutes: float


def open_transactions(servers: str, config: Path | None, prefix: str) -> list[OpenTransaction]:
    """The open transactions of transactional ids that begin with `prefix`, the oldest first.

    Args:
        config: properties file with settings of Kafka's Java admin client.

    Raises:
        TransactionsNotListed: the tool has failed; says with what.
        JavaMissing, FetchFailed, TimeoutExpired: as `run_java_tool`.
    """
    listed = _table(_run(servers, config, "list transactions", "list"))
    ids = [row["TransactionalId"] for row in listed if row["TransactionState"] not in _OVER]
    described = (
        one
        for id_ in ids
        if id_.startswith(prefix)
        for one in _table(
            _run(servers, config, f"describe the transaction of {id_!r}", "describe", "--transactional-id", id_)
        )
    )
    # One may have ended meanwhile.
    found = [_open(one) for one in described if one["TransactionState"] not in _OVER]
    return sorted(found, key=lambda one: -one.seconds)


def _open(row: dict[str, str]) -> OpenTransaction:
    duration = row["TransactionDurationMs"]
    return OpenTransaction(
        row["TransactionalId"],
        int(row["ProducerId"]),
        int(row["ProducerEpoch"]),
        row["TransactionState"],
        int(duration) / 1000 if duration.isdigit() else 0.0,
        int(row["TransactionTimeoutMs"]) / 1000,
        tuple(sorted(filter(None, row["TopicPartitions"].split(",")))),
    )


def hanging_transactions(servers: str, config: Path | None, topics: Sequence[str]) -> list[HangingTransaction]:
    """Transactions on the topics that nobody will end; otherwise like `open_transactions`."""
    return [
        HangingTransaction(
            row["Topic"],
            int(row["Partition"]),
            int(row["ProducerId"]),
            int(row["ProducerEpoch"]),
            int(row["StartOffset"]),
            float(row["Duration(min)"]),
        )
        for topic in topics
        for row in _table(
            _run(servers, config, f"find hanging transactions of topic {topic!r}", "find-hanging", "--topic", topic)
        )
    ]


def _run(servers: str, config: Path | None, what: str, *arguments: str) -> str:
    """
    Args:
        what: this is to do, for messages.
    """
    security = ("--command-config", str(config)) if config is not None else ()
    done = run_java_tool(_TOOL, "--bootstrap-server", servers, *security, *arguments)
    if done.returncode != 0:
        said = _root_cause(done.stderr.strip() or done.stdout.strip() or "it said nothing")
        raise TransactionsNotListed(
            f"Kafka's tool could not {what} at {servers}: {said.rstrip('.')}. Check that the "
            f"brokers run, that the address is right, and the security settings. {_JAVAS_NAMES}"
        )
    return done.stdout


def _root_cause(said: str) -> str:
    """The message of a Java stack trace's innermost exception; without a trace the last line, the tool's message."""
    *_, last = said.splitlines()
    last = last.removesuffix(_HINT)
    traces = list(_EXCEPTION.finditer(said))
    if not traces:
        return last
    lines = said[traces[-1].end() :].splitlines()
    message = takewhile(lambda line: not line.startswith(("\tat ", "\t... ")), lines)
    return " ".join(line.strip() for line in message) or last


def _table(text: str) -> list[dict[str, str]]:
    lines = [[cell.strip() for cell in line.split("\t")] for line in text.splitlines() if "\t" in line]
    return [dict(zip(lines[0], cells, strict=True)) for cells in lines[1:]]
