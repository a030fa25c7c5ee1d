"""What stops a Kafka source."""

from __future__ import annotations


class KafkaUnavailable(RuntimeError):
    """No broker answered, or it refused this client."""


class DataLoss(RuntimeError):
    """Offsets that should be read next are not in the topic any more."""


class BadRecord(ValueError):
    """A record that its format cannot decode."""


class MissingPermission(RuntimeError):
    """The client may not do what the source needs."""
