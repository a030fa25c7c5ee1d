"""The options of a Kafka source, checked before anything runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from checkpoint.brokers import check_addresses, is_topic_name, no_topic_name
from checkpoint.options import Seconds, is_whole, seconds
from sources.kafka import formats
from sources.kafka.formats import Format
from sources.kafka.on_bad_record import DeadLetter, parse
from sources.rate_limit import check_rate

PartitionKey = tuple[str, int]
"""Topic and partition."""

_MIB: Final = 1024 * 1024
_LEAST_BUDGET: Final = 4 * _MIB
_LARGEST_FETCH: Final = 50 * _MIB
"""librdkafka's own default; well below its limit for one response (`receive.message.max.bytes`)."""

OWNED: Final[Mapping[str, str]] = {
    "bootstrap.servers": "it is the first argument, servers",
    "metadata.broker.list": "it is the first argument, servers",
    "group.id": "it is the option group_id",
    "group.instance.id": "Weir assigns partitions itself and never joins a group",
    "group.protocol.type": "Weir assigns partitions itself and never joins a group",
    "group.protocol": "Weir assigns partitions itself and never joins a group",
    "group.remote.assignor": "Weir assigns partitions itself and never joins a group",
    "partition.assignment.strategy": "Weir assigns partitions itself and never joins a group",
    "enable.auto.commit": "offsets are part of checkpoints, and committed to the group when one completes",
    "auto.commit.enable": "offsets are part of checkpoints, and committed to the group when one completes",
    "auto.commit.interval.ms": "offsets are part of checkpoints, and committed to the group when one completes",
    "enable.auto.offset.store": "offsets are part of checkpoints, and committed to the group when one completes",
    "offset.store.method": "offsets are part of checkpoints, and committed to the group when one completes",
    "offset.store.path": "offsets are part of checkpoints, and committed to the group when one completes",
    "offset.store.sync.interval.ms": "offsets are part of checkpoints, and committed to the group when one completes",
    "auto.offset.reset": "it is the options start and on_data_loss; resetting silently would lose or double records",
    "enable.partition.eof": "Weir needs the end-of-partition events to end a bounded source",
    "allow.auto.create.topics": "an unknown topic is an error, it must not come into being by being read",
    "consume.callback.max.messages": "Weir polls by itself",
    "error_cb": "Weir logs and judges the client's errors itself",
    "throttle_cb": "Weir owns the client's callbacks",
    "stats_cb": "Weir owns the client's callbacks",
    "on_commit": "Weir owns the client's callbacks",
    "offset_commit_cb": "Weir owns the client's callbacks",
    "consume_cb": "Weir owns the client's callbacks",
    "rebalance_cb": "Weir assigns partitions itself and never joins a group",
    "on_assign": "Weir assigns partitions itself and never joins a group",
    "on_revoke": "Weir assigns partitions itself and never joins a group",
    "on_lost": "Weir assigns partitions itself and never joins a group",
    "enabled_events": "Weir owns the client's callbacks",
    "background_event_cb": "Weir owns the client's callbacks",
    "opaque": "Weir owns the client's callbacks",
    "log.queue": "the client logs to the Python logger sources.kafka.client",
    "logger": "the client logs to the Python logger sources.kafka.client",
    "log_cb": "the client logs to the Python logger sources.kafka.client",
}
"""Settings of librdkafka that a Kafka source must set itself, with the reason."""

OWNED_BY_DEAD_LETTERS: Final[Mapping[str, str]] = {
    "bootstrap.servers": "dead letters go to the source's own cluster",
    "metadata.broker.list": "dead letters go to the source's own cluster",
    "transactional.id": "dead letters are written without transactions; a checkpoint holds those that are not out",
    "acks": "a dead letter counts as delivered once all replicas in sync have it",
    "request.required.acks": "a dead letter counts as delivered once all replicas in sync have it",
    "message.max.bytes": "the topic's max.message.bytes is what limits a dead letter",
    "delivery.report.only.error": "Weir handles the delivery reports",
    "on_delivery": "Weir handles the delivery reports",
    "dr_cb": "Weir handles the delivery reports",
    "dr_msg_cb": "Weir handles the delivery reports",
    "error_cb": "Weir logs and judges the client's errors itself",
    "stats_cb": "Weir owns the client's callbacks",
    "throttle_cb": "Weir owns the client's callbacks",
    "logger": "the client logs to the Python logger sources.kafka.client",
    "log_cb": "the client logs to the Python logger sources.kafka.client",
    "log.queue": "the client logs to the Python logger sources.kafka.client",
}
"""Settings that the producer for dead letters must have as they are, with the reason."""

_LARGEST_MESSAGE: Final = 1_000_000_000
"""librdkafka's largest `message.max.bytes`."""

_CONSUMER_ONLY: Final = re.compile(
    r"fetch\.|queued\.|session\.timeout\.ms|heartbeat\.interval\.ms|max\.poll\.|isolation\.level|check\.crcs|"
    r"statistics\.|coordinator\.query|offset\.store|group\.|max\.partition\.fetch\.bytes"
)


_BUDGET_PER_RECORD: Final = 6400
"""Bytes of the budget for each record that a partition has fetched ahead, so that small records are bounded by count:
each costs the client 300 bytes beside its content."""
DISCOVERY_S: Final = 30.0
"""Between two looks at the topics: one request for metadata and one for descriptions."""


def timestamp_of(offsets: object) -> int | None:
    """The milliseconds of `{"timestamp": milliseconds}`; `None` for anything else."""
    return offsets["timestamp"] if isinstance(offsets, Mapping) and set(offsets) == {"timestamp"} else None


@dataclass(frozen=True)
class KafkaOptions:
    """Everything a Kafka source was told; see `KafkaSource` for the meaning.

    Raises:
        ValueError: an option has a value that it can't have; the message says which it may have.
    """

    servers: str
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    group_id: str | None = None
    start: str | Mapping[Any, Any] = "earliest"
    end: str | Mapping[Any, Any] | None = None
    value_format: Format = "json"
    value_type: Any = None
    key_format: Format = "bytes"
    discovery_interval: Seconds | Literal["auto"] | None = "auto"
    rate_limit: float | None = None
    on_data_loss: Literal["fail", "earliest"] = "fail"
    on_bad_record: str | DeadLetter = "fail"
    fetch_budget: int = 16 * _MIB
    outage_timeout: Seconds | None = None
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_addresses(self.servers)
        self._check_topics()
        if self.group_id is not None and (not isinstance(self.group_id, str) or not self.group_id):
            raise ValueError(f"group_id must be a name or None, not {self.group_id!r}")
        self._check_offsets("start", self.start, ("earliest", "latest", "group"))
        if self.start == "group" and self.group_id is None:
            raise ValueError('start="group" needs group_id, the group whose committed offsets are meant')
        if self.end is not None:
            self._check_offsets("end", self.end, ("latest",))
        formats.check("value_format", self.value_format)
        formats.check_value_type(self.value_type, self.value_format)
        formats.check("key_format", self.key_format)
        if self.discovery_interval not in (None, "auto"):
            object.__setattr__(self, "discovery_interval", seconds(self.discovery_interval, "discovery_interval", 0.1))
        if self.outage_timeout is not None:
            object.__setattr__(self, "outage_timeout", seconds(self.outage_timeout, "outage_timeout", 0.1))
        object.__setattr__(self, "rate_limit", check_rate(self.rate_limit, "rate_limit"))
        if self.on_data_loss not in ("fail", "earliest"):
            raise ValueError(f'on_data_loss must be "fail" or "earliest", not {self.on_data_loss!r}')
        object.__setattr__(self, "on_bad_record", parse(self.on_bad_record))
        if not is_whole(self.fetch_budget):
            raise ValueError(f"fetch_budget must be a whole number of bytes, not {self.fetch_budget!r}")
        if self.fetch_budget < _LEAST_BUDGET:
            raise ValueError(f"fetch_budget must be at least {_LEAST_BUDGET} bytes, not {self.fetch_budget}")
        _check_config("config", self.config, OWNED)
        object.__setattr__(self, "config", dict(self.config))
        self._check_dead_letters()

    def _check_topics(self) -> None:
        if (self.topics is None) == (self.pattern is None):
            raise ValueError("a Kafka source needs either topics=[…] or pattern=…, not both")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except (re.error, TypeError) as e:
                raise ValueError(
                    f"pattern must be a regular expression for topic names, not {self.pattern!r}: {e}"
                ) from e
            return
        topics = self.topics
        if isinstance(topics, str) or not isinstance(topics, Sequence) or not topics:
            raise ValueError(f'topics must be a list of names such as ["orders"], not {topics!r}')
        for topic in topics:
            if not is_topic_name(topic):
                raise ValueError(f"topics: {no_topic_name(topic)}")
        object.__setattr__(self, "topics", tuple(dict.fromkeys(topics)))

    def _check_offsets(self, name: str, value: object, words: tuple[str, ...]) -> None:
        if isinstance(value, str) and value in words:
            return
        expected = (
            f"{name} must be {', '.join(f'{word!r}' for word in words)}, "
            '{"timestamp": milliseconds}, or offsets: {("orders", 0): 17, "users": 0}'
        )
        if not isinstance(value, Mapping) or not value:
            raise ValueError(f"{expected}; not {value!r}")
        for key, offset in value.items():
            if not (is_whole(offset) and offset >= 0):
                raise ValueError(f"{expected}; {offset!r} is no offset")
            topic = key[0] if isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], int) else key
            if not isinstance(topic, str):
                raise ValueError(f"{expected}; {key!r} is neither a topic nor a (topic, partition)")
            if self.topics is not None and topic not in self.topics and timestamp_of(value) is None:
                raise ValueError(f"{name} names the topic {topic!r}, which this source does not read")

    def _check_dead_letters(self) -> None:
        if (dead_letters := self.dead_letters) is None:
            return
        for option, value in (("servers", dead_letters.servers), ("at_most", dead_letters.at_most)):
            if value is not None:
                raise ValueError(
                    f"on_bad_record=DeadLetter(…, {option}={value!r}): {option} is for steps (on_error). The bad "
                    "records of a source go to a topic of its own cluster, any number of them"
                )
        _check_config("the DeadLetter's config", dead_letters.config, OWNED_BY_DEAD_LETTERS)
        if self.reads(dead_letters.topic):
            raise ValueError(
                f"the topic for dead letters, {dead_letters.topic!r}, is one that this source reads: every bad record "
                "would come back without end. Name another topic, or make the pattern narrower"
            )

    def reads(self, topic: str) -> bool:
        """Whether a topic of this name is one of the source's."""
        if self.topics is not None:
            return topic in self.topics
        return re.fullmatch(self.pattern or "", topic) is not None and not topic.startswith("__")

    @property
    def dead_letters(self) -> DeadLetter | None:
        """Where bad records go, if it is to a topic."""
        return self.on_bad_record if isinstance(self.on_bad_record, DeadLetter) else None

    @property
    def look_every(self) -> float | None:
        """Seconds between two looks for new partitions; `None`: they are not read."""
        if self.bounded or self.discovery_interval is None:
            return None
        return DISCOVERY_S if self.discovery_interval == "auto" else self.discovery_interval  # type: ignore[return-value]

    @property
    def bounded(self) -> bool:
        return self.end is not None

    @property
    def prefetch_bytes(self) -> int:
        """The most that the client has fetched ahead; half of the budget, since a fetch under way comes on top."""
        return self.fetch_budget // 2

    @property
    def batch_bytes(self) -> int:
        """The size that one polled batch aims at."""
        return min(_MIB // 4, self.fetch_budget // 64)

    @property
    def letter_bytes(self) -> int:
        """The most bytes of dead letters that may be on their way."""
        return min(_MIB, self.fetch_budget // 16)

    def consumer_config(self, client_id: str, group: str) -> dict[str, Any]:
        """Settings of the consumer in a subtask."""
        fetch = min(self.fetch_budget // 8, _LARGEST_FETCH)
        return {
            "client.id": client_id,
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": self.prefetch_bytes // 1024,
            # For each partition. The next fetch comes while these are processed.
            "queued.min.messages": self.fetch_budget // _BUDGET_PER_RECORD,
            # The default of 1 s would leave the queue empty for most of the time, as it is short.
            "fetch.queue.backoff.ms": 10,
            "fetch.max.bytes": fetch,
            # Says nothing to a consumer, but that the client refuses to fetch less.
            "message.max.bytes": min(1_000_000, int(self.config.get("fetch.max.bytes", fetch))),
            "statistics.interval.ms": 5000,
            "max.partition.fetch.bytes": min(_MIB, fetch // 8),
            **self.config,
            "bootstrap.servers": self.servers,
            "group.id": self.group_id or group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }

    def admin_config(self) -> dict[str, Any]:
        """Settings of the client that looks up topics and offsets."""
        return {**self.shared_config(), "bootstrap.servers": self.servers, "log_level": 0}

    def dead_letter_config(self, client_id: str) -> dict[str, Any]:
        """Settings of the producer for dead letters in a subtask."""
        theirs = {**self.shared_config(), **(self.dead_letters.config if self.dead_letters is not None else {})}
        timeout: Any = self.outage_timeout  # seconds by now
        patience = 0 if timeout is None else max(1000, int(timeout * 1000))
        return {
            "client.id": client_id,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "linger.ms": 5,
            # A broker's limit is for batches, so small ones come through wherever their records do.
            "batch.size": 65_536,
            # They wait as long as an outage may last.
            **({} if "delivery.timeout.ms" in theirs else {"message.timeout.ms": patience}),
            **theirs,
            "bootstrap.servers": self.servers,
            "acks": "all",
            "message.max.bytes": _LARGEST_MESSAGE,
        }

    def shared_config(self) -> dict[str, Any]:
        """What of the user's settings is not a consumer's own."""
        return {name: value for name, value in self.config.items() if not _CONSUMER_ONLY.match(name)}


def _check_config(what: str, config: object, owned: Mapping[str, str]) -> None:
    if not isinstance(config, Mapping):
        raise ValueError(f"{what} must be a dict of librdkafka's settings, not a {type(config).__name__}")
    for name, value in config.items():
        if name in owned:
            raise ValueError(f"{what} may not set {name!r}: {owned[name]}")
        if isinstance(value, Consumer | Producer | AdminClient):
            raise ValueError(
                f"{what}[{name!r}] is a Kafka client. A client made before the workers are forked hangs in them; "
                "give its settings, Weir makes the clients in the workers"
            )
        if not isinstance(value, str | int | float | bool) and not (name == "oauth_cb" and callable(value)):
            raise ValueError(f"{what}[{name!r}] must be a string, number or bool, not {type(value).__name__}")
