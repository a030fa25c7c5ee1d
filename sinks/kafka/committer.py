"""The committer of a Kafka sink: one short transaction an epoch, which holds the records and the marker.

No transaction needs to outlive a process: the segments are in the checkpoint, so whatever was not committed can be
produced again, and the marker, committed in the same transaction, tells what was. After any trouble the producer is
replaced by one that starts as a restore does: ask whether the job is still ours, fence, read the marker.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from checkpoint import failpoints
from checkpoint.counted import counted
from sinks.kafka.clients import DEFAULT_MESSAGE_LIMIT
from sinks.kafka.committer_options import CommitterOptions
from sinks.kafka.errors import BrokerUnavailable, MarkerLost, RecordRefused
from sinks.kafka.hanging import held_up_partitions
from sinks.kafka.marker import Marker
from sinks.kafka.marker_group import HangingTransaction, MarkerGroup
from sinks.kafka.permissions import check_group
from sinks.kafka.producers import Producers
from sinks.kafka.recovery import KafkaRecovery, recover, recover_in_doubt, refuse_the_originals
from sinks.kafka.refused_record import culprit, explained, lowered_limit
from sinks.kafka.retries import Retries
from sinks.kafka.staged_rows import rows_to_commit, smallest_limit, transactions
from sinks.kafka.topics import TopicCatalog
from sinks.kafka.transactions import TransactionalProducer
from sinks.sink import Committable, CommittableName, Committer, CommitterContext

_log = logging.getLogger(f"weir.{__name__}")

REFRESH_SECONDS: Final = 12 * 3600.0
"""A marker that is older is written again: Kafka keeps it for days (`offsets.retention.minutes`)."""
_NO_LIMIT: Final = 2**31 - 1
_ONE_RECORD: Final = 1
"""A limit of batches at which each has one record."""


class KafkaCommitter(Committer):
    def __init__(self, options: CommitterOptions, ctx: CommitterContext) -> None:
        self._options = options
        self._ctx = ctx
        topic = options.marker_topic
        self._restored_marker: Marker | None = None
        if ctx.restored_state is not None:
            # A marker stays where it is, even if the sink's topic is another one now.
            topic, *wire = ctx.restored_state
            self._restored_marker = Marker.from_wire(wire)
        self._group = MarkerGroup(options.servers, options.config, options.name, topic)
        self._producers = Producers(options, ctx)
        self._retries = Retries(options, ctx, topic, self._producers.discard)
        self._id = uuid.uuid4().hex
        self._marker: Marker | None = None
        """The last one known to be committed. Replaced whole, never changed; read by `snapshot` in another thread."""
        self._attempted: Marker | None = None
        """The marker of a transaction whose outcome isn't known."""
        self._highest = 0
        self._left_out: dict[CommittableName, frozenset[int]] = {}
        self._lowered_limit = _NO_LIMIT

    def leave_out(self, segment: CommittableName, rows: Collection[int]) -> None:
        """Commit the segment without these rows of it, numbered from 0."""
        self._left_out[segment] = frozenset(rows)

    def open(self, restored: Sequence[Committable]) -> Sequence[Committable]:
        """
        Raises:
            OutputAhead, EarlierOutput, MarkerLost, ForeignMarker: the marker doesn't fit the checkpoint.
            CommitFailed: no broker within `outage_timeout`, or it refuses this user.
            Fenced: another driver owns the job.
        """
        marker = self._retries.run(lambda: self._recover(restored), "take over the output of")
        self._hit("committer.after_settle")
        return marker.after(restored)

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        """
        Raises:
            CommitRefused: Kafka refuses a record for good.
            RecordRefused: Kafka refuses whatever is written to a record's topic.
            TopicRefused: a record's topic has been deleted.
            CommitFailed: not, or perhaps not, committed within `RETRY_SECONDS`.
            MarkerLost, ForeignMarker: somebody changed the marker meanwhile.
            DamagedFile: a segment can't be read.
            Fenced: another driver owns the job.
        """
        marker = self._known_marker()
        if checkpoint_id <= marker.checkpoint and not marker.after(committables):
            return
        self._hit("committer.before_commit")
        self._retries.run(lambda: self._commit(checkpoint_id, committables), f"commit checkpoint {checkpoint_id} of")
        self._hit("committer.after_commit")

    @property
    def refresh_interval(self) -> float:
        return REFRESH_SECONDS

    def refresh(self) -> None:
        """Write the marker again as it is, before Kafka forgets it.

        Raises:
            CommitFailed, MarkerLost, ForeignMarker, Fenced: as `commit`.
        """
        self._retries.run(self._refresh, "refresh the marker of")

    def highest_checkpoint(self) -> int:
        return self._highest

    def snapshot(self) -> Any:
        marker = self._marker
        return None if marker is None else [self._group.topic, *marker.to_wire()]

    def close(self) -> None:
        self._producers.discard(abort=True)
        self._group.close()

    # -- the steps, each of which may be repeated from its start -----------------------------------------------------

    def _recover(self, restored: Sequence[Committable]) -> Marker:
        ctx = self._ctx
        if ctx.fork:
            # Before anything is fenced, since the original may be running.
            for marker in self._group.everywhere():
                refuse_the_originals(self._group.group, ctx.lineage, marker)
        producer, found = self._new_producer(smallest_limit(restored, DEFAULT_MESSAGE_LIMIT), restored)
        marker = recover(
            KafkaRecovery(
                group=self._group.group,
                lineage=ctx.lineage,
                checkpoint=ctx.restored_checkpoint,
                recorded=self._restored_marker,
                found=found,
                restored=restored,
                rewind=ctx.rewind,
                ignore_earlier_output=ctx.ignore_earlier_output,
                fork=ctx.fork,
                when_lost=self._options.on_marker_lost,
            )
        )
        self._highest = max(self._highest, found.checkpoint if found else 0, marker.checkpoint)
        if marker != found:
            marker = replace(marker, committer=self._id)
            self._hit("committer.before_settle")
            self._transact(producer, (), marker, marker_alone=True)
        self._marker, self._attempted = marker, None
        return marker

    def _commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        marker = self._known_marker()
        todo = marker.after(committables)
        checkpoint = max(checkpoint_id, marker.checkpoint)
        groups = list(transactions(todo, self._options.max_transaction_bytes)) or [[]]
        for number, group in enumerate(groups):
            if number:
                self._hit("committer.between_transactions")
            while not self._commit_group(checkpoint, group, smallest_limit(todo, DEFAULT_MESSAGE_LIMIT)):
                pass

    def _commit_group(self, checkpoint: int, group: Sequence[Committable], message_limit: int) -> bool:
        """Whether it is committed; else its topic takes smaller batches only, which will be made from now on."""
        producer = self._ready_producer(min(message_limit, self._lowered_limit), group)
        known = self._known_marker()
        left = known.after(group)
        if left or known.checkpoint < checkpoint:
            last = left[-1].name if left else known.last
            marker = replace(known, checkpoint=checkpoint, last=last, committer=self._id)
            self._hit("committer.before_transaction")
            try:
                self._transact(producer, left, marker)
            except RecordRefused as refused:
                options = self._options
                topics = TopicCatalog(options.servers, options.config, self._retries.outage)
                limit = lowered_limit(refused, producer.message_limit, topics)
                if limit is None:
                    raise self._explained(refused, left) from refused
                _log.warning("%s: a topic takes only batches of %s by now", options.name, counted(limit, "byte"))
                self._lowered_limit = limit
                self._producers.discard(abort=True)
                return False
        return True

    def _explained(self, refused: RecordRefused, segments: Sequence[Committable]) -> RecordRefused:
        """The refusal with the record that is to blame, found by sending them one by one in an aborted transaction."""
        ctx = self._ctx

        def one_by_one() -> TransactionalProducer:
            self._producers.discard(abort=True)
            return self._ready_producer(_ONE_RECORD)

        try:
            found = culprit(refused, segments, ctx.staging, self._left_out, one_by_one)
        finally:
            self._producers.discard(abort=True)
        if found is None:
            return RecordRefused(
                f"{refused}. It took each record of that batch alone a moment later, so the topic seems to accept it "
                "again; the next attempt commits again",
                refused.record,
            )
        return explained(found, ctx.sink_id, ctx.writer, segments, ctx.staging, self._left_out)

    def _refresh(self) -> None:
        producer = self._ready_producer(DEFAULT_MESSAGE_LIMIT)
        self._transact(producer, (), replace(self._known_marker(), committer=self._id), marker_alone=True)

    def _transact(
        self,
        producer: TransactionalProducer,
        segments: Sequence[Committable],
        marker: Marker,
        marker_alone: bool = False,
    ) -> None:
        """
        Args:
            marker_alone: it is no epoch's transaction: the failpoints of its steps have other names.
        """

        def hit(step: str, reached: bool = not marker_alone) -> None:
            if reached:
                self._hit(step)

        def before_commit() -> None:
            hit("committer.mid_settle", marker_alone)
            hit("committer.after_send_offsets")
            self._ctx.check_owner()
            hit("committer.after_owner_check")

        self._attempted = marker
        producer.transact(
            rows_to_commit(segments, self._ctx.staging, self._left_out),
            self._group.offset(marker),
            self._group.metadata,
            mid_produce=lambda: hit("committer.mid_produce"),
            after_produce=lambda: hit("committer.after_produce"),
            before_commit=before_commit,
        )
        hit("committer.after_end")
        self._see(marker)
        hit("committer.after_transaction")
        self._marker, self._attempted = marker, None
        self._highest = max(self._highest, marker.checkpoint)

    def _see(self, marker: Marker) -> None:
        """Only a marker that can be read counts: a broker that crashes may forget a commit that it has acknowledged."""
        found = self._group.read()
        if found != marker:
            raise KafkaException(
                KafkaError(KafkaError._STATE, f"the marker is {found} after a transaction that made it {marker}")
            )

    def _hit(self, step: str) -> None:
        failpoints.hit(step, subtask=self._ctx.writer)

    def _known_marker(self) -> Marker:
        if self._marker is None:
            raise RuntimeError("commit before open")
        return self._marker

    # -- a new producer, and the marker that it finds ----------------------------------------------------------------

    def _ready_producer(self, message_limit: int, segments: Sequence[Committable] = ()) -> TransactionalProducer:
        """
        Args:
            segments: what it is for; they may be in a transaction of unknown outcome.
        """
        producer = self._producers.usable(message_limit)
        if producer is None:
            producer, found = self._new_producer(message_limit, segments)
            policy = self._options.on_marker_lost
            marker = recover_in_doubt(self._options.name, self._marker, self._attempted, found, policy)
            if marker is not None and marker == self._attempted:
                _log.info("%s: a transaction of unknown outcome counts as committed: %s", self._options.name, marker)
                self._highest = max(self._highest, marker.checkpoint)
            self._marker, self._attempted = marker, None
        return producer

    def _new_producer(
        self, message_limit: int, segments: Sequence[Committable]
    ) -> tuple[TransactionalProducer, Marker | None]:
        producer = self._producers.new(message_limit)
        try:
            found = self._read_marker()
        except HangingTransaction:
            found = self._end_hanging(producer, segments)
        self._hit("committer.after_read")
        return producer, found

    def _read_marker(self) -> Marker | None:
        try:
            return self._group.read()
        except KafkaException as error:
            # The client waits for the group's coordinator, though it was told that it may not know it.
            if error.args[0].code() == KafkaError._TIMED_OUT:
                with suppress(BrokerUnavailable):
                    check_group(self._options.servers, self._options.config, self._options.name, self._group.topic)
            raise

    def _end_hanging(self, producer: TransactionalProducer, segments: Sequence[Committable]) -> Marker | None:
        """End a transaction that hangs (see hanging.py). The transaction coordinator knows of none that is open, since
        the new producer has ended those, and yet the marker may still change. Some partitions have it as committed and
        others don't, which doesn't matter if it has no records.

        Returns:
            The marker that is there then.

        Raises:
            MarkerLost: it has records, and `on_marker_lost` doesn't say what to do.
        """
        options, group = self._options, self._group
        rows = rows_to_commit(segments, self._ctx.staging, self._left_out)
        topics = {topic for piece in rows for topic in piece.topics or [piece.topic or ""]}
        if topics and options.on_marker_lost == "fail":
            raise MarkerLost(
                f"the marker of group {options.name!r} hangs: Kafka has acknowledged the end of a transaction and told "
                "only some of its partitions. Kafka 4.3 and 4.4 do that when a broker crashes at that moment and has "
                "the only replica. Whether each record of the last epoch is in the topic can't be told: "
                'on_marker_lost="replay" commits them again (doubled if they are there), "skip" leaves them out (lost '
                "if they are not)"
            )
        if options.topic is not None:
            topics.add(options.topic)
        held_up = held_up_partitions(options.servers, options.config, sorted(topics))
        _log.warning(
            "%s: a transaction hangs, which Kafka has ended without telling all its partitions; it is aborted in %s "
            "and in its group",
            options.name,
            ", ".join(f"{one.topic}[{one.partition}]" for one in held_up) or "no partition",
        )
        self._hit("committer.before_hanging")
        nothing = Marker(self._ctx.lineage, 0, None, self._id)
        producer.abort_hanging(held_up, group.offset(nothing), group.metadata)
        self._hit("committer.after_hanging")
        found = self._read_marker()
        if not segments or found is None or options.on_marker_lost != "skip":
            return found
        checkpoint = max(found.checkpoint, self._ctx.restored_checkpoint)
        skipped = self._attempted or replace(found, checkpoint=checkpoint, last=segments[-1].name)
        self._transact(producer, (), skipped, marker_alone=True)
        return skipped
