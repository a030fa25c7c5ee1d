"""Reads the partitions of one subtask."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from confluent_kafka import Consumer, KafkaError, Message

from checkpoint import failpoints
from sources.kafka.assigned import AssignedPartitions
from sources.kafka.client_errors import ErrorLog, advice, client_log, passes
from sources.kafka.client_health import ClientHealth
from sources.kafka.client_pauses import PausePolicy
from sources.kafka.dead_letters import policy
from sources.kafka.decode import RecordDecoder, partitions, timestamps
from sources.kafka.discovery import PartitionDiscovery
from sources.kafka.group import GroupOffsets, committed_offsets
from sources.kafka.lag import Lag
from sources.kafka.letters import Letter
from sources.kafka.messages import first_offsets, key_of
from sources.kafka.opening import START_TIMEOUT_S, open_when_up
from sources.kafka.options import KafkaOptions, PartitionKey
from sources.kafka.splits import Split, owner, to_state
from sources.kafka.start import SplitAssignment
from sources.kafka.statistics import FetchStatistics
from sources.rate_limit import RateLimit, admit
from sources.source import END, End, SourceBatch, SourceContext, SourceReader

log = logging.getLogger(f"weir.{__name__}")

_CLOSE_TIMEOUT_S: Final = 3.0
_LAG_EVERY_S: Final = 1.0
_PARTITIONS_TOLD: Final = 256
"""Whose lag is told one by one."""
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
        self._decoder = RecordDecoder(options.value_format, self._bad_records, options.key_format, options.value_type)
        self._errors = ErrorLog(ctx.source_id)
        self._health = ClientHealth(options, ctx, self._errors)
        self._policy = PausePolicy(options.prefetch_bytes)
        self._batch: list[Message] = []
        """The messages last polled; those emitted come first."""
        self._held: list[Message] = []
        """Messages that arrived while closed: polled after opening, not emitted yet for a snapshot."""
        self._batch_splits: list[PartitionKey] | None = None
        """The partitions of `_batch`, message by message, if they are wanted."""
        self._record_size = float(_FIRST_RECORD_SIZE)
        self._lag = Lag(options, ctx.source_id)
        self._lag_due = float("-inf")
        self._polled_at = time.monotonic()
        self._statistics = FetchStatistics(ctx.metrics)
        name = f"weir-{ctx.pipeline}-{ctx.source_id}"
        config = options.consumer_config(f"{name}-{ctx.subtask}", name)
        self._group = GroupOffsets(ctx.source_id) if options.group_id is not None else None
        if self._group is not None:
            config["on_commit"] = self._group.on_commit
        self._consumer = Consumer(
            {**config, "error_cb": self._health.on_error, "stats_cb": self._on_statistics}, logger=client_log
        )
        self._discovery: PartitionDiscovery | None = None
        assignment = SplitAssignment(ctx.source_id, ctx.subtask, ctx.parallelism, ctx.restored or (), fixed)
        self._served_at = time.monotonic()
        self._unread: dict[PartitionKey, int] = {}
        """Those that came later and are not read, with their beginnings."""
        try:
            topics, splits = open_when_up(options, assignment, self._committed, self._health.outage)
            self._bad_records.take_over(self._restored_letters())
        except BaseException:
            self._health.closing = True
            self._consumer.close()
            self._bad_records.close(0)
            raise
        self._assigned = AssignedPartitions(self._consumer, options, ctx, splits)
        self._known = {(topic.name, number) for topic in topics.values() for number in range(topic.partitions)}
        unread = [split for split in splits if not split.ended]
        self._assigned.learn_leaders({split.topic for split in unread})
        self._assigned.assign(unread)
        self._limit: RateLimit | None = None
        if options.rate_limit is not None:
            self._limit = RateLimit(self._share(options.rate_limit), time.monotonic())
        self._reads_new = options.look_every is not None
        if unread or not options.bounded:
            known = {key: topics[key[0]].id for key in self._known}
            self._discovery = PartitionDiscovery(options, options.look_every, known, ctx.source_id, ctx.waiting)

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "a Kafka reader holds a client and cannot be sent to another process; send the KafkaSource, "
            "which makes a reader in the worker"
        )

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
        self._assigned.find_positions_again(now)
        self._health.check(now)
        if self._discovery is not None:
            self._take_discovered(self._discovery.found(), now)
        self._report_lag(now, unemitted=0)
        if now - self._served_at >= _UNPOLLED_S and not self._assigned.paused:
            self._serve_client()  # a source that may not fetch, as it is too fast, hears of refusals, too
        if self._policy.closed:
            self._wait_closed(timeout, now)
            return None
        if self._assigned.paused:
            self._assigned.resume()
        at_end = self._options.bounded and not self._assigned.reading and not self._held
        if at_end and not self._bad_records.pending:
            self._lag_due = now  # nobody looks again
            self._report_lag(now, unemitted=0)
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
        positions = self._assigned.positions()
        first_unemitted = first_offsets(self._batch[emitted:] + self._held)
        splits = []
        for key, split in self._assigned.splits.items():
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
            {
                **self._assigned.reading,
                **dict.fromkeys(self._batch_splits or ()),
                **dict.fromkeys(map(key_of, self._held)),
            }
        )

    def waiting_splits(self) -> list[PartitionKey]:
        return list({*self._assigned.behind(), *(self._batch_splits or ()), *map(key_of, self._held)})

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
        self._health.closing = True
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
        if messages and self._health.outage.lasts:
            self._health.outage.over()
        self._statistics.handed_over(len(messages))
        if self._options.bounded and self._assigned.reading:
            messages = self._assigned.cut_at_ends(messages, events)
        for event in events:
            self._on_event(event)
        return messages

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
        if not self._assigned.paused and self._policy.due(now):
            failpoints.hit("source.before_client_pause", subtask=self._ctx.subtask)
            self._pause_client()
        if self._assigned.paused:
            self._held += self._sift(self._consumer.consume(1, timeout))  # serves the client's callbacks
        else:
            time.sleep(timeout)

    def _pause_client(self) -> None:
        self._assigned.pause()
        self._policy.paused()

    def _serve_client(self) -> None:
        """The client's callbacks (answers to commits, statistics, new tokens) wait for a poll, which a task that is
        held up may not make for hours. They go before records, of which one may come along."""
        if not self._assigned.paused and sum(map(len, self._held)) >= self._options.batch_bytes:
            self._pause_client()
        self._served_at = time.monotonic()
        self._held += self._sift(self._consumer.consume(1, 0))

    # -- assignment ------------------------------------------------------------------------------------------------

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
        self._assigned.splits.update({split.key: split for split in own})
        self._assigned.assign(own)
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

    def _restored_letters(self) -> list[Letter]:
        """Bad records of this subtask's partitions that were not out at the checkpoint."""
        kept = [Letter.from_wire(wire) for state in self._ctx.restored or () for wire in state.get("dead_letters", ())]
        width = self._ctx.parallelism
        return [letter for letter in kept if owner((letter.topic, letter.partition), width) == self._ctx.subtask]

    def _committed(self, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, int | None]:
        return committed_offsets(self._consumer, self._options, keys, START_TIMEOUT_S)

    def _report_lag(self, now: float, unemitted: int) -> None:
        """Set the gauge if it is due; `unemitted` records of the batch last polled are still to come."""
        if now < self._lag_due:
            return
        self._lag_due = now + _LAG_EVERY_S
        positions = self._assigned.positions()
        if self._policy.closed or self._assigned.paused or unemitted:
            self._lag.ask([*positions, *self._unread], now)
        elif self._unread:
            self._lag.ask(self._unread, now)
        splits = self._assigned.splits.items()
        last = {key: one.position if one.ended else end for key, one in splits if (end := one.end) is not None}
        lags = self._lag.behind(self._consumer, positions, last, self._unread)
        known = [lag for lag in lags.values() if lag is not None]
        lag = sum(known) + len(self._held) + unemitted if len(known) == len(lags) else None
        self._ctx.metrics.gauge("recordsLag", lag)
        told = ((topic, partition, lags[topic, partition]) for topic, partition in sorted(lags)[:_PARTITIONS_TOLD])
        by_partition = {f"{topic}[{partition}]": lag for topic, partition, lag in told if lag is not None}
        self._ctx.metrics.gauge("recordsLagByPartition", by_partition)
        self._ctx.metrics.gauge("partitionsAssigned", len(self._assigned.splits))
        if self._unread:
            told_unread = sorted(self._unread)[:_PARTITIONS_TOLD]
            unread = {f"{topic}[{partition}]": lags[topic, partition] or 0 for topic, partition in told_unread}
            self._ctx.metrics.gauge("recordsUnreadByPartition", unread)

    # -- errors ----------------------------------------------------------------------------------------------------

    def _on_event(self, event: Message) -> None:
        error = event.error()
        if error is None:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            self._assigned.found_end(key_of(event), event.offset() or 0)
            return
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED and self._group is None:
            return  # the client looks for its group's coordinator although it has no use for it
        split = self._assigned.reading.get(key_of(event))
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            if split is not None:
                self._assigned.find_position(split)
        elif passes(error):
            self._errors.warn(error, f"{event.topic()}[{event.partition()}]", time.monotonic())
        else:
            raise RuntimeError(
                f"source {self._ctx.source_id}: Kafka refuses {event.topic()}[{event.partition()}]: "
                f"{error.str()} ({error.name()}). {advice(error)}"
            )

    def _on_statistics(self, text: str) -> None:
        self._statistics.on_statistics(text)
        if self._statistics.connected:
            self._health.outage.over()
