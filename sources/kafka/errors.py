"""What stops a Kafka source."""

from __future__ import annotations

from collections.abc import Sequence

from checkpoint.errors import Explained, PermanentFailure


class KafkaUnavailable(Explained, RuntimeError):
    """No broker answered, or it refused this client."""

    def __init__(self, message: str, refused: bool = False, credentials: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        """It has answered, and refused it."""
        self.credentials = credentials
        """For its user, password or certificate."""


class DataLoss(PermanentFailure, RuntimeError):
    """Offsets that should be read next are not in the topic any more."""


class MissingPermission(Explained, RuntimeError):
    """The client may not do what the source needs."""

    def __init__(self, message: str, topics: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.topics = topics
        """That may not be read, if it is about these."""
