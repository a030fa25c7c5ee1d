"""Which processes of an attempt are there, who has gone, and what takes long: `pipeline.runtime.liveness` in words."""

from __future__ import annotations

from typing import Protocol

from checkpoint.counted import counted
from checkpoint.waiting import WaitKind
from pipeline.runtime.driver.attempt_context import AttemptContext
from pipeline.runtime.driver.attempt_events import ProcessConnection
from pipeline.runtime.driver.attempt_services import Transport
from pipeline.runtime.driver.failures import GONE, AttemptFailed, Sign
from pipeline.runtime.driver.peers import Peers
from pipeline.runtime.driver.status.waits import THE_JOB
from pipeline.runtime.liveness import Liveness


class Fail(Protocol):
    def __call__(self, message: str, sign: Sign, permanent: bool = False) -> None: ...


class ProcessLiveness:
    """Used by the attempt's thread only."""

    def __init__(self, context: AttemptContext, peers: Peers, transport: Transport, fail: Fail, now: float) -> None:
        self._waits = context.waits
        self._limits = context.spec.limits
        self._first_attempt = context.spec.first_attempt
        self._wanted = context.plan.subtasks
        self._peers = peers
        self._transport = transport
        self._fail = fail
        self._arriving: dict[ProcessConnection, str] = {}
        """Processes that have connected and are not ready yet, by how they call themselves."""
        self._liveness: Liveness[ProcessConnection] = Liveness(self._wanted, self._limits, now)

    def connected(self, connection: ProcessConnection, name: str, now: float) -> None:
        """A process has come. `name`: how it calls itself."""
        self._arriving[connection] = name
        self._liveness.connected(connection, now)

    def ready(self, connection: ProcessConnection, now: float) -> None:
        """It can be given a subtask."""
        del self._arriving[connection]
        self._liveness.ready(connection, now)

    def entered(self, connection: ProcessConnection, phase: str | None, now: float) -> None:
        """As `Liveness.entered`."""
        self._liveness.entered(connection, phase, now)

    def left(self, connection: ProcessConnection) -> None:
        """It has said its last word."""
        self._liveness.left(connection)

    def lost(self, connection: ProcessConnection, reason: str) -> None:
        """Its connection is closed, or it counts as dead."""
        phase = self._liveness.phase(connection)
        self._liveness.left(connection)
        peer = self._peers.get(connection)
        if peer is None:
            if name := self._arriving.pop(connection, None):
                self._fail(f"the process {name} is gone before it was ready ({reason})", Sign.LOST)
            return
        peer.gone = True
        if peer.closed:
            return
        name = self._peers.name(peer)
        last = f"\nThe last that is known of it: it {phase}." if phase else ""
        self._fail(f"subtask {name} is gone (process {peer.pid} on {peer.host}: {reason}){last}\n{GONE}", Sign.LOST)

    def misunderstood(self, connection: ProcessConnection, error: str) -> None:
        """It has sent what this version of Weir doesn't understand."""
        self._liveness.left(connection)
        name = self._arriving.pop(connection, "")
        if (peer := self._peers.get(connection)) is not None:
            peer.closed = peer.gone = True
            name = self._peers.name(peer)
        self._fail(f"subtask {name}: {error}", Sign.OWN_WORD, permanent=self._first_attempt)

    def look(self, now: float) -> None:
        """Give up who is silent for too long, and who doesn't come; tell of what takes long.

        Raises:
            AttemptFailed: processes don't come.
        """
        found = self._liveness.look(now, lambda connection: connection.heard_at)
        for connection in found.silent:
            self.lost(connection, f"not heard of for {self._limits.silent:g} s, though its host answers")
        here, wanted = len(self._peers), self._wanted
        if found.waited >= self._limits.start:
            host, port = self._transport.address
            raise AttemptFailed(
                f"only {here} of {counted(wanted, 'subtask')} came up, and none for {found.waited:.0f} s; "
                f"look into the executors' logs, check that they reach {host}:{port}, and that no other job of this "
                "Spark session holds the slots"
            )
        waits = [
            (f"{self._name_of(one.who)}, which {one.what}", now - one.since, WaitKind.SUBTASK) for one in found.slow
        ]
        if found.waited >= self._limits.told:
            what = f"{wanted - here} of {counted(wanted, 'process', 'processes')}, which Spark has not brought up"
            waits.append((what, found.waited, WaitKind.PROCESSES))
        self._waits.report(THE_JOB, waits)

    def _name_of(self, connection: ProcessConnection) -> str:
        peer = self._peers.get(connection)
        return self._peers.name(peer) if peer is not None else f"the process {self._arriving[connection]}"
