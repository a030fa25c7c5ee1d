"""A subtask's link to the driver: mail from it, reports to it, and the pulse of the record loop."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from typing import Any, Final

from checkpoint.coordination.coordinator_events import Heartbeat
from checkpoint.errors import Explained, PermanentFailure
from checkpoint.gate.gate_events import BarrierPassed
from checkpoint.kinds import CheckpointKind
from checkpoint.storage.errors import DamagedFile
from checkpoint.storage.metadata import SubtaskSnapshot
from pipeline.errors import PipelineError
from pipeline.runtime import error_text
from pipeline.runtime.deployment import Deployment
from pipeline.runtime.liveness import Limits, Patience
from pipeline.runtime.pulse import Pulse
from pipeline.runtime.subtask import mail
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.task import Cancelled
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from pipeline.runtime.typed_values import from_value
from pipeline.runtime.wire import ConnectionLost, ControlConnection, Message

_LOG = logging.getLogger(f"weir.{__name__}")
_TICK = 0.02
"""Pace at which the record loop looks at the clock (linger, gate)."""
_REPORT_PERIOD = 0.5
_CANCEL_GRACE = 3.0
"""How long user code may go on after a cancel before the process is ended."""

_KINDS: Final[dict[str, type[BaseException] | tuple[type[BaseException], ...]]] = {
    "cancelled": Cancelled,
    "permanent": (PermanentFailure, PipelineError),
    "damaged": DamagedFile,
    "peer": ConnectionError,
}
"""What the driver makes of failures, by class; the first one counts."""


class DriverLink:
    """Implements `pipeline.runtime.subtask.task.Driver` over a control connection, whose two sides hear of each
    other from its first moment to its last, whatever the task does."""

    def __init__(
        self, connection: ControlConnection, mailbox: Mailbox, metrics: TaskMetrics, where: str, limits: Limits
    ):
        """`where`: names the process until it has a subtask's name."""
        self._connection = connection
        self._mailbox = mailbox
        self._metrics = metrics
        self._where = where
        self._limits = limits
        self.job_over = False
        """The driver ended the attempt, and there will be no other."""
        self._has_failed = False
        self._deployments: queue.SimpleQueue[Deployment | BaseException] = queue.SimpleQueue()
        """Or why none will come."""
        self._deployed = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="weir-driver-link", daemon=True)
        self._pulse = Pulse(lambda: [connection], limits.pace)

    def start(self) -> None:
        self._thread.start()
        self._pulse.start()

    def await_deployment(self) -> Deployment:
        """Wait until all processes are up and this one is given its place, which takes as long as it takes.

        Raises:
            Cancelled: the attempt ended before.
            Exception: what the driver sent could not be read.
        """
        deployment = self._deployments.get()
        if isinstance(deployment, BaseException):
            raise deployment
        return deployment

    def close(self) -> None:
        self._stop.set()
        self._pulse.stop()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5)
        self._connection.close()

    # -- reports ------------------------------------------------------------------------------------------------

    def entered(self, phase: str | None) -> None:
        """What the task does from now on, for whoever wonders why it takes so long: "is in open() of 'model'"; `None`
        once it only runs."""
        self._send("phase", phase=phase)

    def running(self, highest_checkpoint: int, restored_epochs: dict[str, list[int]]) -> None:
        self._send("running", highest_checkpoint=highest_checkpoint, restored_epochs=restored_epochs)

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, statistics: dict[str, Any]) -> None:
        self._send("ack", id=checkpoint_id, snapshot=snapshot.to_wire(), statistics=statistics)

    def snapshot_taken(self, checkpoint_id: int, span: int | None, busy: bool) -> None:
        self._send("taken", id=checkpoint_id, span=span, busy=busy)

    def decline(self, checkpoint_id: int, message: str, asynchronous: bool) -> None:
        self._send("decline", id=checkpoint_id, message=message, asynchronous=asynchronous)

    def ask_for_checkpoint(self, last_barrier: int) -> None:
        self._send("ask", last_barrier=last_barrier)

    def input_ended(self) -> None:
        self._send("ended")

    def replayed(self) -> None:
        """A subtask without outputs: the restore barrier has come through on all inputs, and what was restored here is
        processed."""
        self._send("replayed_here")

    def quiet(self) -> None:
        self._send("quiet")

    def committed(self, step: str, checkpoint_id: int, waiting: int, records: bool) -> None:
        self._send("committed", step=step, id=checkpoint_id, waiting=waiting, records=records)

    def restored_epoch_committed(self, step: str, epoch: int) -> None:
        self._send("epoch_committed", step=step, epoch=epoch)

    def failed(self, error: BaseException, permanent: bool = False, step: str | None = None) -> None:
        """Say how this subtask failed; only the first time counts.

        Args:
            permanent: no restart can help, and the error's message says all.
            step: that it came from, if there are several.
        """
        if self._has_failed:
            return
        self._has_failed = True
        kind = "permanent" if permanent else _kind(error)
        says_all = kind in ("damaged", "cancelled") or permanent or type(error) is PermanentFailure
        text = error_text.message(error) if says_all else error_text.summary(error)
        # Of errors that say what to do it helps nobody where they were raised, unless that is in the user's code.
        says_what_to_do = kind in ("permanent", "damaged", "cancelled") or issubclass(type(error), Explained)
        trace = error_text.trace(error, only_users=says_what_to_do)
        self._send("failed", kind=kind, message=text, traceback=trace, where=self._where, step=step)

    def closed(self) -> None:
        self._send("closed", metrics=self._metrics.report())

    def _send(self, type: str, **fields: Any) -> None:
        try:
            self._connection.send(type, **fields)
        except ConnectionLost as error:
            self._mailbox.post(mail.Failure(error))

    # -- the link's thread --------------------------------------------------------------------------------------

    def _loop(self) -> None:
        next_report = time.monotonic() + _REPORT_PERIOD
        silence = Patience(self._limits, time.monotonic())
        try:
            while not self._stop.is_set():
                message = self._connection.receive(_TICK)
                self._mailbox.tick()
                if message is not None:
                    self._deliver(message)
                now = time.monotonic()
                if silence.look(now, self._connection.heard_at) >= self._limits.silent:
                    raise ConnectionLost(f"not heard of for {self._limits.silent:g} s")
                if self._deployed and now >= next_report:
                    next_report = now + _REPORT_PERIOD
                    self._connection.send("metrics", metrics=self._metrics.report())
        except ConnectionLost as error:
            if not self._stop.is_set():
                # Nobody is left to report to: the driver is gone or has given this attempt up.
                _LOG.warning("the driver is gone (%s); ending this subtask", error)
                self._end_soon()
        except BaseException as error:
            self._deployments.put(error)
            self._mailbox.post(mail.Failure(error))

    def _deliver(self, message: Message) -> None:
        match message["type"]:
            case "deploy":
                self._deployed = True
                self._deployments.put(from_value(Deployment, message["deployment"]))
            case "trigger":
                options = mail.BarrierOptions(message["target"], message["stop"])
                kind = CheckpointKind(message["kind"])
                self._mailbox.post(mail.Trigger(message["id"], kind, time.monotonic(), options))
            case "passed":
                passed = BarrierPassed(
                    message["id"], message["start_delay"], message["mean_span"], message["busy_span"]
                )
                self._mailbox.post(mail.BarrierPassed(passed))
            case "end_input":
                self._mailbox.post(mail.EndInput())
            case "complete":
                kind = CheckpointKind(message["kind"])
                self._mailbox.post(mail.Completed(message["id"], kind, message["commits"]))
            case "aborted":
                self._mailbox.post(mail.Aborted(message["id"]))
            case "heartbeat":
                all_options = {id: mail.BarrierOptions(target, stop) for id, target, stop in message["options"]}
                self._mailbox.post(mail.HeartbeatMail(heartbeat_from_wire(message), all_options))
            case "release_epoch":
                self._mailbox.post(mail.ReleaseEpoch(message["step"], message["epoch"]))
            case "release_new":
                self._mailbox.post(mail.ReleaseNew(message["step"]))
            case "replayed":
                self._mailbox.post(mail.Replayed())
            case "quiesce":
                self._mailbox.post(mail.Quiesce())
            case "finish":
                self._mailbox.post(mail.Finish())
            case "cancel":
                self.job_over = message["job_over"]
                self._end_soon()
            case other:
                raise ConnectionLost(f"unknown control message {other!r}")

    def _end_soon(self) -> None:
        """Ask the task thread to leave; if user code holds it, end the process."""
        self._deployments.put(Cancelled("cancelled"))
        self._mailbox.post(mail.Cancel())
        if not self._stop.wait(_CANCEL_GRACE):
            _LOG.warning("the task thread didn't leave within %g s of the cancel; ending the process", _CANCEL_GRACE)
            os._exit(1)


def _kind(error: BaseException) -> str:
    """What the driver makes of a failure."""
    # By its class alone: what an exception of the user's says of itself may raise another one.
    for name, classes in _KINDS.items():
        if issubclass(type(error), classes):
            return name
    return "error"


def heartbeat_to_wire(heartbeat: Heartbeat) -> dict[str, Any]:
    return {
        "in_progress": [[id, kind.value] for id, kind in heartbeat.in_progress],
        "span_scale": heartbeat.span_scale,
        "held_back": heartbeat.held_back,
        "passed": [list(one) for one in heartbeat.passed],
    }


def heartbeat_from_wire(message: Message) -> Heartbeat:
    in_progress = tuple((id, CheckpointKind(kind)) for id, kind in message["in_progress"])
    passed = tuple((id, delay, mean, of_busy) for id, delay, mean, of_busy in message["passed"])
    return Heartbeat(in_progress, message["span_scale"], message["held_back"], passed)
