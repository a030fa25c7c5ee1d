"""What the task thread finds in its mailbox: messages of the driver, and what threads of its own process tell it."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint.elements import BarrierElement
from pipeline.runtime import protocol


@dataclass(frozen=True, slots=True)
class Triggered:
    """Source subtasks: take a barrier."""

    trigger: protocol.Trigger
    at: float
    """A clock value: the trigger's arrival here, from where on the checkpoint's age counts."""


@dataclass(frozen=True, slots=True)
class BarrierSeen:
    """A barrier has arrived on this input channel; it may be queued behind data."""

    channel: int
    element: BarrierElement


@dataclass(frozen=True, slots=True)
class CommittersOpened:
    """Committing thread of a sink: its committers know what is committed."""

    step: str
    highest_checkpoint: int
    restored_epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """Another thread of the subtask failed."""

    error: BaseException


Mail = (
    Triggered
    | BarrierSeen
    | CommittersOpened
    | Failure
    | protocol.BarrierPassed
    | protocol.EndInput
    | protocol.Completed
    | protocol.Aborted
    | protocol.Heartbeat
    | protocol.ReleaseEpoch
    | protocol.ReleaseNew
    | protocol.ReplayEnded
    | protocol.Query
    | protocol.Quiesce
    | protocol.Finish
    | protocol.Cancel
)


def mail_of(message: protocol.ToSubtask, now: float) -> Mail | None:
    """What the task thread gets of a message; `None` for what comes before there is a task.

    Args:
        now: a clock value.
    """
    match message:
        case protocol.Job() | protocol.Deploy():
            return None
        case protocol.Trigger():
            return Triggered(message, now)
        case _:
            return message
