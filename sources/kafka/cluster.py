"""Blocking look-ups in a Kafka cluster: topics, partitions and offsets. Not for the hot path."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # documented

from .errors import KafkaUnavailable
from .options import KafkaOptions, PartitionKey

DEFAULT_TIMEOUT: Final = 10.0
"""Seconds; a broker that answers at all answers these requests in milliseconds."""

_EARLIEST: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: str
    """Kafka's id, other for a topic that was deleted and created again under the same name."""
    partitions: int


class Cluster:
    """One short-lived client. Every method waits for at most `timeout` seconds.

    Raises (every method):
        KafkaUnavailable: no broker answered in time, or it refused; the message says what to check.
    """

    def __init__(self, options: KafkaOptions, timeout: float = DEFAULT_TIMEOUT) -> None:
        self._options = options
        self._timeout = timeout
        self._errors: list[KafkaError] = []
        config: dict[str, Any] = {**options.admin_config(), "error_cb": self._errors.append}
        self._admin = AdminClient(config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        del self._admin

    def topics(self) -> dict[str, Topic]:
        """The topics that the source reads, by name.

        Raises:
            ValueError: a topic of the list is not there, or no topic matches a pattern that is matched only once.
        """
        try:
            # All topics, since a request that names an unknown one may create it.
            known = self._admin.list_topics(timeout=self._timeout).topics
        except KafkaException as e:
            raise self._unavailable("list topics", e) from e
        if self._options.pattern is not None:
            names = [name for name in known if re.fullmatch(self._options.pattern, name) and not name.startswith("__")]
            if not names and self._options.discovery_interval is None:
                raise ValueError(
                    f"no topic at {self._options.servers} matches the pattern {self._options.pattern!r} as a whole. "
                    "Correct it, create a topic, or set discovery_interval to wait for one"
                )
        else:
            names = list(self._options.topics or ())
            missing = [name for name in names if name not in known]
            if missing:
                raise ValueError(
                    f"no topic {', '.join(missing)} at {self._options.servers}: it doesn't exist, or this client may "
                    "not see it. Create it, or check its name and the permission to describe and read it"
                )
        described = self._admin.describe_topics(TopicCollection(names), request_timeout=self._timeout) if names else {}
        found = {}
        for name, future in described.items():
            description = self._result(f"describe the topic {name}", future)
            found[name] = Topic(name, str(description.topic_id), len(description.partitions))
        return found

    def earliest(self, partitions: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """The start of the log of every partition."""
        return self._offsets(partitions, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)

    def latest(self, partitions: Iterable[PartitionKey], committed: bool = False) -> dict[PartitionKey, int]:
        """The high watermark of every partition; with `committed` only up to the first open transaction."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        return self._offsets(partitions, _LATEST, level)

    def at(self, partitions: Iterable[PartitionKey], timestamp: int) -> dict[PartitionKey, int]:
        """The first offset with at least `timestamp` (ms), or the high watermark where there is none."""
        partitions = list(partitions)
        found = self._offsets(partitions, OffsetSpec.for_timestamp(timestamp), IsolationLevel.READ_UNCOMMITTED)
        without = [partition for partition in partitions if found[partition] < 0]
        return {**found, **self.latest(without)}

    def _offsets(
        self, partitions: Iterable[PartitionKey], spec: OffsetSpec, level: IsolationLevel
    ) -> dict[PartitionKey, int]:
        request: dict[TopicPartition, OffsetSpec] = {TopicPartition(*partition): spec for partition in partitions}
        if not request:
            return {}
        futures = self._admin.list_offsets(request, isolation_level=level, request_timeout=self._timeout)
        return {
            (key.topic, key.partition): self._result(f"look up offsets of {key.topic}[{key.partition}]", future).offset
            for key, future in futures.items()
        }

    def _result(self, what: str, future: Any) -> Any:
        try:
            return future.result()
        except KafkaException as e:
            raise self._unavailable(what, e) from e

    def _unavailable(self, what: str, error: KafkaException) -> KafkaUnavailable:
        self._admin.poll(0)  # hands over what the connections said
        reasons = dict.fromkeys([str(error.args[0].str()), *(e.str() for e in self._errors)])
        self._errors.clear()
        return KafkaUnavailable(
            f"cannot {what} at {self._options.servers} (waited up to {self._timeout:g} s): "
            f"{'; '.join(list(reasons)[:4])}. Check that the broker runs, that this machine reaches the address and "
            "the broker's advertised.listeners, and the security settings in config"
        )
