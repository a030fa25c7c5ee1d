"""The committer of a Kafka sink: one short transaction an epoch, which holds the records and the marker.

No transaction needs to outlive a process: the segments are in the checkpoint, so whatever was not committed can be
produced again, and the marker, committed in the same transaction, tells what was. After any trouble the producer is
replaced by one that starts as a restore does: fence, ask whether the job is still ours, read the marker.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from checkpoint import failpoints
from checkpoint.outage import Outage
from sinks.kafka.clients import DEFAULT_MESSAGE_LIMIT
from sinks.kafka.errors import BrokerUnavailable, CommitFailed, ForeignMarker, MarkerLost, RecordRefused
from sinks.kafka.hanging import held_up_partitions
from sinks.kafka.marker import Marker
from sinks.kafka.marker_group import HangingTransaction, MarkerGroup
from sinks.kafka.permissions import REFUSALS, check_group, to_grant
from sinks.kafka.recovery import OnMarkerLost, WriterRecovery, recover, refuse_the_originals
from sinks.kafka.refusal import explained, first_row, read_rows, without
from sinks.kafka.rows import Rows
from sinks.kafka.topics import TopicCatalog
from sinks.kafka.transactions import (
    TransactionalProducer,
    is_fenced,
    is_hopeless,
    is_outage,
    is_refusal,
    reason,
)
from sinks.sink import Committable, Committer, CommitterContext, SegmentName

_log = logging.getLogger(f"weir.{__name__}")
_T = TypeVar("_T")

RETRY_SECONDS: Final = 60.0
"""For so long one call of `open` or `commit` tries again whatever isn't an outage."""
REFRESH_SECONDS: Final = 12 * 3600.0
"""A marker that is older is written again: Kafka keeps it for days (`offsets.retention.minutes`)."""
_MAX_FENCED: Final = 3
_FIRST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 2.0
"""Seconds between two tries."""
_NO_LIMIT: Final = 2**31 - 1
_ONE_RECORD: Final = 1
"""A limit of batches at which each has one record."""


@dataclass(frozen=True)
class CommitterOptions:
    servers: str
    config: Mapping[str, Any] = field(repr=False)
    name: str
    """Of the writer: its transactional id and the group of its marker."""
    topic: str | None
    """What it writes to, unless a function says so."""
    marker_topic: str
    """The marker is at partition 0 of this topic."""
    max_transaction_bytes: int
    on_marker_lost: OnMarkerLost
    outage_timeout: float | None = None


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
        self._id = uuid.uuid4().hex
        self._producer: TransactionalProducer | None = None
        self._marker: Marker | None = None
        """The last one known to be committed. Replaced whole, never changed; read by `snapshot` in another thread."""
        self._attempted: Marker | None = None
        """Of a transaction whose outcome isn't known."""
        self._highest = 0
        self._left_out: dict[SegmentName, frozenset[int]] = {}
        self._lowered_limit = _NO_LIMIT
        what = f"the Kafka brokers at {options.servers} to commit to (sink {ctx.sink_id!r})"
        self._outage = Outage(ctx.waiting, what, options.outage_timeout)

    def leave_out(self, segment: SegmentName, rows: Collection[int]) -> None:
        """Commit the segment without these rows of it, numbered from 0."""
        self._left_out[segment] = frozenset(rows)

    def open(self, restored: Sequence[Committable]) -> Sequence[Committable]:
        """
        Raises:
            OutputAhead, EarlierOutput, MarkerLost, ForeignMarker: the marker doesn't fit the checkpoint.
            CommitFailed: no broker within `outage_timeout`, or it refuses this user.
            Fenced: another driver owns the job.
        """
        marker = self._retrying(lambda: self._settle(restored), "take over the output of")
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
        self._retrying(lambda: self._commit(checkpoint_id, committables), f"commit checkpoint {checkpoint_id} of")
        self._hit("committer.after_commit")

    @property
    def refresh_interval(self) -> float:
        return REFRESH_SECONDS

    def refresh(self) -> None:
        """Write the marker again as it is, before Kafka forgets it.

        Raises:
            CommitFailed, MarkerLost, ForeignMarker, Fenced: as `commit`.
        """
        self._retrying(self._refresh, "refresh the marker of")

    def highest_checkpoint(self) -> int:
        return self._highest

    def snapshot(self) -> Any:
        marker = self._marker
        return None if marker is None else [self._group.topic, *marker.to_wire()]

    def close(self) -> None:
        self._discard(abort=True)
        self._group.close()

    # -- the steps, each of which may be repeated from its start -----------------------------------------------------

    def _settle(self, restored: Sequence[Committable]) -> Marker:
        ctx = self._ctx
        if ctx.fork:
            # Before anything is fenced, since the original may be running.
            for marker in self._group.everywhere():
                refuse_the_originals(self._group.group, ctx.lineage, marker)
        producer, found = self._new_producer(_message_limit(restored), restored)
        recovered = recover(
            WriterRecovery(
                group=self._group.group,
                lineage=ctx.lineage,
                checkpoint=ctx.restored_checkpoint,
                recorded=self._restored_marker,
                found=found,
                restored=[committable.name for committable in restored],
                rewind=ctx.rewind,
                ignore_earlier_output=ctx.ignore_earlier_output,
                fork=ctx.fork,
                on_marker_lost=self._options.on_marker_lost,
            )
        )
        marker = recovered.marker
        self._highest = max(self._highest, found.checkpoint if found else 0, marker.checkpoint)
        if marker != found:
            marker = replace(marker, committer=self._id)
            self._hit("committer.before_settle")
            self._transact(producer, (), marker, settles=True)
        self._marker, self._attempted = marker, None
        return marker

    def _commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        marker = self._known_marker()
        todo = marker.after(committables)
        checkpoint = max(checkpoint_id, marker.checkpoint)
        groups = list(_transactions(todo, self._options.max_transaction_bytes)) or [[]]
        for number, group in enumerate(groups):
            if number:
                self._hit("committer.between_transactions")
            while not self._commit_group(checkpoint, group, _message_limit(todo)):
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
                if self._limit_was_lowered(refused, producer.message_limit):
                    self._discard(abort=True)
                    return False
                ctx = self._ctx
                culprit = self._one_by_one(refused, left)
                if culprit is None:
                    raise RecordRefused(
                        f"{refused}. It took each record of that batch alone a moment later, so the topic seems to be "
                        "mended; the next attempt commits again",
                        refused.record,
                    ) from refused
                raise explained(culprit, ctx.sink_id, ctx.writer, left, ctx.staging, self._left_out) from refused
        return True

    def _limit_was_lowered(self, refused: RecordRefused, message_limit: int) -> bool:
        """† A topic whose limit was lowered refuses whole batches, also of records that it takes one by one."""
        record = refused.record
        if record is None or record.error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
            return False
        catalog = TopicCatalog(self._options.servers, self._options.config, self._outage)
        limit = catalog.get(record.topic).max_message_bytes
        if limit >= message_limit:
            return False
        _log.warning("%s: topic %r takes batches of %d bytes by now", self._options.name, record.topic, limit)
        self._lowered_limit = limit
        return True

    def _one_by_one(self, refused: RecordRefused, segments: Sequence[Committable]) -> RecordRefused | None:
        """† The client reports a whole batch as refused. So each record from the first of that batch on is sent in one
        of its own, in a transaction that is aborted, until one is refused: that is to blame. `None` if all are taken:
        no record may be named then, since it would be left out."""
        first = first_row(refused, segments, self._ctx.staging, self._left_out)
        if first is None:
            return refused
        name, row = first
        rest = {**self._left_out, name: {*self._left_out.get(name, ()), *range(row)}}
        self._discard(abort=True)
        producer = self._ready_producer(_ONE_RECORD)
        try:
            producer.probe(
                rows
                for segment in segments
                if segment.name >= name
                for rows in without(read_rows(segment, self._ctx.staging), rest.get(segment.name, ()))
            )
        except RecordRefused as culprit:
            return culprit
        finally:
            self._discard(abort=True)
        return None

    def _refresh(self) -> None:
        producer = self._ready_producer(DEFAULT_MESSAGE_LIMIT)
        self._transact(producer, (), replace(self._known_marker(), committer=self._id), settles=True)

    def _transact(
        self,
        producer: TransactionalProducer,
        segments: Sequence[Committable],
        marker: Marker,
        settles: bool = False,
    ) -> None:
        """
        Args:
            settles: the marker alone, not an epoch: its steps have another name.
        """

        def hit(step: str, reached: bool = not settles) -> None:
            if reached:
                self._hit(step)

        def before_commit() -> None:
            hit("committer.mid_settle", settles)
            hit("committer.after_send_offsets")
            self._ctx.check_owner()
            hit("committer.after_owner_check")

        self._attempted = marker
        producer.transact(
            self._rows(segments),
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

    def _rows(self, segments: Sequence[Committable]) -> Iterator[Rows]:
        for segment in segments:
            rows = read_rows(segment, self._ctx.staging)
            left_out = self._left_out.get(segment.name)
            yield from rows if left_out is None else without(rows, left_out)

    # -- producers -------------------------------------------------------------------------------------------------

    def _ready_producer(self, message_limit: int, segments: Sequence[Committable] = ()) -> TransactionalProducer:
        """
        Args:
            segments: that it is for; they may be in a transaction of unknown outcome.
        """
        producer = self._producer
        if producer is not None and producer.healthy() and producer.message_limit <= message_limit:
            return producer
        producer, found = self._new_producer(message_limit, segments)
        self._recover(found)
        return producer

    def _new_producer(
        self, message_limit: int, segments: Sequence[Committable]
    ) -> tuple[TransactionalProducer, Marker | None]:
        options = self._options
        if self._producer is not None:
            message_limit = min(message_limit, self._producer.message_limit)
            self._discard(abort=False)
        self._ctx.check_owner()
        producer = self._producer = TransactionalProducer(
            options.servers, options.config, options.name, self._ctx.sink_id, message_limit
        )
        self._hit("committer.before_init")
        producer.init()
        self._hit("committer.after_init")
        self._ctx.check_owner()
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
        """† Whatever the transaction coordinator knew of has ended when the producer began, so what may still change
        the marker hangs (see hanging.py): in some partitions committed, in others not, which doesn't matter if it has
        no records.

        Returns:
            The marker that is there then.

        Raises:
            MarkerLost: it has records, and `on_marker_lost` doesn't say what to do.
        """
        options, group = self._options, self._group
        topics = {topic for rows in self._rows(segments) for topic in rows.topics or [rows.topic or ""]}
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
        self._transact(producer, (), skipped, settles=True)
        return skipped

    def _recover(self, found: Marker | None) -> None:
        """A new producer has settled what the last one left open: was it committed?"""
        if found is not None and found == self._attempted:
            _log.info("%s: a transaction of unknown outcome turns out to be committed: %s", self._options.name, found)
            self._marker = found
            self._highest = max(self._highest, found.checkpoint)
        elif found is None:
            self._marker_vanished()
        elif found != self._marker:
            raise ForeignMarker(
                f"somebody else has written the marker of group {self._options.name!r}: it says {found}, but this sink "
                f"last wrote {self._marker}. Two jobs must not use one transactional_id_prefix and sink id"
            )
        self._attempted = None

    def _marker_vanished(self) -> None:
        policy = self._options.on_marker_lost
        if self._attempted is None:
            return  # everything is known all the same; the next transaction writes it again
        if policy == "fail":
            raise MarkerLost(
                f"the marker of group {self._options.name!r} vanished while the sink was committing {self._attempted}; "
                "whether that is in the topic can't be told. Somebody deleted the group's offsets, or the topic: set "
                'on_marker_lost="replay" to commit it again (doubled if it is there), or "skip" to leave it out'
            )
        if policy == "skip":
            self._marker = self._attempted

    def _discard(self, abort: bool) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            if abort and producer.in_transaction:
                self._hit("committer.before_abort")
                producer.discard(abort)
                self._hit("committer.after_abort")
            else:
                producer.discard(abort)

    def _known_marker(self) -> Marker:
        if self._marker is None:
            raise RuntimeError("commit before open")
        return self._marker

    def _retrying(self, step: Callable[[], _T], what: str) -> _T:
        """Repeat `step` with ever new producers; only trouble with Kafka is worth it. Brokers that are away are waited
        for, whatever else is tried for a while."""
        deadline: float | None = None
        """Of trouble that is no outage."""
        wait, fenced = _FIRST_WAIT, 0
        while True:
            began = time.monotonic()
            try:
                result = step()
                self._outage.over()
                return result
            except KafkaException as error:
                fenced += is_fenced(error)
                if is_outage(error):
                    final = not self._outage.away(began)
                    deadline, fenced = None, 0  # what brokers find when they are back has another reason
                elif is_refusal(error):
                    final = not self._outage.refused()
                else:
                    now = time.monotonic()
                    deadline = now + RETRY_SECONDS if deadline is None else deadline
                    final = is_hopeless(error) or fenced > _MAX_FENCED or now >= deadline
                self._discard(abort=final)
                self._ctx.check_owner()
                if final:
                    self._outage.over()
                    raise CommitFailed(self._explain(error, what, fenced)) from error
                _log.warning("%s: trying again with a new producer after %s", self._options.name, reason(error))
            except BaseException:
                self._discard(abort=True)
                raise
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    def _explain(self, error: KafkaException, what: str, fenced: int) -> str:
        options = self._options
        if fenced > _MAX_FENCED:
            advice = (
                f"other producers used transactional id {options.name!r} meanwhile, {fenced} times. Two jobs must not "
                "use one transactional_id_prefix and sink id; or transactions take longer than transaction.timeout.ms"
            )
        elif is_refusal(error):
            advice = "the brokers don't let this client in: correct the user, password or certificates in config"
        elif is_hopeless(error):
            code = error.args[0].code()
            advice = to_grant(code, options.name, self._group.topic) if code in REFUSALS else "correct config"
        else:
            patience = RETRY_SECONDS if options.outage_timeout is None else options.outage_timeout
            advice = f"tried for {patience:g} s. Check that the brokers at {options.servers} run and can be reached"
        return f"sink {self._ctx.sink_id!r} could not {what} writer {self._ctx.writer}: {reason(error)}; {advice}"


def _message_limit(segments: Sequence[Committable]) -> int:
    return min((int(segment.payload["message_limit"]) for segment in segments), default=DEFAULT_MESSAGE_LIMIT)


def _transactions(segments: Sequence[Committable], limit: int) -> Iterator[list[Committable]]:
    """Whole segments, in order, at most `limit` bytes together where one alone isn't more."""
    group: list[Committable] = []
    size = 0
    for segment in segments:
        if group and size + segment.payload["bytes"] > limit:
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.payload["bytes"]
    if group:
        yield group
