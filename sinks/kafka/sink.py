"""The Kafka sink's definition: its options, and what it makes of them in a subtask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, get_args

from checkpoint.brokers import check_addresses
from checkpoint.options import Seconds, is_whole, named_options, seconds, whole_number
from checkpoint.outage import Outage
from formats import RegistryFormat
from sinks.kafka.clients import OWNED, Delivery
from sinks.kafka.committed_output import check_restore, not_committed
from sinks.kafka.committer import KafkaCommitter
from sinks.kafka.committer_options import CommitterOptions
from sinks.kafka.encoding import PLAIN_FORMATS, Field, Format, RecordEncoder, RecordOptions
from sinks.kafka.permissions import check_writers
from sinks.kafka.topics import TopicCatalog
from sinks.kafka.validation import check_brokers, check_topic
from sinks.kafka.writers import DirectWriter, StagingWriter
from sinks.recovery import OnMarkerLost
from sinks.sink import Committable, Committer, CommitterContext, Sink, SinkWriter, WriterContext, WriterRestore

_MIB: Final = 1024 * 1024
_SEGMENT_BYTES: Final = 8 * _MIB
_INTERNAL_TOPIC: Final = "__consumer_offsets"
"""Exists wherever markers can be kept at all; used where no topic of the sink is fixed."""


@named_options
class KafkaSink(Sink):
    """Writes records to Kafka topics.

    *Exactly once* (the default): records are staged in the checkpoint storage and written in one short transaction once
    their checkpoint is complete. Read the topics with `isolation.level=read_committed`. *At least once* writes directly
    and flushes at every barrier; *none* only writes.

    Example:
        >>> KafkaSink("localhost:9092", topic="totals", key="user").delivery
        'exactly_once'
    """

    def __init__(
        self,
        servers: str,
        topic: str | Callable[[Any], str],
        key: Field | None = None,
        value_format: Format = "json",
        key_format: Format | None = None,
        headers: Callable[[Any], Mapping[str, Any] | Iterable[tuple[str, Any]] | None] | None = None,
        timestamp: Field | None = None,
        partitioner: Callable[[Any, int], int] | None = None,
        delivery: Delivery = "exactly_once",
        transactional_id_prefix: str | None = None,
        max_transaction_bytes: int = 64 * _MIB,
        on_marker_lost: OnMarkerLost = "fail",
        config: Mapping[str, Any] | None = None,
        marker_topic: str | None = None,
        outage_timeout: Seconds | None = None,
    ) -> None:
        """
        Args:
            servers: addresses of brokers, `host:port[,host:port…]`. One that answers is enough to find the others.
            topic: where records go: a topic's name, or a function that gets the record and returns a name. Topics must
                exist.
            key: what a message's key is made of: a field's name, an index, or a function of the record. Messages of one
                key go to one partition. `None`: messages have no key and are spread over the partitions.
            value_format: how a record becomes a message's value: "json" (a record with something that JSON doesn't
                have, such as NaN, is refused), "str", "bytes", `Avro(…)`, `JsonSchema(…)` or `Protobuf(…)`. A record
                that is `None` is written as a tombstone.
            key_format: the same for keys. `None`: str and bytes are written as they are, all else as JSON.
            headers: a function of the record that returns the message's headers: a dict or pairs of a name and a value
                (str, bytes or `None`). `None`: messages have no headers.
            timestamp: the message's timestamp, in milliseconds since 1970: a field's name, an index, a function of the
                record, or "record" for the timestamp that the record has in the stream. `None`, also as a value: the
                time at which the message is sent.
            partitioner: a function that gets the record and the number of partitions, and returns a partition's number.
                `None`: the partition that Kafka's own clients choose for the key (murmur2).
            delivery: what readers can rely on. "exactly_once": each record is in the topic once, and visible when its
                checkpoint is complete. "at_least_once": visible at once; after a failure records are written again.
                "none": visible at once; a failure may lose records and write others again.
            transactional_id_prefix: how the names of the sink's transactional ids and marker groups begin:
                `<prefix>-<sink>-<subtask>`. `None`: the pipeline's name. No other job on the cluster may use the same.
            max_transaction_bytes: bytes of keys, values and headers in one transaction, 64 MiB by default. An epoch
                with more is committed in several, one after the other. Matters with "exactly_once" only.
            on_marker_lost: what a restore does if Kafka no longer has the marker that says what is committed: "fail"
                stops with an error, "replay" commits what the checkpoint holds (doubled if it was committed), "skip"
                leaves it out (lost if it was not).
            config: further settings of librdkafka, such as security and compression. `None`: none.
            marker_topic: the markers are kept as committed offsets of partition 0 of this topic; nothing is written to
                it. `None`: `topic`, or Kafka's `__consumer_offsets` if that is a function.
            outage_timeout: seconds that the sink waits for brokers that are down, while the job runs and when it
                restarts. After that the attempt fails. `None`: it waits for ever, and `weir status` says since when.

        Raises:
            ValueError: an option has a value that it can't have.
        """
        self.servers = check_addresses(servers)
        self.delivery: Delivery = _choice(delivery, "delivery", Delivery)
        self.on_marker_lost: OnMarkerLost = _choice(on_marker_lost, "on_marker_lost", OnMarkerLost)
        self.config = _check_config(config or {}, self.delivery)
        if not callable(topic):
            _name(topic, "topic", "a topic's name or a function of the record")
        _check_format(value_format, "value_format")
        if key_format is not None:
            _check_format(key_format, "key_format")
        for option, function in (("headers", headers), ("partitioner", partitioner)):
            if function is not None and not callable(function):
                raise ValueError(f"{option} must be a function, not {function!r}")
        for option, field in (("key", key), ("timestamp", timestamp)):
            if not (field is None or isinstance(field, str) or is_whole(field) or callable(field)):
                raise ValueError(
                    f"{option} must be a field's name, an index or a function of the record, not {field!r}"
                )
        if transactional_id_prefix is not None:
            _check_letters(_name(transactional_id_prefix, "transactional_id_prefix", "a name"))
        if marker_topic is not None:
            _name(marker_topic, "marker_topic", "a topic's name")
        whole_number(max_transaction_bytes, "max_transaction_bytes", 1, unit="bytes")
        self.outage_timeout = None if outage_timeout is None else seconds(outage_timeout, "outage_timeout", 0.1)
        self.topic = topic
        self.transactional_id_prefix = transactional_id_prefix
        self.max_transaction_bytes = max_transaction_bytes
        self.marker_topic = marker_topic or (topic if isinstance(topic, str) else _INTERNAL_TOPIC)
        self.needs_checkpoints = self.delivery == "exactly_once"
        limit = self.config.get("message.max.bytes")
        self._records = RecordOptions(
            topic=topic,
            key=key,
            value_format=value_format,
            key_format=key_format,
            headers=headers,
            timestamp=timestamp,
            partitioner=partitioner,
            message_limit=int(limit) if limit is not None else None,
        )

    def validate(self) -> None:
        """
        Raises:
            ValueError: `config` has a setting that librdkafka or the brokers don't take.
            BrokerUnavailable: no broker answers.
            TopicRefused: the topic doesn't exist, or this user may not write to it.
            RegistryUnavailable: a format's schema registry doesn't answer, or refuses.
            SchemaRefused: it doesn't have a format's schema, or won't take it.
        """
        check_brokers(self.servers, self.config, self.delivery)
        catalog = TopicCatalog(self.servers, self.config)
        if isinstance(self.topic, str):
            catalog.get(self.topic)
        if self.delivery == "exactly_once" and self.marker_topic not in (self.topic, _INTERNAL_TOPIC):
            check_topic(self.servers, self.config, self.marker_topic)
        topic = self.topic if isinstance(self.topic, str) else None
        if isinstance(self._records.value_format, RegistryFormat):
            self._records.value_format.check_sink(topic, "value")
        if isinstance(self._records.key_format, RegistryFormat):
            self._records.key_format.check_sink(topic, "key")

    def validate_as(self, pipeline: str, sink_id: str, parallelism: int) -> None:
        """
        Raises:
            MissingPermission: a subtask of an exactly-once sink may not commit.
            BrokerUnavailable: no broker answers.
        """
        if self.delivery == "exactly_once":
            writers = [self._writer_name(pipeline, sink_id, writer) for writer in range(parallelism)]
            check_writers(self.servers, self.config, writers, self.marker_topic)

    def exclusive_names(self, pipeline: str, sink_id: str) -> Sequence[str]:
        if self.delivery != "exactly_once":
            return ()
        return [f"Kafka's transactional ids and groups {self.transactional_id_prefix or pipeline}-{sink_id}-<subtask>"]

    def create_writer(self, ctx: WriterContext) -> SinkWriter:
        """
        Raises:
            BrokerUnavailable, TopicRefused: as `validate`.
        """
        what = f"the Kafka brokers at {self.servers} to write to (sink {ctx.sink_id!r})"
        outage = Outage(ctx.waiting, what, self.outage_timeout)
        catalog = TopicCatalog(self.servers, self.config, outage)
        if isinstance(self.topic, str):
            catalog.get(self.topic)
        encoder = RecordEncoder(self._records, catalog, ctx.sink_id)
        if self.delivery == "exactly_once":
            return StagingWriter(encoder, ctx, min(_SEGMENT_BYTES, self.max_transaction_bytes))
        return DirectWriter(encoder, ctx, self.servers, self.config, self.delivery, outage)

    def create_committer(self, ctx: CommitterContext) -> Committer | None:
        if self.delivery != "exactly_once":
            return None
        options = CommitterOptions(
            servers=self.servers,
            config=self.config,
            name=self._writer_name(ctx.pipeline, ctx.sink_id, ctx.writer),
            topic=None if callable(self.topic) else self.topic,
            marker_topic=self.marker_topic,
            max_transaction_bytes=self.max_transaction_bytes,
            on_marker_lost=self.on_marker_lost,
            outage_timeout=self.outage_timeout,
        )
        return KafkaCommitter(options, ctx)

    def check_restore(self, restore: WriterRestore) -> None:
        """By the writer's marker; whatever Kafka doesn't tell is left to the committer.

        Raises:
            OutputAhead, EarlierOutput, MarkerLost, ForeignMarker: the marker doesn't fit the checkpoint.
        """
        if self.delivery == "exactly_once":
            name = self._writer_name(restore.pipeline, restore.sink_id, restore.writer)
            check_restore(self.servers, self.config, name, self.marker_topic, self.on_marker_lost, restore)

    def uncommitted(
        self, pipeline: str, sink_id: str, writer: int, state: Any, committables: Sequence[Committable]
    ) -> Sequence[Committable]:
        """By the writer's marker; all of them where Kafka doesn't tell it."""
        if self.delivery != "exactly_once" or state is None:
            return committables
        return not_committed(
            self.servers, self.config, self._writer_name(pipeline, sink_id, writer), state, committables
        )

    def _writer_name(self, pipeline: str, sink_id: str, writer: int) -> str:
        return _check_letters(f"{self.transactional_id_prefix or pipeline}-{sink_id}-{writer}")


def _name(value: Any, option: str, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{option} must be {what}, not {value!r}")
    return value


def _check_letters(name: str) -> str:
    """
    Raises:
        ValueError: Kafka's client doesn't take it as the name of a group.
    """
    if not (name.isascii() and name.isprintable()):
        raise ValueError(
            f"a transactional id and group of the sink would be called {name!r}, and Kafka's client takes only "
            "printable ASCII there: set transactional_id_prefix to such a name"
        )
    return name


def _choice(value: Any, option: str, choices: Any) -> Any:
    names = get_args(choices)
    if value not in names:
        raise ValueError(f"{option} must be one of {', '.join(map(repr, names))}; not {value!r}")
    return value


def _check_format(value: Any, option: str) -> None:
    if not isinstance(value, RegistryFormat) and value not in PLAIN_FORMATS:
        raise ValueError(
            f"{option} must be one of {', '.join(map(repr, PLAIN_FORMATS))}, or a format such as Avro(…), "
            f"JsonSchema(…), Protobuf(…); not {value!r}"
        )


def _check_config(config: Mapping[str, Any], delivery: Delivery) -> dict[str, Any]:
    if not isinstance(config, Mapping):
        raise ValueError(f"config must be a dict of librdkafka's settings, not {config!r}")
    for name, value in config.items():
        if name in OWNED:
            raise ValueError(f"config may not set {name!r}: {OWNED[name]}")
        if delivery == "none":
            continue
        if name == "enable.idempotence" and str(value).lower() not in ("true", "1"):
            raise ValueError(
                f"config may not set enable.idempotence={value!r}: retries would double records or change their order"
            )
        if name in ("acks", "request.required.acks") and str(value).lower() not in ("all", "-1"):
            raise ValueError(
                f"config may not set {name}={value!r} with delivery={delivery!r}: acknowledged records could be lost "
                'with a broker. Leave it out, or use delivery="none"'
            )
    return dict(config)
