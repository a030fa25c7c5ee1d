"""What goes wrong in a Kafka sink, said so that the reader knows what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError

from checkpoint.errors import Explained, PermanentFailure
from checkpoint.shown import shown

_SHOWN = 200


class KafkaSinkError(Explained):
    """A Kafka sink can't go on."""


@dataclass(frozen=True)
class RefusedRecord:
    """What Kafka's client said of a record that was not delivered."""

    error: KafkaError
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None

    def __str__(self) -> str:
        partition = f", partition {self.partition}" if self.partition is not None and self.partition >= 0 else ""
        return f"(topic {self.topic!r}{partition}, key {shorten(self.key)}, value {shorten(self.value)})"


class RecordRefused(KafkaSinkError):
    """Kafka would refuse, or has refused, one record; the message shows it."""

    def __init__(self, message: str, record: RefusedRecord | None = None) -> None:
        super().__init__(message)
        self.record = record
        """What has been refused; `None` if it was not sent."""


class CommitRefused(RecordRefused, PermanentFailure):
    """Kafka has refused a record of a commit, and would again; the message says how to go on without it."""


class TopicRefused(KafkaSinkError):
    """A topic can't be written to."""


class MissingPermission(KafkaSinkError):
    """Kafka doesn't permit the sink's user something that it needs; the message names what is to be granted."""


class BrokerUnavailable(KafkaSinkError):
    """No broker answered in time, or they refused this client."""

    def __init__(self, message: str, refused: bool = False, credentials: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        """They have answered, and refused it."""
        self.credentials = credentials
        """For its user, password or certificate."""


class OutputAhead(KafkaSinkError, PermanentFailure):
    """The committed output is ahead of the checkpoint that is being restored."""


class EarlierOutput(KafkaSinkError, PermanentFailure):
    """A start without restore, or of a fork, under a name that has committed output already."""


class MarkerLost(KafkaSinkError, PermanentFailure):
    """What says how far the output is committed is recorded in the checkpoint, but not (or no longer) in Kafka; another
    run's may be there."""


class ForeignMarker(KafkaSinkError, PermanentFailure):
    """Somebody else writes under the same names."""


class CommitFailed(KafkaSinkError):
    """Committing didn't succeed within the retries; the restore commits again."""


def shorten(value: Any) -> str:
    """`repr(value)`, cut to a length that fits in a message."""
    return shown(value, _SHOWN)
