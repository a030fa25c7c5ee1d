"""Named steps at which tests let a process crash, fail or wait.

The code calls `hit` at such a step; unless a test has armed a failpoint that is one look at an empty dict. What is
armed (`pipeline.testing.failpoints`) is shipped with the job and installed in every subtask. Hits are counted in files,
so over all processes and attempts, which therefore must run on one machine.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

Action = Literal["crash", "fail", "stall", "hold"]

KNOWN: Final[Mapping[str, str]] = {
    "storage.create": "checkpoint storage: a file of a checkpoint, or a sink's, is about to be created",
    "storage.write": "checkpoint storage: a piece of such a file is about to be written",
    "storage.close": "checkpoint storage: such a file is about to be made durable",
    "storage.put": "checkpoint storage: `_metadata`, or a small file such as an owner file, is about to be written",
    "storage.read": "checkpoint storage: a file is about to be read",
    "storage.list": "checkpoint storage: the job's folder is about to be listed, as at every check of the owner",
    "storage.delete": "checkpoint storage: files are about to be deleted",
    "source.before_assign": "Kafka source: it is known where partitions begin, the consumer has not been told",
    "source.after_assign": "Kafka source: the consumer has partitions, nothing of them is polled",
    "source.after_poll": "Kafka source: records are polled, none of them is emitted",
    "source.before_snapshot": "Kafka source, at a barrier: the positions are about to be taken",
    "source.after_snapshot": "Kafka source, at a barrier: the positions are taken, nobody has them yet",
    "source.before_pause": "Kafka source: the gate has closed",
    "source.before_client_pause": "Kafka source: the gate is closed for long, and the consumer about to be paused",
    "source.before_resume": "Kafka source: the gate has opened",
    "source.before_group_commit": "Kafka source: the checkpoint is complete, its offsets are about to go to the group",
    "source.after_group_commit": "Kafka source: the group's offsets are on their way, their commit is not answered",
    "source.partition_found": "Kafka source: a partition was found that belongs to this subtask, it is not assigned",
    "source.partition_ended": "Kafka source with an end: a partition is at its end and about to be given back",
    "sink.before_seal": "Kafka sink, within an epoch: a segment is full and about to be made durable",
    "sink.after_seal": "Kafka sink, within an epoch: a segment is durable, the next one not begun",
    "sink.before_flush": "Kafka sink, at a barrier: the epoch's segments are about to be made durable",
    "sink.mid_flush": "Kafka sink with at_least_once, at a barrier: records are on their way, not all acknowledged",
    "sink.after_flush": "Kafka sink, at a barrier: they are durable, the checkpoint is not acknowledged",
    "snapshot.async_write": "any subtask: the asynchronous part of a snapshot is about to be written",
    "snapshot.channel_state": "any subtask: what was in flight is captured and about to be written",
    "restore.in_flight": "any subtask: in-flight data of the restored checkpoint is about to be read",
    "subtask.after_acknowledge": "any subtask: a checkpoint has been acknowledged to the coordinator",
    "committer.before_init": "Kafka sink: the owner is checked, a new producer is about to fence the one before",
    "committer.after_init": "Kafka sink: the one before is fenced, the owner not checked again, the marker not read",
    "committer.after_read": "Kafka sink: a new producer's marker is read, nothing follows from it yet",
    "committer.before_settle": "Kafka sink: the restored marker is not the one in Kafka and about to be written",
    "committer.mid_settle": "Kafka sink: that marker is in the open transaction, which is about to be committed",
    "committer.after_settle": "Kafka sink: what of the writer's output is committed is known, nobody has been told yet",
    "committer.before_commit": "Kafka and testing sink: the checkpoint is complete, nothing of its epoch committed",
    "committer.before_transaction": "Kafka sink: a transaction with records is about to begin",
    "committer.mid_produce": "Kafka sink: in the open transaction, with part of the records produced",
    "committer.after_produce": "Kafka sink: all records of the open transaction are acknowledged, the marker not sent",
    "committer.after_send_offsets": "Kafka sink: the marker is in the open transaction, the owner not checked again",
    "committer.after_owner_check": "Kafka sink: the owner is checked, the open transaction is about to be committed",
    "committer.after_end": "Kafka sink: the commit of a transaction is acknowledged, its marker has not been seen",
    "committer.before_hanging": "Kafka sink: a transaction that Kafka forgot to end is about to be aborted",
    "committer.after_hanging": "Kafka sink: a transaction that Kafka forgot to end is aborted, the marker not read",
    "committer.after_transaction": "Kafka sink: a transaction is committed, its marker not taken note of",
    "committer.between_transactions": "Kafka sink: part of an epoch is committed, the next transaction not begun",
    "committer.after_commit": "Kafka and testing sink: the epoch is committed, which nobody has been told yet",
    "committer.before_notification": "any sink: its committer has committed, neither log nor driver has been told",
    "committer.before_abort": "Kafka sink: after a failure, the open transaction is about to be aborted",
    "committer.after_abort": "Kafka sink: after a failure, the open transaction is aborted",
    "files.before_flush": "file sink, at a barrier: the epoch's files are about to be ended and made durable as staged",
    "files.after_flush": "file sink, at a barrier: they are, the checkpoint is not acknowledged",
    "files.before_settle": "file sink: it is decided what of the restored output is visible, nothing is changed yet",
    "files.after_settle": "file sink: the writer's marker is written, nobody has been told yet",
    "files.before_commit": "file sink: the checkpoint is complete, nothing of its epoch is visible",
    "files.after_intent": "file sink: the marker says that the epoch may be visible, nothing of it is",
    "files.before_rename": "file sink: a file is written under its hidden name, about to get its own",
    "files.after_rename": "file sink: a file is visible, the marker does not say so yet",
    "files.after_commit": "file sink: the epoch is visible and the marker says so, nobody has been told yet",
    "coordinator.before_metadata": "driver: every subtask has acknowledged, `_metadata` is about to be written",
    "coordinator.after_metadata": "driver: `_metadata` is durable, no subtask has been told",
}
"""Every failpoint and where it is."""

_HITS: Final = "hits"
_RELEASED: Final = "released"
_POLL_S: Final = 0.01

log = logging.getLogger(f"weir.{__name__}")


class InjectedFailure(RuntimeError):
    """Raised by a failpoint, for a test."""


@dataclass(frozen=True, slots=True)
class Failpoint:
    """One armed failpoint."""

    name: str
    action: Action
    subtask: int | None
    """Only in this subtask; `None` = in any."""
    nth: int
    """The first hit at which it acts, from 1."""
    times: int
    """At how many hits it acts."""
    directory: str
    """Has the count of hits. Once it is removed the failpoint is no longer armed, wherever it was installed."""
    text: str = ""
    """What the failure says."""
    seconds: float = 0.0
    """How long to stall, or the longest to hold."""

    def to_wire(self) -> list[Any]:
        fields = (self.name, self.action, self.subtask, self.nth, self.times, self.directory, self.text, self.seconds)
        return list(fields)

    @classmethod
    def from_wire(cls, wire: Sequence[Any]) -> Failpoint:
        return cls(*wire)

    @property
    def hits(self) -> int:
        """How often the step has been reached so far."""
        path = Path(self.directory, _HITS)
        return path.stat().st_size if path.exists() else 0

    @property
    def fired(self) -> bool:
        """Whether it has acted."""
        return self.hits >= self.nth

    def release(self) -> None:
        """Let what it holds, now or later, go on."""
        Path(self.directory, _RELEASED).touch()


_installed: dict[str, list[Failpoint]] = {}


def hit(name: str, subtask: int | None = None) -> None:
    """The step `name` (one of `KNOWN`) is reached.

    Raises:
        InjectedFailure: a test wants it to fail here.
    """
    if _installed and name in _installed:
        for point in _installed[name]:
            if point.subtask is None or point.subtask == subtask:
                _count_and_act(point, subtask)


def install(wire: Sequence[Sequence[Any]]) -> None:
    """Arm exactly these (from `active`) in this process."""
    points: dict[str, list[Failpoint]] = {}
    for each in wire:
        point = Failpoint.from_wire(each)
        points.setdefault(point.name, []).append(point)
    _installed.clear()
    _installed.update(points)


def active() -> list[list[Any]]:
    """What is armed in this process, as a value that msgpack can carry; empty outside of tests."""
    return [point.to_wire() for points in _installed.values() for point in points]


def _count_and_act(point: Failpoint, subtask: int | None) -> None:
    try:
        with Path(point.directory, _HITS).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(b".")
            file.flush()
            n = file.tell()
    except FileNotFoundError:
        return  # disarmed in the meantime
    if not point.nth <= n < point.nth + point.times:
        return
    log.warning("failpoint %s: %s at hit %d (subtask %s, pid %d)", point.name, point.action, n, subtask, os.getpid())
    match point.action:
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        case "fail":
            raise InjectedFailure(point.text)
        case "stall":
            time.sleep(point.seconds)
        case "hold":
            _hold(point)


def _hold(point: Failpoint) -> None:
    deadline = time.monotonic() + point.seconds
    while Path(point.directory).exists() and not Path(point.directory, _RELEASED).exists():
        if time.monotonic() >= deadline:
            raise InjectedFailure(f"failpoint {point.name} was held for {point.seconds:g} s and not released")
        time.sleep(_POLL_S)
