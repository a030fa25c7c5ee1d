"""Reads the partitions of one subtask."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NoReturn

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from checkpoint import failpoints
from checkpoint.brokers import REFUSES
from checkpoint.outage import Outage, Refusals

from ..rate_limit import RateLimit, admit
from ..source import END, End, SourceBatch, SourceContext, SourceReader
from .bad_records import Letter
from .cluster import DEFAULT_TIMEOUT, Cluster, Topic
from .dead_letters import policy
from .decode import RecordDecoder, partitions, timestamps
from .discovery import PartitionDiscovery
from .errors import DataLoss, KafkaUnavailable
from .events import ErrorLog, advice, client_log, passes
from .group import GroupOffsets, committed_offsets
from .lag import Lag
from .options import KafkaOptions, PartitionKey
from .pausing import PausePolicy
from .splits import Split, check_position, owner, to_state
from .start import SplitAssignment, open_splits
from .statistics import FetchStatistics

log = logging.getLogger(f"weir.{__name__}")

_START_TIMEOUT_S: Final = 30.0
"""A restart may meet a broker that is restarting, too."""
_CLOSE_TIMEOUT_S: Final = 3.0
_LAG_EVERY_S: Final = 1.0
_TRY_AGAIN_S: Final = 0.5
_LOOK_AGAIN_S: Final = 1.0
_UNPOLLED_S: Final = 1.0
"""A task that has not polled for so long is held up, by its sink or its channels."""
_FIRST_RECORD_SIZE: Final = 1024
"""What a record is taken to weigh before the first one was seen."""


class KafkaReader(SourceReader):
    """One consumer with an explicit assignment, never a member of a group.

    Progress is what `position()` says, since transaction markers and compaction leave gaps in the offsets; records
    polled but not emitted are taken off it.
    """

    def __init__(self, options: KafkaOptions, ctx: SourceContext, fixed: Sequence[Any] = ()) -> None:
        """`fixed`: where to start without a checkpoint, in the form of its state; empty = as the options say."""
        self._options = options
        self._ctx = ctx
        self._pid = os.getpid()
        self._bad_records = policy(options, ctx)
        self._decoder = RecordDecoder(options.value_format, self._bad_records, options.key_format)
        self._errors = ErrorLog(ctx.source_id)
        self._closing = False
        self._policy = PausePolicy(options.prefetch_bytes)
        self._paused = False
        """Whether the consumer is paused, which a short closing does not do."""
        self._batch: list[Message] = []
        """The messages last polled; those emitted come first."""
        self._held: list[Message] = []
        """Messages that arrived while closed: polled after opening, not emitted yet for a snapshot."""
        self._batch_splits: list[PartitionKey] | None = None
        """The partitions of `_batch`, message by message, if they are wanted."""
        self._record_size = float(_FIRST_RECORD_SIZE)
        self._lag = Lag(options, ctx.source_id)
        self._lag_due = 0.0
        self._polled_at = time.monotonic()
        self._statistics = FetchStatistics(ctx.metrics)
        name = f"weir-{ctx.pipeline}-{ctx.source_id}"
        config = options.consumer_config(f"{name}-{ctx.subtask}", name)
        self._group = GroupOffsets(ctx.source_id) if options.group_id is not None else None
        if self._group is not None:
            config["on_commit"] = self._group.on_commit
        self._consumer = Consumer(
            {**config, "error_cb": self._on_client_error, "stats_cb": self._on_statistics}, logger=client_log
        )
        self._discovery: PartitionDiscovery | None = None
        assignment = SplitAssignment(ctx.source_id, ctx.subtask, ctx.parallelism, ctx.restored or (), fixed)
        what = f"the Kafka brokers at {options.servers} to read from (source {ctx.source_id!r})"
        self._outage = Outage(ctx.waiting, what, options.outage_timeout)  # type: ignore[arg-type]  # seconds by now
        self._outage_due = 0.0
        self._refusals = Refusals()
        self._served_at = time.monotonic()
        self._look_again: dict[PartitionKey, float] = {}
        """Partitions whose position was out of range when no broker could say what their range is."""
        self._unread: dict[PartitionKey, int] = {}
        """Those that came later and are not read, with their beginnings."""
        try:
            topics, splits = self._open_splits(assignment)
            self._bad_records.take_over(self._restored_letters())
        except BaseException:
            self._closing = True
            self._consumer.close()
            self._bad_records.close(0)
            raise
        self._splits: dict[PartitionKey, Split] = {split.key: split for split in splits}
        self._known = {(topic.name, number) for topic in topics.values() for number in range(topic.partitions)}
        self._reading: dict[PartitionKey, Split] = {}
        """The splits that are assigned to the consumer: those that have not ended."""
        unread = [split for split in splits if not split.ended]
        self._learn_leaders({split.topic for split in unread})
        self._assign(unread)
        self._limit: RateLimit | None = None
        if options.rate_limit is not None:
            self._limit = RateLimit(self._share(options.rate_limit), time.monotonic())
        self._reads_new = options.look_every is not None
        if self._reads_new or unread:
            known = {key: topics[key[0]].id for key in self._known}
            self._discovery = PartitionDiscovery(options, options.look_every, known)

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "a Kafka reader holds a client and cannot be sent to another process; send the KafkaSource, "
            "which makes a reader in the worker"
        )

    def _open_splits(self, assignment: SplitAssignment) -> tuple[Mapping[str, Topic], list[Split]]:
        """Waits for brokers that are down: a restart may meet the outage that it is for."""
        while True:
            began = time.monotonic()
            try:
                with Cluster(self._options, _START_TIMEOUT_S) as cluster:
                    topics = cluster.topics()
                    splits = open_splits(self._options, assignment, cluster, topics, self._committed)
            except (KafkaUnavailable, DataLoss, ValueError) as e:
                if isinstance(e, KafkaUnavailable):
                    goes_on = self._outage.refused() if e.refused else self._outage.away(began)
                else:  # brokers that have just started may not know of all topics yet
                    goes_on = self._outage.lasts and self._outage.refused()
                if not goes_on:
                    self._outage.over()
                    raise
                time.sleep(_TRY_AGAIN_S)
            else:
                self._outage.over()
                return topics, splits

    # -- SourceReader ----------------------------------------------------------------------------------------------

    def poll(self, max_records: int, timeout: float) -> SourceBatch | End | None:
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"source {self._ctx.source_id}: this reader was made in process {self._pid}, before a fork. Its Kafka "
                "client's threads did not come along, so it would hang: create the reader in the worker"
            )
        self._batch = []
        self._batch_splits = None
        self._polled_at = now = time.monotonic()
        self._bad_records.serve()
        self._look_at_outage(now)
        if self._discovery is not None:
            self._take_discovered(self._discovery.found(), now)
        self._report_lag(now, unemitted=0)
        if now - self._served_at >= _UNPOLLED_S and not self._paused:
            self._serve_client()  # a source that may not fetch, as it is too fast, hears of refusals, too
        if self._policy.closed:
            self._wait_closed(timeout, now)
            return None
        if self._paused:
            self._paused = False
            self._consumer.resume(_topic_partitions(self._reading))
        at_end = self._options.bounded and not self._reading and not self._held
        if at_end and not self._bad_records.pending:
            return END
        if at_end or self._bad_records.full:
            time.sleep(timeout)
            return None
        if (max_records := admit(self._limit, max_records, timeout)) < 1:
            return None
        self._batch = self._fetch(max_records, timeout)
        if not self._batch:
            return None
        if self._limit is not None:
            self._limit.take(len(self._batch))
        failpoints.hit("source.after_poll", subtask=self._ctx.subtask)
        return self._to_batch()

    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        failpoints.hit("source.before_snapshot", subtask=self._ctx.subtask)
        self._bad_records.serve()
        if (now := time.monotonic()) - self._polled_at >= _UNPOLLED_S:
            self._serve_client()
            self._report_lag(now, len(self._batch) - emitted)
        positions = self._positions()
        first_unemitted = _first_offsets(self._batch[emitted:] + self._held)
        splits = []
        for key, split in self._splits.items():
            position, ended = positions.get(key, split.position), split.ended
            if key in first_unemitted:
                position, ended = first_unemitted[key], False
            splits.append(Split(split.topic, split.partition, split.topic_id, position, split.end, ended))
        if self._group is not None:
            self._group.remember(checkpoint_id, {split.key: split.position for split in splits})
        failpoints.hit("source.after_snapshot", subtask=self._ctx.subtask)
        return to_state(splits, self._ctx.subtask, self._ctx.parallelism, self._bad_records.pending)

    def splits(self) -> list[PartitionKey]:
        return list(
            {**self._reading, **dict.fromkeys(self._batch_splits or ()), **dict.fromkeys(map(_key, self._held))}
        )

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self._group is not None:
            failpoints.hit("source.before_group_commit", subtask=self._ctx.subtask)
            self._group.commit(checkpoint_id, self._consumer)
            failpoints.hit("source.after_group_commit", subtask=self._ctx.subtask)

    def on_checkpoint_aborted(self, checkpoint_id: int) -> None:
        if self._group is not None:
            self._group.forget(checkpoint_id)

    def pause(self) -> None:
        failpoints.hit("source.before_pause", subtask=self._ctx.subtask)
        self._policy.close(time.monotonic())

    def resume(self) -> None:
        failpoints.hit("source.before_resume", subtask=self._ctx.subtask)
        self._policy.open()

    def close(self) -> None:
        self._closing = True
        if self._discovery is not None:
            self._discovery.stop()
        # Closing waits for commits under way, which takes most of a minute when the broker is down. They are for lag
        # tools only, and a consumer outside of a group may be left behind.
        closing = threading.Thread(target=self._consumer.close, name="kafka-close", daemon=True)
        closing.start()
        self._bad_records.close(_CLOSE_TIMEOUT_S)
        closing.join(_CLOSE_TIMEOUT_S)
        if closing.is_alive():
            log.warning("source %s: the Kafka client doesn't close within %g s", self._ctx.source_id, _CLOSE_TIMEOUT_S)

    # -- fetching --------------------------------------------------------------------------------------------------

    def _fetch(self, max_records: int, timeout: float) -> list[Message]:
        """Messages of about `batch_bytes`, as soon as there is one: `consume` alone would wait for all of them."""
        if self._held:
            messages, self._held = self._held[:max_records], self._held[max_records:]
            return messages
        self._served_at = time.monotonic()
        messages = self._consumer.consume(1, timeout)
        if messages:
            room = int(self._options.batch_bytes / max(len(messages[0]), self._record_size))
            if (more := min(max_records, room) - 1) > 0:
                messages += self._consumer.consume(more, 0)
        return self._sift(messages)

    def _sift(self, messages: list[Message]) -> list[Message]:
        """The records among `messages` that are to be emitted; everything else is dealt with."""
        if any(map(Message.error, messages)):
            events = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        else:
            events = []
        if messages and self._outage.lasts:
            self._outage.over()
        self._statistics.handed_over(len(messages))
        if self._options.bounded and self._reading:
            messages = self._cut_at_ends(messages, events)
        for event in events:
            self._on_event(event)
        return messages

    def _cut_at_ends(self, messages: list[Message], events: list[Message]) -> list[Message]:
        """End the splits whose position reached their end, and drop what was polled from beyond it."""
        positions = self._positions()
        for event in events:
            # Where the last records were compacted away or aborted, no message brings the position to the end.
            if (error := event.error()) is not None and error.code() == KafkaError._PARTITION_EOF:
                positions[_key(event)] = max(positions.get(_key(event), 0), event.offset() or 0)
        beyond = set()
        for key, split in list(self._reading.items()):
            if split.end is not None and positions[key] >= split.end:
                if positions[key] > split.end:
                    beyond.add(key)
                self._finish(split)
        if not beyond:
            return messages
        return [
            m for m in messages if (key := _key(m)) not in beyond or (m.offset() or 0) < (self._splits[key].end or 0)
        ]

    def _finish(self, split: Split) -> None:
        failpoints.hit("source.partition_ended", subtask=self._ctx.subtask)
        split.ended = True
        split.position = split.end or 0
        self._consumer.incremental_unassign(_topic_partitions([split.key]))
        del self._reading[split.key]

    def _to_batch(self) -> SourceBatch | None:
        raw: list[bytes] = list(map(Message.value, self._batch))  # type: ignore[arg-type]  # None only for tombstones
        size = sum(map(len, filter(None, raw))) + sum(map(len, filter(None, map(Message.key, self._batch))))
        # Follows larger records at once and smaller ones slowly, so that a batch is rarely larger than it should be.
        self._record_size = max(1.0, size / len(raw), self._record_size * 0.75)
        self._policy.delivered(size)
        messages, values = self._decoder.decode(self._batch, raw)
        self._batch = messages
        if not messages:
            return None
        if self._ctx.track_splits:
            self._batch_splits = partitions(messages)
        contexts = self._decoder.contexts(messages)
        return SourceBatch(values, timestamps(messages), size, contexts, self._batch_splits)

    def _wait_closed(self, timeout: float, now: float) -> None:
        if not self._paused and self._policy.due(now):
            failpoints.hit("source.before_client_pause", subtask=self._ctx.subtask)
            self._pause_client()
        if self._paused:
            self._held += self._sift(self._consumer.consume(1, timeout))  # serves the client's callbacks
        else:
            time.sleep(timeout)

    def _pause_client(self) -> None:
        self._consumer.pause(_topic_partitions(self._reading))
        self._paused = True
        self._policy.paused()

    def _serve_client(self) -> None:
        """The client's callbacks (answers to commits, statistics, new tokens) wait for a poll, which a task that is
        held up may not make for hours. They go before records, of which one may come along."""
        if not self._paused and sum(map(len, self._held)) >= self._options.batch_bytes:
            self._pause_client()
        self._served_at = time.monotonic()
        self._held += self._sift(self._consumer.consume(1, 0))

    # -- assignment ------------------------------------------------------------------------------------------------

    def _learn_leaders(self, topics: Collection[str]) -> None:
        """A client that is assigned partitions of a topic it knows nothing of asks for their leaders only when it looks
        after its topics the next time, which is once a second."""
        for topic in topics:
            try:
                self._consumer.list_topics(topic, timeout=_START_TIMEOUT_S)
            except KafkaException as e:
                log.info("source %s: %s: its leaders are looked up later: %s", self._ctx.source_id, topic, e)

    def _assign(self, splits: Sequence[Split]) -> None:
        if not splits:
            return
        failpoints.hit("source.before_assign", subtask=self._ctx.subtask)
        self._consumer.incremental_assign([TopicPartition(s.topic, s.partition, s.position) for s in splits])
        failpoints.hit("source.after_assign", subtask=self._ctx.subtask)
        self._reading.update({split.key: split for split in splits})
        if self._paused:
            self._consumer.pause(_topic_partitions(self._reading))

    def _take_discovered(self, found: Sequence[Split], now: float) -> None:
        if not found:
            return
        self._known.update(split.key for split in found)
        own = [split for split in found if owner(split.key, self._ctx.parallelism) == self._ctx.subtask]
        if not self._reads_new:
            self._leave_unread(own)
            return
        if own:
            failpoints.hit("source.partition_found", subtask=self._ctx.subtask)
        self._splits.update({split.key: split for split in own})
        self._assign(own)
        for split in own:
            log.info("source %s: found %s, reading it from offset %d", self._ctx.source_id, split, split.position)
        if self._limit is not None and self._options.rate_limit is not None:
            self._limit.set_rate(self._share(self._options.rate_limit), now)

    def _leave_unread(self, splits: Sequence[Split]) -> None:
        for split in splits:
            if self._options.bounded:
                why = "it came after the end of this bounded source was settled"
            else:
                why = "discovery_interval=None: the next start reads it from its beginning, and recordsLag counts it"
                self._unread[split.key] = split.position
            log.warning("source %s: %s has appeared and is not read: %s", self._ctx.source_id, split, why)

    def _share(self, rate: float) -> float:
        """This subtask's part of the rate: only subtasks with partitions can use theirs."""
        return rate / max(1, len({owner(key, self._ctx.parallelism) for key in self._known}))

    def _positions(self) -> dict[PartitionKey, int]:
        """The next offset of every assigned partition; a consumer knows none before the first message."""
        known = self._consumer.position(_topic_partitions(self._reading))
        return {
            (p.topic, p.partition): p.offset if p.offset >= 0 else self._reading[p.topic, p.partition].position
            for p in known
        }

    def _restored_letters(self) -> list[Letter]:
        """Bad records of this subtask's partitions that were not out at the checkpoint."""
        kept = [Letter.from_wire(wire) for state in self._ctx.restored or () for wire in state.get("dead_letters", ())]
        width = self._ctx.parallelism
        return [letter for letter in kept if owner((letter.topic, letter.partition), width) == self._ctx.subtask]

    def _committed(self, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, int | None]:
        return committed_offsets(self._consumer, self._options, keys, _START_TIMEOUT_S)

    def _report_lag(self, now: float, unemitted: int) -> None:
        """Set the gauge if it is due; `unemitted` records of the batch last polled are still to come."""
        if now < self._lag_due:
            return
        self._lag_due = now + _LAG_EVERY_S
        positions = self._positions()
        if self._policy.closed or self._paused or unemitted:
            self._lag.ask([*positions, *self._unread], now)
        elif self._unread:
            self._lag.ask(self._unread, now)
        lag = self._lag.behind(self._consumer, positions, self._unread)
        self._ctx.metrics.gauge("recordsLag", None if lag is None else lag + len(self._held) + unemitted)

    # -- errors ----------------------------------------------------------------------------------------------------

    def _on_event(self, event: Message) -> None:
        error = event.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED and self._group is None:
            return  # the client looks for its group's coordinator although it has no use for it
        split = self._reading.get(_key(event))
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            if split is not None:
                self._on_out_of_range(split)
        elif passes(error):
            self._errors.warn(error, f"{event.topic()}[{event.partition()}]", time.monotonic())
        else:
            raise RuntimeError(
                f"source {self._ctx.source_id}: Kafka refuses {event.topic()}[{event.partition()}]: "
                f"{error.str()} ({error.name()}). {advice(error)}"
            )

    def _on_out_of_range(self, split: Split) -> None:
        split.position = self._positions()[split.key]
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(*split.key), timeout=DEFAULT_TIMEOUT)
        except KafkaException as e:
            if not passes(e.args[0]):
                raise
            self._look_again[split.key] = time.monotonic() + _LOOK_AGAIN_S
            return
        self._look_again.pop(split.key, None)
        warning = check_position(split, low, high, "the next offset to read", self._options.on_data_loss)
        if warning is not None:
            log.warning("source %s: %s", self._ctx.source_id, warning)
        if split.end is not None and split.position >= split.end:
            self._finish(split)
            return
        self._consumer.incremental_unassign(_topic_partitions([split.key]))
        self._assign([split])

    def _on_statistics(self, text: str) -> None:
        self._statistics.on_statistics(text)
        if self._statistics.connected:
            self._outage.over()

    def _look_at_outage(self, now: float) -> None:
        """
        Raises:
            KafkaUnavailable: it has lasted too long.
        """
        for key, due in list(self._look_again.items()):
            split = self._reading.get(key)
            if split is None:
                del self._look_again[key]
            elif now >= due:
                self._on_out_of_range(split)
        if not self._outage.lasts or now < self._outage_due:
            return
        self._outage_due = now + _LOOK_AGAIN_S
        if not self._outage.away():
            self._outage.over()
            raise KafkaUnavailable(
                f"source {self._ctx.source_id}: no Kafka broker at {self._options.servers} could be reached for "
                f"{self._outage.timeout:g} s (outage_timeout). Nothing is lost: start the job again once they are back"
            )

    def _on_client_error(self, error: KafkaError) -> None:
        if self._closing:
            return  # what matters was raised before
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._outage.away()
        # Neither an outage nor records that were fetched before say that a refusal is over.
        refused = error.code() in REFUSES and self._refusals.count()
        if error.fatal() or refused:
            raise RuntimeError(
                f"source {self._ctx.source_id}: the Kafka client failed: {error.str()} ({error.name()}). "
                f"{advice(error)}"
            )
        self._errors.warn(error, self._options.servers, time.monotonic())


def _key(message: Message) -> PartitionKey:
    topic, partition = message.topic(), message.partition()
    return (topic or "", -1 if partition is None else partition)


def _topic_partitions(keys: Mapping[PartitionKey, Split] | Sequence[PartitionKey]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for topic, partition in keys]


def _first_offsets(messages: list[Message]) -> dict[PartitionKey, int]:
    """The first offset of every partition among `messages`."""
    backwards = messages[::-1]
    return {
        (topic or "", partition or 0): offset or 0
        for topic, partition, offset in zip(
            map(Message.topic, backwards),
            map(Message.partition, backwards),
            map(Message.offset, backwards),
            strict=True,
        )
    }
