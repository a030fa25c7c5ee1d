"""Blocking look-ups in a Kafka cluster: topics, partitions and offsets. Not for the hot path."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented
    AclOperation,
    AdminClient,
    OffsetSpec,
)

from checkpoint.brokers import REFUSED, REFUSES, nobody_listens
from sources.kafka.client_errors import passes
from sources.kafka.errors import KafkaUnavailable, MissingPermission
from sources.kafka.options import KafkaOptions, PartitionKey

_CHECK: Final = (
    "Check that the broker runs, that this machine reaches the address and the broker's advertised.listeners, and the "
    "security settings in config"
)
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


_FIRST_TRY_S: Final = 0.8
_TRY_AGAIN_S: Final = 0.1
_COORDINATOR_COMES: Final = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    }
)
NEW_LEADER: Final = frozenset(
    {
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
"""What a broker that has just started, or a new leader, says of a partition for a moment."""

_NOT_THERE: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_AUTHORIZATION_FAILED}
)


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
            MissingPermission: a topic may not be read.
        """
        known = self._list_topics()
        if self._options.pattern is not None:
            names = [name for name in known if self._options.reads(name)]
            if not names and (self._options.bounded or self._options.discovery_interval in (None, "auto")):
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
        described = self._describe(names)
        forbidden = [name for name, description in described.items() if not _allows(description, AclOperation.READ)]
        if forbidden:
            raise MissingPermission(
                f"this client may not read {', '.join(map(repr, forbidden))} at {self._options.servers}: grant its "
                "principal the permission READ on the topic",
                forbidden,
            )
        return {name: Topic(name, str(d.topic_id), len(d.partitions)) for name, d in described.items()}

    def _list_topics(self) -> Mapping[str, Any]:
        """All topics, since a request that names an unknown one may create it."""
        begun, left, slice_s = time.monotonic(), self._timeout, _FIRST_TRY_S
        while True:
            try:
                return self._admin.list_topics(timeout=min(left, slice_s)).topics
            except KafkaException as e:
                left, slice_s = left - slice_s, 2 * slice_s
                self._admin.poll(0)  # hands over what the connections said
                refused = any(error.code() in REFUSES for error in self._errors)
                if left <= 0 or refused or nobody_listens(self._errors):
                    raise self._unavailable("list topics", e, time.monotonic() - begun) from e

    def check_group(self) -> None:
        """That offsets may be committed to the group, if there is one.

        Raises:
            MissingPermission: they may not.
        """
        if (group := self._options.group_id) is None:
            return
        advice = (
            f"grant its principal the permission READ on the group {group!r}, or leave group_id out: the job's own "
            "offsets are in its checkpoints, the group's are for tools that show lag"
        )
        try:
            description = self._describe_group(group)
        except KafkaException as e:
            if e.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return
            if e.args[0].code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise self._unavailable(f"describe the group {group}", e) from e
            raise MissingPermission(f"this client may not see the group {group!r}: {advice}") from e
        if not _allows(description, AclOperation.READ):
            raise MissingPermission(f"this client may not commit offsets to the group {group!r}: {advice}")

    def _describe_group(self, group: str) -> Any:
        """Tries again while the group's coordinator is being elected, or reads what it has to know.

        Raises:
            KafkaException: as the broker says.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self._admin.describe_consumer_groups(
                    [group], include_authorized_operations=True, request_timeout=self._timeout
                )[group].result()
            except KafkaException as e:
                if e.args[0].code() not in _COORDINATOR_COMES or time.monotonic() >= deadline:
                    raise
                time.sleep(_TRY_AGAIN_S)

    def check_dead_letters(self) -> None:
        """That the topic for dead letters, if there is one, can be written to.

        Raises:
            ValueError: there is no such topic, or it is Kafka's own.
            MissingPermission: it may not be written to.
        """
        if self._options.dead_letters is None:
            return
        name = self._options.dead_letters.topic
        try:
            description = self._describe([name])[name]
        except KafkaUnavailable as e:
            cause = e.__cause__
            if isinstance(cause, KafkaException) and cause.args[0].code() in _NOT_THERE:
                raise ValueError(
                    f'on_bad_record={name!r} is neither "fail" nor "skip", and so names a topic for dead letters, '
                    f"which doesn't exist at {self._options.servers}, or this client may not see it. Create it, or "
                    "grant this client's principal the permissions DESCRIBE and WRITE on it"
                ) from e
            raise
        if description.is_internal:
            raise ValueError(f"the topic for dead letters, {name!r}, is internal to Kafka: name another one")
        if not _allows(description, AclOperation.WRITE):
            raise MissingPermission(
                f"this client may not write to the topic for dead letters, {name!r}: grant its principal the "
                "permission WRITE on it"
            )

    def _describe(self, names: list[str]) -> dict[str, Any]:
        if not names:
            return {}
        described = self._admin.describe_topics(
            TopicCollection(names), include_authorized_operations=True, request_timeout=self._timeout
        )
        return {name: self._result(f"describe the topic {name}", future) for name, future in described.items()}

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
        left: dict[TopicPartition, OffsetSpec] = {TopicPartition(*partition): spec for partition in partitions}
        found: dict[PartitionKey, int] = {}
        deadline = time.monotonic() + self._timeout
        while left:
            futures = self._admin.list_offsets(left, isolation_level=level, request_timeout=self._timeout)
            for key, future in futures.items():
                try:
                    found[key.topic, key.partition] = future.result().offset
                except KafkaException as e:
                    if e.args[0].code() not in NEW_LEADER or time.monotonic() >= deadline:
                        raise self._unavailable(f"look up offsets of {key.topic}[{key.partition}]", e) from e
                    continue
                del left[key]
            if left:
                time.sleep(_TRY_AGAIN_S)
        return found

    def _result(self, what: str, future: Any) -> Any:
        try:
            return future.result()
        except KafkaException as e:
            raise self._unavailable(what, e) from e

    def _unavailable(self, what: str, error: KafkaException, waited: float | None = None) -> KafkaUnavailable:
        self._admin.poll(0)  # hands over what the connections said
        reasons = dict.fromkeys([str(error.args[0].str()), *(e.str() for e in self._errors)])
        unknown = any(e.code() in REFUSES for e in (error.args[0], *self._errors))
        refused = unknown or not passes(error.args[0])
        self._errors.clear()
        patience = f"waited up to {self._timeout:g} s" if waited is None else f"waited {waited:.0f} s"
        return KafkaUnavailable(
            f"cannot {what} at {self._options.servers} ({patience}): "
            f"{'; '.join(list(reasons)[:4])}. {REFUSED if unknown else _CHECK}",
            refused,
            unknown,
        )


def _allows(description: Any, operation: Any) -> bool:
    """Whether this client may do it, as far as the broker tells."""
    return description.authorized_operations is None or operation in description.authorized_operations
