"""Writers of a Kafka sink: one that stages segments for the committer, one that produces directly."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from checkpoint import failpoints
from checkpoint.brokers import REFUSES
from checkpoint.counted import counted
from checkpoint.outage import FORGOTTEN_S, Outage
from sinks.kafka.client_errors import reason
from sinks.kafka.clients import Delivery, producer_config
from sinks.kafka.connection import ConnectionLog
from sinks.kafka.encoding import RecordEncoder
from sinks.kafka.errors import BrokerUnavailable
from sinks.kafka.segments import SegmentStager
from sinks.kafka.sender import Sender
from sinks.kafka.topics import refuse_missing
from sinks.sink import SinkBatch, SinkWriter, WriterContext

_log = logging.getLogger(f"weir.{__name__}")

_MAX_OUTSTANDING: Final = 32 * 1024 * 1024
_FLUSH_SECONDS: Final = 300.0
"""librdkafka gives a record up after as long by default (`message.timeout.ms`)."""
_CLOSE_SECONDS: Final = 5.0


class StagingWriter(SinkWriter):
    """Exactly once: records go to the checkpoint storage, and to Kafka once their checkpoint is complete."""

    def __init__(self, encoder: RecordEncoder, ctx: WriterContext, segment_bytes: int) -> None:
        self._encoder = encoder
        self._subtask = ctx.subtask
        self._stager = SegmentStager(ctx.staging, f"{ctx.sink_id}-{ctx.subtask}", segment_bytes, ctx.subtask)

    def write_batch(self, batch: SinkBatch) -> None:
        self._stager.append(self._encoder.encode(batch))

    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        failpoints.hit("sink.before_flush", subtask=self._subtask)
        segments = self._stager.finish()
        failpoints.hit("sink.after_flush", subtask=self._subtask)
        return segments

    def close(self) -> None:
        self._stager.close()


class DirectWriter(SinkWriter):
    """At least once (flushes at the barrier) or no guarantee: records go to Kafka at once."""

    def __init__(
        self,
        encoder: RecordEncoder,
        ctx: WriterContext,
        servers: str,
        config: Mapping[str, Any],
        delivery: Delivery,
        outage: Outage,
    ) -> None:
        self._outage = outage
        self._refusal: KafkaError | None = None
        self._refused_at = float("-inf")
        self._encoder = encoder
        self._ctx = ctx
        self._servers = servers
        self._config = config
        self._delivery: Delivery = delivery
        self._sender: Sender | None = None
        self._message_limit = 0
        self._delivered = 0
        """By the sender in use, when it was last asked."""

    def write_batch(self, batch: SinkBatch) -> None:
        rows = self._encoder.encode(batch)
        try:
            sender = self._sender_for(rows.message_limit)
            if self._outage.lasts:
                self._look_for_deliveries()
            sender.send(rows)
        except KafkaException as error:
            raise self._failed(error) from error

    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        failpoints.hit("sink.before_flush", subtask=self._ctx.subtask)
        if self._sender is not None:
            try:
                if self._delivery == "at_least_once":
                    self._sender.push()
                    failpoints.hit("sink.mid_flush", subtask=self._ctx.subtask)
                    self._sender.flush(self._patience)
                    self._recovered()
                else:
                    self._sender.check()
            except KafkaException as error:
                raise self._failed(error) from error
        failpoints.hit("sink.after_flush", subtask=self._ctx.subtask)
        return []

    def close(self) -> None:
        if self._sender is None:
            return
        left = self._sender.producer.flush(_CLOSE_SECONDS)
        if left:
            _log.warning(
                "sink %r: %s not delivered within %.0f s", self._ctx.sink_id, counted(left, "record"), _CLOSE_SECONDS
            )
            self._sender.producer.purge(blocking=False)
        self._sender = None

    def _sender_for(self, message_limit: int) -> Sender:
        # Batches that suit a topic may be too large for one that is met later.
        if self._sender is None or message_limit < self._message_limit:
            if self._sender is not None:
                self._sender.flush(self._patience)
            config = {
                # Records wait as long as their outage may last.
                "message.timeout.ms": 0
                if self._outage.timeout is None
                else max(1000, int(self._outage.timeout * 1000)),
                **producer_config(self._servers, self._config, self._delivery, message_limit),
                "error_cb": self._on_client_error,
                "logger": ConnectionLog(),  # else it writes to standard error, whatever the format of Weir's log
            }
            if "delivery.timeout.ms" in config:  # its other name
                del config["message.timeout.ms"]
            self._sender = Sender(
                self._ctx.sink_id,
                config,
                _MAX_OUTSTANDING,
                self._on_stall,
            )
            self._message_limit = message_limit
            self._delivered = 0
        return self._sender

    @property
    def _patience(self) -> float:
        """Seconds that a flush may take; a record's own timeout ends it before."""
        return float("inf") if self._outage.timeout is None else self._outage.timeout + _FLUSH_SECONDS

    def _on_client_error(self, error: KafkaError) -> None:
        if error.code() in REFUSES:
            self._refusal, self._refused_at = error, time.monotonic()

    def _on_stall(self, topics: Collection[str]) -> None:
        """Nothing has been delivered for a second."""
        self._look_for_deliveries()
        refusal = self._refusal if time.monotonic() - self._refused_at <= FORGOTTEN_S else None
        if not (self._outage.away() if refusal is None else self._outage.refused()):
            raise KafkaException(refusal or KafkaError(KafkaError._TIMED_OUT, "the outage lasts too long"))
        refuse_missing(self._servers, self._config, self._ctx.sink_id, topics)

    def _look_for_deliveries(self) -> None:
        """Something that was delivered ends an outage; with a queue that is never empty nothing else tells."""
        delivered = 0 if self._sender is None else self._sender.delivered
        if delivered > self._delivered:
            self._delivered = delivered
            if self._outage.lasts:
                self._recovered()

    def _recovered(self) -> None:
        self._refusal = None
        self._outage.over()

    def _failed(self, error: KafkaException) -> BrokerUnavailable:
        return BrokerUnavailable(
            f"sink {self._ctx.sink_id!r}: Kafka didn't take the records: {reason(error)}. Check that the brokers run "
            "and can be reached; what was not delivered is written again after the restart"
        )
