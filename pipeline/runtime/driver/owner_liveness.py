"""Whether the job's owner still runs, as far as that can be told from here: a second start must not end it unasked.

A start after a crash needs nothing, so only an owner that certainly lives is in the way.
"""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from checkpoint.process_identity import runs_still
from checkpoint.storage import fencing
from checkpoint.storage.storage import CheckpointStorage
from pipeline.errors import PipelineError
from pipeline.runtime.driver.operations_client import OPEN_HERE, JobRequestFailed, NotReached, ask
from pipeline.runtime.driver.status.job_statuses import ENDED
from pipeline.runtime.running_jobs import running_jobs

_LOG = logging.getLogger(f"weir.{__name__}")
_PATIENCE: Final = 3.0
"""Seconds."""


class OwnerAnswer(Enum):
    """What comes from the address where an owner says it can be asked."""

    RUNS = auto()
    """The job itself has answered, and knew the secret."""
    ENDED = auto()
    """The job itself has answered that it has ended."""
    SILENT = auto()
    """Somebody listens, but who can't be told: its secret isn't known here, or it doesn't answer."""
    NOBODY = auto()
    """Nobody listens there, or another job does: a port that is free again is given to the next who wants one."""
    UNKNOWN = auto()
    """There is no address, or it is another host's."""


class OwnerState(Enum):
    LIVES = auto()
    GONE = auto()
    UNKNOWN = auto()


@dataclass(frozen=True)
class Owner:
    """What the newest owner file says of its driver."""

    host: str
    pid: int
    time: float
    """When it took ownership, in seconds since 1970."""
    address: str
    """Empty if it can't be asked."""
    process: str = ""
    """`identity` of the process; empty: not known."""


def owner_state(same_host: bool, process_there: bool, answer: OwnerAnswer) -> OwnerState:
    """
    Args:
        same_host: the owner's host has the name of this one (containers may share a name and not their processes).
        process_there: a process with the owner's number, that took ownership, runs here.
    """
    if not same_host:
        return OwnerState.UNKNOWN
    match answer:
        case OwnerAnswer.RUNS:
            return OwnerState.LIVES
        case OwnerAnswer.ENDED | OwnerAnswer.NOBODY:
            return OwnerState.GONE
        case OwnerAnswer.SILENT:
            return OwnerState.LIVES if process_there else OwnerState.UNKNOWN
        case OwnerAnswer.UNKNOWN:
            return OwnerState.UNKNOWN if process_there else OwnerState.GONE


def refuse_living_owner(storage: CheckpointStorage, name: str) -> None:
    """
    Raises:
        PipelineError: another driver runs the job; says which one, and what to do.
        StorageError: the folder can't be read.
    """
    newest = max(storage.owners(), default=None)
    owner = None if newest is None else _owner(storage, newest)
    if newest is None or owner is None:
        return
    same_host = owner.host == socket.gethostname()
    there = same_host and runs_still(owner.pid, owner.time, owner.process)
    state = owner_state(same_host, there, _ask(owner, name, there) if same_host else OwnerAnswer.UNKNOWN)
    who = f"process {owner.pid} on host {owner.host}{owner.address and f', at {owner.address}'}"
    if state is OwnerState.LIVES:
        raise PipelineError(
            f"job {name!r} runs already, in {who}. `weir stop {name}` stops it there; to end it and go on here, start "
            "with --take-over, or start(take_over=True). If both are to run, give one another pipeline name or "
            "checkpoint folder"
        )
    if state is OwnerState.UNKNOWN:
        _LOG.warning(
            "job %s: whether its last owner (%s) still runs can't be told from here; if it does, this start ends it",
            name,
            who,
        )


def _owner(storage: CheckpointStorage, ownership: fencing.Ownership) -> Owner | None:
    """`None` if the owner file is gone or says nothing."""
    said: dict[str, Any] = fencing.description(storage, ownership)
    try:
        return Owner(said["host"], said["pid"], said["time"], said.get("address", ""), said.get("process", ""))
    except KeyError:
        return None


def _ask(owner: Owner, name: str, process_there: bool) -> OwnerAnswer:
    if not owner.address:
        return OwnerAnswer.UNKNOWN
    if process_there and owner.pid == os.getpid() and owner.address not in OPEN_HERE:
        return OwnerAnswer.NOBODY
    try:
        job = next((job for job in running_jobs() if job.address == owner.address), None)
        if job is not None and (job.pid, job.name) != (owner.pid, name):
            return OwnerAnswer.NOBODY
        if job is not None:
            said = ask(owner.address, job.secret, "status", _PATIENCE, encrypted=job.encrypted)
            return OwnerAnswer.ENDED if said["status"] in ENDED else OwnerAnswer.RUNS
    except (NotReached, JobRequestFailed, OSError, RuntimeError) as error:
        _LOG.debug("the job at %s gives no answer: %s", owner.address, error)
    # Last, since a job takes it for a stranger and warns of it.
    host, _, port = owner.address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _PATIENCE).close()
    except ConnectionRefusedError:
        return OwnerAnswer.NOBODY
    except (OSError, OverflowError, ValueError):
        return OwnerAnswer.UNKNOWN
    return OwnerAnswer.SILENT
