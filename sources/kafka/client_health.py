"""Whether a reader's client reaches its brokers, and may: outages that are waited for, refusals that count."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import KafkaError

from checkpoint.brokers import REFUSES
from checkpoint.outage import Outage, Refusals
from sources.kafka.client_errors import ErrorLog, advice
from sources.kafka.errors import KafkaUnavailable
from sources.kafka.options import KafkaOptions
from sources.source import SourceContext

_LOOK_AGAIN_S: Final = 1.0


class ClientHealth:
    """What the client's callbacks say of its brokers. For the thread that serves the client."""

    def __init__(self, options: KafkaOptions, ctx: SourceContext, errors: ErrorLog) -> None:
        self._options = options
        self._source_id = ctx.source_id
        self._errors = errors
        what = f"the Kafka brokers at {options.servers} to read from (source {ctx.source_id!r})"
        self.outage = Outage(ctx.waiting, what, options.outage_timeout)  # type: ignore[arg-type]  # seconds by now
        self._refusals = Refusals(ctx.waiting, what)
        self._due = 0.0
        self.closing = False
        """What the client says from now on doesn't matter."""

    def on_error(self, error: KafkaError) -> None:
        """The client's error callback.

        Raises:
            RuntimeError: the client is of no use any more, or has been refused for too long.
        """
        if self.closing:
            return  # what matters was raised before
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.outage.away()
        # Neither an outage nor records that were fetched before say that a refusal is over.
        refused = error.code() in REFUSES and self._refusals.count()
        if error.fatal() or refused:
            raise RuntimeError(
                f"source {self._source_id}: the Kafka client failed: {error.str()} ({error.name()}). {advice(error)}"
            )
        self._errors.warn(error, self._options.servers, time.monotonic())

    def check(self, now: float) -> None:
        """
        Raises:
            KafkaUnavailable: an outage has lasted too long.
        """
        self._refusals.look()
        if not self.outage.lasts or now < self._due:
            return
        self._due = now + _LOOK_AGAIN_S
        if not self.outage.away():
            self.outage.over()
            raise KafkaUnavailable(
                f"source {self._source_id}: no Kafka broker at {self._options.servers} could be reached for "
                f"{self.outage.timeout:g} s (outage_timeout). Nothing is lost: start the job again once they are back"
            )
