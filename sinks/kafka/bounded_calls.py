"""Calls of Kafka's client that are given up when they don't return."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException

_GRACE: Final = 2.0
"""Seconds beyond its timeout that a call may take."""


class BoundedCalls:
    """Runs calls that have a timeout of their own. The client doesn't always keep to it: after a broker's restart
    `send_offsets_to_transaction` was seen to wait for ever."""

    def __init__(self, name: str, grace: float = _GRACE) -> None:
        """
        Args:
            name: of the threads.
            grace: seconds beyond its timeout that a call may take.
        """
        self.stuck = False
        """Whether a call has not returned in time. Its client must not be used again."""
        self._name = name
        self.grace = grace

    def run(self, timeout: float, call: Callable[[float], object]) -> None:
        """Call with the timeout, seconds.

        Raises:
            KafkaException: it did not return in time.
            BaseException: what it raised.
        """
        outcome: list[BaseException | None] = []

        def run() -> None:
            try:
                call(timeout)
                outcome.append(None)
            except BaseException as error:
                outcome.append(error)

        thread = threading.Thread(target=run, name=self._name, daemon=True)
        thread.start()
        thread.join(timeout + self.grace)
        if not outcome:
            self.stuck = True
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"the client didn't return within {timeout:.0f} s"))
        if outcome[0] is not None:
            raise outcome[0]
