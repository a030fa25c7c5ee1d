"""What becomes of records that their format can't decode: the source stops, or leaves them out. (`dead_letters.py` has
the third way.)"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Message

from checkpoint.counted import counted
from checkpoint.metrics import MetricSink
from formats.errors import BadRecord
from sources.kafka.letters import Letter

log = logging.getLogger(f"weir.{__name__}")

_SHOWN: Final = 200
"""Bytes of a bad record in a message."""
_LOG_EVERY_S: Final = 1.0


class BadRecords(ABC):
    """A policy; called by the task thread, and never makes it wait for a broker."""

    @abstractmethod
    def handle(self, message: Message, content: bytes | None, error: Exception) -> None:
        """Deal with a record whose value, `content`, could not be decoded because of `error`. Returns if the source is
        to go on without it.

        Raises:
            BadRecord: the source is to stop.
        """

    @abstractmethod
    def take_over(self, letters: Sequence[Letter]) -> None:
        """Deal with bad records that were not delivered at the restored checkpoint, which is behind them.

        Raises:
            BadRecord: the source is not to go on without them.
        """

    def serve(self) -> None:
        """Called at every poll and snapshot.

        Raises:
            RuntimeError: bad records can't be dealt with as they should.
        """

    @property
    def full(self) -> bool:
        """Whether so much is under way that nothing more may be fetched."""
        return False

    @property
    def pending(self) -> Sequence[Letter]:
        """What is not delivered yet, and so belongs into a snapshot."""
        return ()

    def close(self, timeout: float) -> None:
        """Release everything; what is pending may be delivered for `timeout` seconds."""
        return


class FailOnBadRecords(BadRecords):
    """The source stops in front of the record."""

    def __init__(self, format_name: str) -> None:
        self._format = format_name

    def handle(self, message: Message, content: bytes | None, error: Exception) -> None:
        raise BadRecord(
            f"{describe(message, content, error, self._format)}. The source stands before this record and has lost "
            'nothing; correct value_format, or set on_bad_record="skip" to leave such records out and count them '
            '(recordsSkipped), or on_bad_record="topic" to write them to a topic for dead letters'
        ) from error

    def take_over(self, letters: Sequence[Letter]) -> None:
        if letters:
            raise BadRecord(
                f"the checkpoint has {counted(len(letters), 'bad record')} that had not reached the topic for dead "
                "letters; the "
                f'first is {letters[0]} ({letters[0].reason}). on_bad_record="fail" would lose them: restore with a '
                'topic in on_bad_record to write them there, or with on_bad_record="skip" to leave them out'
            )


class SkipBadRecords(BadRecords):
    """Left out, counted, and told in the log now and then."""

    def __init__(self, format_name: str, metrics: MetricSink) -> None:
        self._format = format_name
        self._metrics = metrics
        metrics.count("recordsSkipped", 0)  # as in the runtime's FailedRecords
        self._untold = 0
        self._told_at = float("-inf")

    def handle(self, message: Message, content: bytes | None, error: Exception) -> None:
        self._metrics.count("recordsSkipped")
        self._untold += 1
        if (now := time.monotonic()) - self._told_at >= _LOG_EVERY_S:
            more = f" ({self._untold - 1} more since the last message)" if self._untold > 1 else ""
            log.warning("skipped a bad record%s: %s", more, describe(message, content, error, self._format))
            self._untold, self._told_at = 0, now

    def take_over(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            self._metrics.count("recordsSkipped")
            log.warning("skipped a bad record that was to be a dead letter: %s: %s", letter, letter.reason)


def describe(message: Message, content: bytes | None, error: Exception, format_name: str) -> str:
    return (
        f"{message.topic()}[{message.partition()}] offset {message.offset()}: the value is not {format_name} "
        f"({error}): {shortened(content)}"
    )


def shortened(content: bytes | None) -> str:
    """For messages."""
    if content is None or len(content) <= _SHOWN:
        return repr(content)
    return f"{content[:_SHOWN]!r}… ({counted(len(content), 'byte')})"
