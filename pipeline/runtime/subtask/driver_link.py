"""A subtask's link to the driver: mail from it, reports to it, and looks at the clock for the record loop."""

from __future__ import annotations

import logging
import threading
from typing import Final, Protocol

from checkpoint.errors import Explained, PermanentFailure
from checkpoint.storage.errors import DamagedFile
from pipeline.errors import PipelineError
from pipeline.runtime import error_text
from pipeline.runtime.deployment import Deployment
from pipeline.runtime.keepalive import KeepAlive
from pipeline.runtime.liveness import Limits, Patience
from pipeline.runtime.protocol import (
    Cancel,
    Closed,
    Deploy,
    Failed,
    FailureKind,
    Metrics,
    PhaseEntered,
    ToDriver,
    ToSubtask,
)
from pipeline.runtime.subtask.mail import Failure, mail_of
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.task import Cancelled
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from pipeline.runtime.system import SYSTEM, System
from pipeline.runtime.wire import ConnectionLost

_LOG = logging.getLogger(f"weir.{__name__}")
_TICK = 0.02
"""Pace at which the record loop looks at the clock (linger, gate)."""
_REPORT_PERIOD = 0.5
_CANCEL_GRACE = 3.0
"""How long user code may go on after a cancel before the process is ended."""

_KINDS: Final[dict[FailureKind, type[BaseException] | tuple[type[BaseException], ...]]] = {
    FailureKind.CANCELLED: Cancelled,
    FailureKind.PERMANENT: (PermanentFailure, PipelineError),
    FailureKind.DAMAGED: DamagedFile,
    FailureKind.PEER: ConnectionError,
}
"""What the driver makes of failures, by class; the first one counts."""
_SAYS_ALL: Final = frozenset({FailureKind.DAMAGED, FailureKind.CANCELLED})


class DriverConnection(Protocol):
    """The subtask's end of its connection to the driver (`MessageConnection`). A simulation has others."""

    @property
    def heard_at(self) -> float: ...

    @property
    def local_host(self) -> str: ...

    def send(self, message: ToDriver) -> None: ...

    def send_sign_of_life(self) -> None: ...

    def receive(self, timeout: float | None = None) -> ToSubtask | None: ...

    def close(self) -> None: ...


class DriverLink:
    """Implements `pipeline.runtime.subtask.task_output.Driver` over a control connection, whose two sides hear of each
    other from its first moment to its last, whatever the task does.

    Its thread hands what it receives to `deliver` and looks at the clock in `look`.
    """

    def __init__(
        self,
        connection: DriverConnection,
        mailbox: Mailbox,
        metrics: TaskMetrics,
        where: str,
        limits: Limits,
        system: System = SYSTEM,
    ):
        """`where`: names the process until it has a subtask's name."""
        self._connection = connection
        self._mailbox = mailbox
        self._metrics = metrics
        self._where = where
        self._limits = limits
        self._system = system
        self.job_over = False
        """The driver ended the attempt, and there will be no other."""
        self._cancelled = False
        self._has_failed = False
        self._deployments = system.queue()
        """A deployment, or the exception that says why none will come."""
        self._deployed = False
        now = system.monotonic()
        self._next_report = now + _REPORT_PERIOD
        self._silence = Patience(limits, now)
        self._stop = system.event()
        self._thread = system.thread(self._loop, "weir-driver-link")
        self._keepalive = KeepAlive(lambda: [connection], limits.pace, system)

    def start(self) -> None:
        self._thread.start()
        self._keepalive.start()

    def await_deployment(self) -> Deployment:
        """Wait until all processes are up and this one is given its place, which takes as long as it takes.

        Raises:
            Cancelled: the attempt ended before.
            Exception: what the driver sent could not be read.
        """
        deployment: Deployment | BaseException = self._deployments.get()
        if isinstance(deployment, BaseException):
            raise deployment
        return deployment

    def close(self) -> None:
        self._stop.set()
        self._keepalive.stop()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5)
        self._connection.close()

    # -- reports ------------------------------------------------------------------------------------------------

    def report(self, message: ToDriver) -> None:
        """Tell the driver; thread-safe. That it can't be told the task finds in its mailbox."""
        try:
            self._connection.send(message)
        except ConnectionLost as error:
            self._mailbox.post(Failure(error))

    def entered(self, phase: str | None) -> None:
        """What the task does from now on, for whoever wonders why it takes so long: "is in open() of 'model'"; `None`
        once it only runs."""
        self.report(PhaseEntered(phase))

    def failed(self, error: BaseException, permanent: bool = False, step: str | None = None) -> None:
        """Say how this subtask failed; only the first time counts.

        Args:
            permanent: no restart can help, and the error's message says all.
            step: that it came from, if there are several.
        """
        if self._has_failed:
            return
        self._has_failed = True
        kind = FailureKind.PERMANENT if permanent else _kind(error)
        says_all = kind in _SAYS_ALL or permanent or type(error) is PermanentFailure
        text = error_text.message(error) if says_all else error_text.summary(error)
        # Of errors that say what to do it helps nobody where they were raised, unless that is in the user's code.
        says_what_to_do = kind in _SAYS_ALL | {FailureKind.PERMANENT} or issubclass(type(error), Explained)
        trace = error_text.trace(error, only_users=says_what_to_do)
        self.report(Failed(kind=kind, message=text, traceback=trace, where=self._where, step=step))

    def closed(self) -> None:
        self.report(Closed(self._metrics.report()))

    # -- the link's thread --------------------------------------------------------------------------------------

    def deliver(self, message: ToSubtask) -> None:
        """The driver has said something."""
        if (mail := mail_of(message, self._system.monotonic())) is not None:
            self._mailbox.post(mail)
        match message:
            case Deploy(deployment):
                self._deployed = True
                self._deployments.put(deployment)
            case Cancel(job_over):
                self.job_over |= job_over
                self._cancelled = True
                self._deployments.put(Cancelled("cancelled"))
            case _:
                pass

    def look(self, now: float) -> None:
        """Report metrics when they are due.

        Raises:
            ConnectionLost: the driver was silent for too long, or is gone.
        """
        if self._silence.look(now, self._connection.heard_at) >= self._limits.silent:
            raise ConnectionLost(f"not heard of for {self._limits.silent:g} s")
        if self._deployed and now >= self._next_report:
            self._next_report = now + _REPORT_PERIOD
            self._connection.send(Metrics(self._metrics.report()))

    def _loop(self) -> None:
        try:
            while not (self._stop.is_set() or self._cancelled):
                message = self._connection.receive(_TICK)
                self._mailbox.tick()
                if message is not None:
                    self.deliver(message)
                self.look(self._system.monotonic())
        except ConnectionLost as error:
            if not (self._stop.is_set() or self._cancelled):
                # Nobody is left to report to: the driver is gone or has given this attempt up.
                _LOG.warning("the driver is gone (%s); ending this subtask", error)
                self.deliver(Cancel())
        except BaseException as error:
            self._deployments.put(error)
            self._mailbox.post(Failure(error))
        if self._cancelled and not self._stop.wait(_CANCEL_GRACE):
            # User code holds the task thread.
            _LOG.warning("the task thread didn't leave within %g s of the cancel; ending the process", _CANCEL_GRACE)
            self._system.exit(1)


def _kind(error: BaseException) -> FailureKind:
    """What the driver makes of a failure."""
    # By its class alone: what an exception of the user's says of itself may raise another one.
    for kind, classes in _KINDS.items():
        if issubclass(type(error), classes):
            return kind
    return FailureKind.ERROR
