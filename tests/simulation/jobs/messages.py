"""What drivers and subtasks say to each other: some of it gets lost, and all of it is watched."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from virtual.scheduler import Process, Scheduler

from checkpoint.checkpoint_kind import CheckpointKind
from jobs.graph import Graph
from jobs.options import Options
from pipeline.runtime import protocol
from pipeline.runtime.deployment import Deployment
from pipeline.runtime.protocol import FailureKind

_MAY_BE_LOST = (protocol.Trigger, protocol.BarrierPassed, protocol.Completed, protocol.Aborted, protocol.Heartbeat)
"""Heartbeats tell sources the same as triggers, sinks learn of the next completion; the others come again."""
_MAY_COME = (FailureKind.CANCELLED, FailureKind.PEER)
_MAY_HAPPEN = ("the virtual storage has failed", "FencedProducer", "MarkerLost", "has a newer owner")
"""How subtasks fail where processes die and storage fails."""
_CAUSES = ("window", "waits for operators", "waits for storage")
"""Of closed gates."""


class SubtaskFailed(AssertionError):
    """A subtask has failed, and nothing that goes wrong on purpose is the reason."""


class TooSoon(AssertionError):
    """A checkpoint was triggered within the min pause."""


class Declined(AssertionError):
    """A subtask has given a checkpoint up, though nothing goes wrong."""


class Incomplete(AssertionError):
    """A checkpoint failed since it refers to files that aren't in its folder, though nobody deletes any."""


class Messages:
    def __init__(
        self,
        scheduler: Scheduler,
        options: Options,
        graph: Graph,
        reached: set[str],
        happened: Callable[[str], None],
    ) -> None:
        """
        Args:
            reached: what has come about is added to it, in words.
            happened: told of moments at which a crash is of interest; it may kill.
        """
        self._scheduler = scheduler
        self._options = options
        self._graph = graph
        self._reached = reached
        self._happened = happened
        self.may_be_lost = True
        self.asked_to_stop = False
        """The user has asked the job to stop."""
        self._driver: Process | None = None
        self._completed_at = -math.inf
        self._triggered: set[int] = set()

    def begin(self, driver: Process) -> None:
        """From now on what this driver says counts, and what is said to it."""
        self._driver = driver
        self.asked_to_stop = False
        self._completed_at = -math.inf
        self._triggered = set()

    def to_subtask(self, driver: Process, message: Any) -> bool:
        """A driver sends a message; whether it gets lost."""
        if driver is not self._driver:
            return False
        now = self._scheduler.now
        match message:
            case protocol.Completed(id, kind):
                if kind is CheckpointKind.CHECKPOINT and id in self._triggered:
                    self._triggered.discard(id)
                    self._completed_at = now
                self._happened("complete")
            case protocol.Deploy(deployment):
                self._note_restore(deployment)
            case protocol.ReplayEnded():
                self._happened("replayed")
            case protocol.Trigger(id, kind, options) if kind is CheckpointKind.CHECKPOINT and id not in self._triggered:
                self._triggered.add(id)
                pause = now - self._completed_at
                if pause < self._options.min_pause - 1e-6 and not options.stop:
                    self._fail(TooSoon(f"checkpoint {id} is triggered {pause:.3f} s after the end of the one before"))
        return self._gets_lost(message)

    def _gets_lost(self, message: Any) -> bool:
        lost = self._options.lost
        if not lost or not self.may_be_lost or not isinstance(message, _MAY_BE_LOST):
            return False
        if self.asked_to_stop and isinstance(message, protocol.Completed | protocol.Aborted):
            return False  # of the job's last checkpoint nothing else tells
        if isinstance(message, protocol.Completed) and message.kind is CheckpointKind.FINAL:
            return False
        gets_lost = self._scheduler.rng.random() < lost
        if gets_lost:
            self._reached.add(f"loses {type(message).__name__}")
        return gets_lost

    def to_driver(self, driver: Process, message: Any) -> bool:
        """A subtask sends a message; whether it gets lost."""
        if driver is not self._driver:
            return False  # to one whose job was taken over, and whatever happens to that
        match message:
            case protocol.SnapshotTaken():
                self._happened("snapshot")
            case protocol.Acknowledged(_, _, statistics):
                if statistics["unaligned"] and self._options.alignment:
                    self._reached.add("makes a barrier unaligned")
            case protocol.Metrics(metrics):
                self._note_metrics(metrics)
            case protocol.Declined(id, reason) if self._options.nothing_goes_wrong:
                self._fail(Declined(f"checkpoint {id}: {reason}"))
            case protocol.Failed():
                self._scheduler.log("failed", message.where, message.message.splitlines()[0])
                if message.kind not in _MAY_COME and not any(name in message.message for name in _MAY_HAPPEN):
                    self._fail(SubtaskFailed(f"{message.message}\n{message.traceback}"))
        return False

    def answered(self, result: Exception) -> None:
        """A user's request for a checkpoint has failed."""
        # An older driver that lives deletes what it finds, until it hears of the newer one.
        if "DamagedFile" in str(result) and not self._options.takeovers:
            self._fail(Incomplete(str(result)))

    def _fail(self, error: AssertionError) -> None:
        """End the run with the error, whoever's code runs now."""
        if self._scheduler.error is None:
            self._scheduler.error = error

    def _note_restore(self, deployment: Deployment) -> None:
        restore = deployment.restore
        if restore.in_flight.files:
            self._reached.add("restores what was in flight")
        if deployment.replay:
            self._reached.add("replays")
        if any(self._graph.steps[id].timer is not None for id in restore.keyed_state):
            self._reached.add("restores keyed timers")
        if any(held.pending for held in restore.sinks.values()):
            self._reached.add("commits what was restored")

    def _note_metrics(self, metrics: Mapping[str, Any]) -> None:
        reason = metrics.get("sourceGateReason") or ""
        self._reached |= {f"closes a gate: {cause}" for cause in _CAUSES if cause in reason}
        if metrics.get("eventTimeIdle"):
            self._reached.add("is idle")
