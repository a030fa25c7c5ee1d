"""The end of an attempt: until Spark's job has ended and its processes have left, so that the next one finds the slots
free."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pipeline.runtime.driver.attempt_events import (
    AttemptEvent,
    CheckpointRequestedByUser,
    Lost,
    Misunderstood,
    Received,
    SparkEnded,
)
from pipeline.runtime.driver.attempt_services import Processes
from pipeline.runtime.driver.peers import Peer, Peers
from pipeline.runtime.protocol import Committed

_LOG = logging.getLogger(f"weir.{__name__}")
_PATIENCE = 10.0
_CANCEL_AGAIN = 1.0
"""A cancel that comes before Spark knows the job goes unheard, so it is repeated."""


class AttemptEnd:
    """Subtasks leave on their own; Spark is asked at once, too, since one of them may be gone, not up yet, or held by
    user code, whose process Spark ends after 2 s."""

    def __init__(
        self,
        peers: Peers,
        processes: Processes,
        spark_ended: bool,
        now: float,
        on_committed: Callable[[Peer, Committed], None],
        on_request: Callable[[CheckpointRequestedByUser], None],
    ):
        """
        Args:
            now: a clock value.
            on_committed: a commit that was under way has ended.
            on_request: somebody asks for a checkpoint, who is to be answered once nobody can ask more.
        """
        self._peers = peers
        self._processes = processes
        self._spark_ended = spark_ended
        self._deadline = now + _PATIENCE
        self._next_cancel = now
        self._on_committed = on_committed
        self._on_request = on_request

    def tick(self, now: float) -> float | None:
        """Do what is due. Returns when to come again, unless something comes before; `None`: it is over."""
        staying = [self._peers.name(peer) for peer in self._peers if not peer.gone]
        if self._spark_ended and not staying:
            return None
        if now >= self._deadline:
            _LOG.warning(
                "%g s after the end of the attempt, Spark's job %s; processes not gone: %s",
                _PATIENCE,
                "has ended" if self._spark_ended else "has not ended",
                ", ".join(staying) or "none",
            )
            return None
        if not self._spark_ended and now >= self._next_cancel:
            self._processes.cancel()
            self._next_cancel = now + _CANCEL_AGAIN
        return min(self._deadline, now + _CANCEL_AGAIN)

    def handle(self, event: AttemptEvent) -> None:
        """All else is a report to an attempt that is over."""
        match event:
            case Lost(connection) | Misunderstood(connection):
                if (peer := self._peers.get(connection)) is not None:
                    peer.gone = True
            case SparkEnded():
                self._spark_ended = True
            case Received(connection, Committed() as committed):
                if (peer := self._peers.get(connection)) is not None:
                    self._on_committed(peer, committed)
            case CheckpointRequestedByUser():
                self._on_request(event)
            case _:
                pass
