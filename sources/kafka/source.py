"""The definition of a Kafka source."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from confluent_kafka import Consumer, KafkaException, Producer

from checkpoint.options import Seconds, flag, limit, named_options
from formats import RegistryFormat

from ..source import Source, SourceContext, SourceReader
from .bad_records import DeadLetter
from .cluster import Cluster
from .formats import Format
from .group import committed_offsets
from .options import KafkaOptions, PartitionKey, timestamp_of
from .reader import KafkaReader
from .splits import check_ends, check_named, to_state
from .start import SplitAssignment, open_splits

VALIDATE_TIMEOUT_S: Final = 10.0


@named_options
class KafkaSource(Source):
    """Reads Kafka topics; records are the decoded values.

    Every subtask finds all partitions and reads its own: `(hash(topic) + partition) % parallelism`. Offsets are part
    of the checkpoints; a consumer group is never joined. A partition that appears after the first checkpoint is read
    from its beginning. `servers` etc. are kept as plain values: clients are made in the workers.

    Args:
        servers: addresses of brokers, `"host:port,host:port"`.
        topics: names of topics; or
        pattern: a regular expression that topic names match as a whole (Kafka's internal topics never do).
        group_id: the group that offsets are committed to when a checkpoint completes, for tools that show lag, and
            that `start="group"` reads. `None` = no commits.
        start: where partitions begin at a start without restore. `"earliest"`; `"latest"` (with `read_committed`
            before the first open transaction, so that nothing is lost that becomes visible later); `"group"`, the
            committed offsets, and the beginning of partitions without; `{"timestamp": ms}`, the first record of that
            time or later; or offsets, `{("orders", 0): 17, "users": 0}`, where a topic's name stands for all of its
            partitions that are not named, and partitions named in neither way begin at the beginning.
            (For a topic that is called timestamp use the form with partitions.)
        end: where a bounded source ends. `None` = never; `"latest"`, the high watermark of every partition at the first
            start (open transactions below it are waited for); `{"timestamp": ms}`; or offsets as in `start`, each the
            first one that is not read, which must name every partition. Ends are kept in checkpoints.
        value_format: `"json"`, `"str"` (UTF-8), `"bytes"`, `Avro(…)`, `JsonSchema(…)` or `Protobuf(…)`, in all of which
            a tombstone is `None`; or `ArrowJson(…)`, for record batches.
        key_format: the same but for `ArrowJson`, for `ctx.kafka_key`, decoded when it is asked for.
        discovery_interval: seconds between two looks for new partitions and, with `pattern`, topics (of which there may
            be none at the start); "auto" = every 30 s, and a pattern must match a topic at the start; `None` = they are
            read from the next start on, and until then told of in the log and counted in `recordsLag`. A bounded source
            doesn't read what comes after its start.
        active_backpressure: whether the source gate may stop this source.
        span_window: whether the gate also learns how many records a checkpoint may span (see docs/backpressure.md).
        max_span_records, max_span_bytes: the most between two barriers of one subtask.
        rate_limit: records/s of the whole source, shared by the subtasks that have partitions.
        on_data_loss: when offsets to be read next are gone from the topic: `"fail"` with the range, or `"earliest"`, go
            on at the beginning with a warning.
        on_bad_record: when a value can't be decoded: `"fail"`; `"skip"`, leave it out and count it (recordsSkipped); or
            the name of a topic (or a `DeadLetter`), write it there with the reason in headers (recordsDeadLettered).
        fetch_budget: bytes of memory for what one subtask has fetched and not emitted: half of it for the client's
            queue, an eighth for a fetch under way, the rest for the batch in progress. Compressed batches count as sent
            until they are in the queue. Setting `queued.*` or `fetch.*` in `config` overrides it.
        config: settings of librdkafka; those that Weir must own are refused.
        outage_timeout: seconds that brokers which are down are waited for, while the job runs and at its restarts,
            before that fails the attempt; `None` = for ever. `weir status` says since when.

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
    ) -> None:
        self.options = KafkaOptions(
            servers=servers,
            topics=topics,  # type: ignore[arg-type]  # becomes a tuple when checked
            pattern=pattern,
            group_id=group_id,
            start=start,
            end=end,
            value_format=value_format,
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
            SchemaRefused: a format's schema is none.
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
