"""The definition of a Kafka source."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from confluent_kafka import Consumer, KafkaException, Producer

from checkpoint.options import Seconds, flag, limit, named_options
from formats import RegistryFormat
from sources.kafka.cluster import Cluster
from sources.kafka.formats import Format
from sources.kafka.group import committed_offsets
from sources.kafka.on_bad_record import DeadLetter
from sources.kafka.options import KafkaOptions, PartitionKey, timestamp_of
from sources.kafka.reader import KafkaReader
from sources.kafka.splits import check_ends, check_named, to_state
from sources.kafka.start import SplitAssignment, open_splits
from sources.source import Source, SourceContext, SourceReader, T

VALIDATE_TIMEOUT_S: Final = 10.0


@named_options
class KafkaSource(Source[T]):
    """Reads Kafka topics. A record's value is the decoded message value.

    Every partition belongs to one subtask: number `(hash(topic) + partition) % parallelism`. Offsets are part of the
    checkpoints. The source never joins a consumer group. A partition that appears after the first checkpoint is read
    from its beginning.

    Args:
        servers: addresses of brokers, separated by commas: `"host:port,host:port"`.
        topics: names of the topics to read. Give either this or `pattern`.
        pattern: a regular expression. All topics whose whole name it matches are read, except Kafka's internal ones.
        group_id: a consumer group. When a checkpoint completes, its offsets are committed to this group, so that tools
            can show the lag; and `start="group"` reads the group's offsets. `None` (the default): nothing is committed.
        start: where partitions begin when the job starts without a checkpoint. `"earliest"` (the default): at the
            beginning. `"latest"`: behind the last record; with `isolation.level=read_committed`, before the first open
            transaction, so that nothing is lost that becomes visible later. `"group"`: at the offsets that `group_id`
            has committed, and at the beginning where it has none. `{"timestamp": ms}`: at the first record of that time
            or later, in milliseconds since 1970. Or offsets, `{("orders", 0): 17, "users": 0}`: a topic's name
            stands for those of its partitions that are not named, and all others begin at the beginning. (For a topic
            that is called timestamp name its partitions.)
        end: where a bounded source ends. `None` (the default): never. `"latest"`: at the end that every partition had
            at the first start; open transactions in front of it are waited for. `{"timestamp": ms}` as in `start`. Or
            offsets as in `start`: the first ones that are not read, for every partition. Ends are kept in checkpoints.
        value_format: how values are decoded: `"json"` (the default), `"str"` (UTF-8), `"bytes"`, `Avro(…)`,
            `JsonSchema(…)` or `Protobuf(…)`, for all of which a tombstone is `None`; or `ArrowJson(…)`, which gives
            record batches.
        value_type: what values are turned into: a dataclass, `msgspec.Struct`, `TypedDict` or pydantic model. One that
            doesn't fit is a bad record. For `"json"` and the formats of a registry. `None` (the default): values stay
            what `value_format` gives.
        key_format: how `ctx.kafka_key` is decoded, when an operator asks for it: `"bytes"` (the default) or another
            value format except `ArrowJson`.
        discovery_interval: seconds between two looks for new partitions, and with `pattern` for new topics. `"auto"`
            (the default): 30 s, and with `pattern` at least one topic must exist at the start; with a number none need
            exist. `None`: new partitions are read from the next start on; until then the log names them, and
            `recordsLag` counts their records. A bounded source never reads partitions that come after its start.
        active_backpressure: whether the source gate may stop this source before a checkpoint spans too much; `True` by
            default.
        span_window: whether the gate also learns how many records a checkpoint may span; `True` by default (see
            docs/backpressure.md).
        max_span_records: the most records between two barriers of one subtask; `None` (the default): no limit.
        max_span_bytes: the most bytes between two barriers of one subtask; `None` (the default): no limit.
        rate_limit: the most records per second that the whole source emits. The subtasks that have partitions share it.
            `None` (the default): no limit.
        on_data_loss: what to do when offsets that are to be read next are gone from the topic. `"fail"` (the default):
            the job fails, and says which offsets. `"earliest"`: go on at the beginning, with a warning.
        on_bad_record: what to do with a value that can't be decoded. `"fail"` (the default): the job fails. `"skip"`:
            leave it out and count it (`recordsSkipped`). The name of a topic, or a `DeadLetter`: write it there, with
            the reason in its headers (`recordsDeadLettered`).
        fetch_budget: bytes of memory for what one subtask has fetched and not emitted; 16 MiB by default. Half of it is
            for the client's queue, an eighth for a fetch under way, the rest for the batch in progress. Compressed
            batches count with their compressed size until they are in the queue. `queued.*` and `fetch.*` in `config`
            override it.
        config: further settings of librdkafka, by name. Those that Weir has to set itself are refused.
        outage_timeout: seconds to wait for brokers that are down, while the job runs and when it restarts, before the
            attempt fails. `None` (the default): wait for ever. `weir status` says since when they are waited for.

    Raises:
        ValueError: an option has a value that it can't have.
    """

    def __init__(
        self,
        servers: str,
        topics: Sequence[str] | None = None,
        pattern: str | None = None,
        group_id: str | None = None,
        start: Literal["earliest", "latest", "group"] | Mapping[Any, int] = "earliest",
        end: Literal["latest"] | Mapping[Any, int] | None = None,
        value_format: Format = "json",
        key_format: Format = "bytes",
        discovery_interval: Seconds | Literal["auto"] | None = "auto",
        active_backpressure: bool = True,
        span_window: bool = True,
        max_span_records: int | None = None,
        max_span_bytes: int | None = None,
        rate_limit: float | None = None,
        on_data_loss: Literal["fail", "earliest"] = "fail",
        on_bad_record: str | DeadLetter = "fail",
        config: Mapping[str, Any] | None = None,
        fetch_budget: int = 16 * 1024 * 1024,
        outage_timeout: Seconds | None = None,
        value_type: type[T] | None = None,
    ) -> None:
        self.options = KafkaOptions(
            servers=servers,
            topics=topics,  # type: ignore[arg-type]  # becomes a tuple when checked
            pattern=pattern,
            group_id=group_id,
            start=start,
            end=end,
            value_format=value_format,
            value_type=value_type,
            key_format=key_format,
            discovery_interval=discovery_interval,
            rate_limit=rate_limit,
            on_data_loss=on_data_loss,
            on_bad_record=on_bad_record,
            fetch_budget=fetch_budget,
            config={} if config is None else config,
            outage_timeout=outage_timeout,
        )
        flag(active_backpressure, "active_backpressure")
        flag(span_window, "span_window")
        limit(max_span_records, "max_span_records")
        limit(max_span_bytes, "max_span_bytes")
        self.active_backpressure = active_backpressure
        self.span_window = span_window
        self.fresh_records = value_format == "json"
        self.max_span_records = max_span_records
        self.max_span_bytes = max_span_bytes
        self.bounded = self.options.bounded
        self.skips_ahead = self.options.start == "group"
        self._fixed: tuple[Any, ...] = ()
        """Where a start without restore begins and ends, once `resolve` has looked; in the form of a checkpoint."""

    def __repr__(self) -> str:
        read = f"pattern={self.options.pattern!r}" if self.options.topics is None else f"topics={self.options.topics}"
        return f"KafkaSource({self.options.servers!r}, {read})"

    def validate(self) -> None:
        """Check that a broker answers, that the topics exist, that named partitions do, that an explicit end names all,
        and what this client may do.

        Raises:
            KafkaUnavailable: no broker answered within 10 s, or it refused.
            ValueError: a topic or partition doesn't exist, `end` leaves one out, or librdkafka or what reads a format
                doesn't take a setting.
            MissingPermission: the client may not do something that it will have to do; says what to grant.
            RegistryUnavailable: a format's schema registry doesn't answer, or refuses.
            SchemaRefused: a format's schema is not valid.
        """
        self._check_settings()
        with Cluster(self.options, VALIDATE_TIMEOUT_S) as cluster:
            topics = cluster.topics().values()
            cluster.check_group()
            cluster.check_dead_letters()
        self._check_formats()
        existing = [(topic.name, number) for topic in topics for number in range(topic.partitions)]
        start, end = self.options.start, self.options.end
        if isinstance(start, Mapping) and timestamp_of(start) is None:
            check_named("start", start, existing)
        if isinstance(end, Mapping) and timestamp_of(end) is None:
            check_ends(end, existing)

    def _check_settings(self) -> None:
        o, name = self.options, "weir-validate"
        try:
            Consumer({**o.consumer_config(name, name), "log_level": 0}).close()
            if o.dead_letters is not None:
                Producer({**o.dead_letter_config(name), "log_level": 0})
        except KafkaException as error:
            raise ValueError(f"config is not what librdkafka takes: {error.args[0].str()}") from error

    def _check_formats(self) -> None:
        topic = self.options.topics[0] if self.options.topics is not None else None
        if isinstance(self.options.value_format, RegistryFormat):
            self.options.value_format.check_source(topic, "value")
        if isinstance(self.options.key_format, RegistryFormat):
            self.options.key_format.check_source(topic, "key")

    def resolve(self) -> Source:
        """Turn where it begins and ends into offsets of the topics that are there now.

        Raises:
            KafkaUnavailable, ValueError: as `validate`.
            DataLoss: an offset to start from is not in the log (`on_data_loss`).
        """
        with Cluster(self.options, VALIDATE_TIMEOUT_S) as cluster:
            splits = open_splits(self.options, SplitAssignment(str(self)), cluster, cluster.topics(), self._committed)
        resolved = copy.copy(self)
        resolved._fixed = (to_state(splits, 0, 1),)
        return resolved

    def resolution(self, resolved: Source) -> Any:
        assert isinstance(resolved, KafkaSource)
        return list(resolved._fixed) or None

    def with_resolution(self, resolution: Any) -> Source:
        resolved = copy.copy(self)
        resolved._fixed = tuple(resolution)
        return resolved

    def start_settings(self) -> Mapping[str, Any]:
        """Brokers may be reached by other addresses: whether topics are still the same, their ids tell."""
        o = self.options
        return {
            "topics": None if o.topics is None else sorted(o.topics),
            "pattern": o.pattern,
            "start": o.start,
            "end": o.end,
            "group_id": o.group_id if o.start == "group" else None,
            "isolation.level": o.config.get("isolation.level", "read_committed"),
        }

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        return KafkaReader(self.options, ctx, self._fixed)

    def _committed(self, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, int | None]:
        consumer = Consumer(self.options.consumer_config("weir-resolve", "weir-resolve"))
        try:
            return committed_offsets(consumer, self.options, keys, VALIDATE_TIMEOUT_S)
        finally:
            consumer.close()
