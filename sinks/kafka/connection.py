"""Whether a client has lost a connection to a broker, by what it says."""

from __future__ import annotations

import logging
import re
from typing import Final

from confluent_kafka import KafkaError

from checkpoint.brokers import REFUSES

_log = logging.getLogger(f"weir.{__name__}")

_LOST: Final = ("Disconnected", "failed:", "timed out", "Closing connection")
_KNOWN_BROKER: Final = re.compile(r"/\d+: ")
"""How the log names a broker that the client was told of, unlike one that it was only given the address of."""


class ConnectionLog:
    """What a client says about its connections to brokers. Passes its log on to Python's.

    Only the log tells of a connection that was lost and is back at once. The transaction coordinator may still hold
    requests of it, and an old one that ends a transaction would end the next. Any broker may have been the marker
    group's coordinator, which the client goes on to wait for when another has taken over.
    """

    def __init__(self) -> None:
        self.lost: str | None = None
        self.refused: KafkaError | None = None
        """What a broker said that doesn't let this client in: requests only time out then."""

    def log(self, level: int, message: str, *args: object) -> None:
        """Called by the client, as a logger's."""
        text = message % args if args else message
        if any(part in text for part in _LOST) and ("TxnCoordinator" in text or _KNOWN_BROKER.search(text)):
            self.lost = text.rpartition("]: ")[2]
        # What the sink can't mend it raises, so that this is for looking into trouble.
        _log.log(min(level, logging.INFO), "%s", text)

    def error(self, error: KafkaError) -> None:
        if error.code() in REFUSES:
            self.refused = error
        if error.code() == KafkaError._ALL_BROKERS_DOWN or "TxnCoordinator" in error.str():
            self.lost = error.str()
