"""The life of a committer's transactional producers: made, used, replaced after any trouble, ended."""

from __future__ import annotations

from checkpoint import failpoints
from sinks.kafka.committer_options import CommitterOptions
from sinks.kafka.transactions import TransactionalProducer
from sinks.sink import CommitterContext


class Producers:
    """One producer at a time. For one thread."""

    def __init__(self, options: CommitterOptions, ctx: CommitterContext) -> None:
        self._options = options
        self._ctx = ctx
        self._current: TransactionalProducer | None = None

    def usable(self, message_limit: int) -> TransactionalProducer | None:
        """The one in use, unless it has to be replaced: something went wrong, or its batches are too large.

        Args:
            message_limit: bytes that the topics take.

        Raises:
            KafkaException: it has ended.
        """
        producer = self._current
        if producer is not None and producer.healthy() and producer.message_limit <= message_limit:
            return producer
        return None

    def new(self, message_limit: int) -> TransactionalProducer:
        """Make one in place of the one in use. It fences that one, and ends what it left open.

        Args:
            message_limit: bytes that the topics take; a limit that was lower before stays.

        Raises:
            Fenced: another driver owns the job. Asked before anybody is fenced, and again afterwards.
            KafkaException
        """
        if self._current is not None:
            message_limit = min(message_limit, self._current.message_limit)
            self.discard(abort=False)
        options, ctx = self._options, self._ctx
        ctx.check_owner()
        producer = self._current = TransactionalProducer(
            options.servers, options.config, options.name, ctx.sink_id, message_limit
        )
        failpoints.hit("committer.before_init", subtask=ctx.writer)
        producer.init()
        failpoints.hit("committer.after_init", subtask=ctx.writer)
        ctx.check_owner()
        return producer

    def discard(self, abort: bool) -> None:
        """End the one in use, if there is one.

        Args:
            abort: end its open transaction now, since no other producer may come soon to do it: readers wait for it.
        """
        producer, self._current = self._current, None
        if producer is None:
            return
        aborts = abort and producer.in_transaction
        if aborts:
            failpoints.hit("committer.before_abort", subtask=self._ctx.writer)
        producer.discard(abort)
        if aborts:
            failpoints.hit("committer.after_abort", subtask=self._ctx.writer)
