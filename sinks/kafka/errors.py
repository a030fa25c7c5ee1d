"""What goes wrong in a Kafka sink, said so that the reader knows what to do."""

from __future__ import annotations

from typing import Any

from checkpoint.errors import PermanentFailure

_SHOWN = 200


class KafkaSinkError(Exception):
    """A Kafka sink can't go on."""


class RecordRefused(KafkaSinkError):
    """Kafka would refuse, or has refused, one record; the message shows it."""


class TopicRefused(KafkaSinkError):
    """A topic can't be written to."""


class BrokerUnavailable(KafkaSinkError):
    """No broker answered in time."""


class OutputAhead(KafkaSinkError, PermanentFailure):
    """The committed output is ahead of the checkpoint that is being restored."""


class EarlierOutput(KafkaSinkError, PermanentFailure):
    """A start without restore, or of a fork, under a name that has committed output already."""


class MarkerLost(KafkaSinkError, PermanentFailure):
    """What says how far the output is committed is recorded in the checkpoint, but not (or no longer) in Kafka."""


class ForeignMarker(KafkaSinkError, PermanentFailure):
    """Somebody else writes under the same names."""


class CommitFailed(KafkaSinkError):
    """Committing didn't succeed within the retries; the restore commits again."""


def shorten(value: Any) -> str:
    """`repr(value)`, cut to a length that fits in a message."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
