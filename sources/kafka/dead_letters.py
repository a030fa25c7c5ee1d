"""Bad records on their way to a topic of their own."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from checkpoint.counted import counted
from formats import letters
from sources.kafka.bad_records import BadRecords, FailOnBadRecords, SkipBadRecords, describe
from sources.kafka.client_errors import ErrorLog, client_log
from sources.kafka.letters import Letter
from sources.kafka.options import KafkaOptions
from sources.source import SourceContext

log = logging.getLogger(f"weir.{__name__}")

_MOST_PENDING: Final = 10_000
_LOG_EVERY_S: Final = 1.0
_GRANT_WRITE: Final = "Give this client's principal the WRITE permission for the topic"
_ADVICE: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _GRANT_WRITE,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _GRANT_WRITE,
    KafkaError._AUTHENTICATION: "Check the security settings in config",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "Create the topic again",
    KafkaError._UNKNOWN_TOPIC: "Create the topic again",
    KafkaError.MSG_SIZE_TOO_LARGE: "Raise the topic's max.message.bytes: a dead letter is larger by its headers",
    KafkaError.INVALID_RECORD: "A compacted topic takes no records without a key: set its cleanup.policy to delete",
}


class DeadLetters(BadRecords):
    """Writes them beside the task, which never waits for a delivery.

    What is not confirmed as delivered is part of every snapshot, and is written again after a restore. So none is
    lost, and some may come twice: their headers say of which record they are.
    """

    def __init__(self, options: KafkaOptions, ctx: SourceContext) -> None:
        if options.dead_letters is None:
            raise ValueError("the source has no topic for dead letters")
        self._topic = options.dead_letters.topic
        self._format = str(options.value_format)
        self._ctx = ctx
        ctx.metrics.count("recordsDeadLettered", 0)  # as in the runtime's FailedRecords
        self._pending: dict[int, Letter] = {}
        """By a number of their own, in order."""
        self._unsent: deque[int] = deque()
        """Those that the client has no room for yet."""
        self._next = 0
        self._bytes = 0
        self._most_bytes = options.letter_bytes
        self._failure: RuntimeError | None = None
        self._fatal: KafkaError | None = None
        """Why the producer does nothing any more."""
        self._errors = ErrorLog(ctx.source_id)
        self._told_at = float("-inf")
        client_id = f"weir-{ctx.pipeline}-{ctx.source_id}-{ctx.subtask}-dead-letters"
        config = {**options.dead_letter_config(client_id), "error_cb": self._on_client_error}
        self._producer = Producer(config, logger=client_log)

    def handle(self, message: Message, content: bytes | None, error: Exception) -> None:
        if (now := time.monotonic()) - self._told_at >= _LOG_EVERY_S:
            self._told_at = now
            log.warning("a bad record goes to %s: %s", self._topic, describe(message, content, error, self._format))
        self._add(Letter.of(message, error))
        self._send()

    def take_over(self, undelivered: Sequence[Letter]) -> None:
        for letter in undelivered:
            self._add(letter)
        self._send()

    def serve(self) -> None:
        try:
            self._producer.poll(0)
        except KafkaException as e:  # a fatal error; the producer does nothing any more
            self._fail(next(iter(self._pending.values()), None), e.args[0])
        self._send()
        if self._failure is not None:
            raise self._failure

    @property
    def full(self) -> bool:
        return len(self._pending) >= _MOST_PENDING or self._bytes >= self._most_bytes or bool(self._unsent)

    @property
    def pending(self) -> Sequence[Letter]:
        return list(self._pending.values())

    def close(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self._pending and self._failure is None and (left := deadline - time.monotonic()) > 0:
            self._send()
            try:
                self._producer.poll(min(left, 0.1))
            except KafkaException as e:
                self._fail(None, e.args[0])
        if self._pending:
            log.warning(
                "source %s: %s not delivered to %s before the source closed, the first is of %s. "
                "A restore writes them again",
                self._ctx.source_id,
                counted(len(self._pending), "dead letter was", "dead letters were"),
                self._topic,
                next(iter(self._pending.values())),
            )

    def _add(self, letter: Letter) -> None:
        self._pending[self._next] = letter
        self._unsent.append(self._next)
        self._next += 1
        self._bytes += letter.size

    def _send(self) -> None:
        """Hand on what the client has room for."""
        while self._unsent and self._failure is None:
            number = self._unsent[0]
            letter = self._pending[number]
            try:
                self._producer.produce(
                    self._topic,
                    value=letter.value,
                    key=letter.key,
                    headers=self._headers(letter),
                    on_delivery=partial(self._on_delivery, number),
                )
            except BufferError:
                return
            except KafkaException as e:
                self._fail(letter, self._cause(e.args[0]))
            self._unsent.popleft()

    def _cause(self, error: KafkaError) -> KafkaError:
        """What a fatal error was: a letter that comes behind it hears only that there was one."""
        if error.code() != KafkaError._FATAL:
            return error
        try:
            self._producer.poll(0)
        except KafkaException as e:
            return e.args[0]  # type: ignore[no-any-return]
        return self._fatal or error

    def _headers(self, letter: Letter) -> list[tuple[str, str | bytes | None]]:
        """Those of the record, and behind them the ones that tell of it."""
        told = {
            letters.REASON: letter.reason,
            letters.ERROR: letter.error,
            letters.PIPELINE: self._ctx.pipeline,
            letters.SOURCE: self._ctx.source_id,
            letters.TOPIC: letter.topic,
            letters.PARTITION: letter.partition,
            letters.OFFSET: letter.offset,
            letters.TIMESTAMP: letter.timestamp,
        }
        return [*letter.headers, *letters.told_headers(told)]

    def _on_delivery(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._fail(self._pending[number], error)
            return
        self._bytes -= self._pending.pop(number).size
        self._ctx.metrics.count("recordsDeadLettered")

    def _on_client_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            self._failure = self._failure or RuntimeError(
                f"source {self._ctx.source_id}: the producer for dead letters can't log in: {error.str()}. "
                f"{_ADVICE[error.code()]}"
            )
        elif error.fatal():
            self._fatal = error
        else:
            self._errors.warn(error, f"dead letters to {self._topic}", time.monotonic())

    def _fail(self, letter: Letter | None, error: KafkaError) -> None:
        what = "dead letters" if letter is None else f"the dead letter of {letter}"
        self._failure = self._failure or RuntimeError(
            f"source {self._ctx.source_id}: {what} could not be delivered to the topic {self._topic}: {error.str()} "
            f"({error.name()}). {_ADVICE.get(error.code(), 'Check the brokers')}. No bad record is lost: those "
            "that are not out are written again after a restart"
        )


def policy(options: KafkaOptions, ctx: SourceContext) -> BadRecords:
    """What the options say, for one subtask."""
    if options.dead_letters is not None:
        return DeadLetters(options, ctx)
    if options.on_bad_record == "skip":
        return SkipBadRecords(str(options.value_format), ctx.metrics)
    return FailOnBadRecords(str(options.value_format))
