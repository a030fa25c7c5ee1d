"""What a client of Kafka has been told about its connections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaError

REFUSES: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
"""No broker is more patient with a wrong password later on."""
_REFUSED: Final = "Connection refused"


def nobody_listens(said: Iterable[KafkaError]) -> bool:
    """Whether every broker of a client has been tried, and each time the host refused the connection or there is no
    such host. That is definite at once, other than a broker that is slow.

    Args:
        said: all that the client's error callback was told.
    """
    said = list(said)
    tries = [error for error in said if error.code() != KafkaError._ALL_BROKERS_DOWN]
    return len(tries) < len(said) and all(
        error.code() == KafkaError._RESOLVE or (error.code() == KafkaError._TRANSPORT and _REFUSED in error.str())
        for error in tries
    )
