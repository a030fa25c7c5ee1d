"""The driver's side of an attempt: the production coordinator, and what it asks for carried out virtually."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from checkpoint.committing import ReleaseEpoch, ReleaseNew, RestoredCommits
from checkpoint.coordination import coordinator_events as events
from checkpoint.coordination.coordinator import CheckpointCoordinator
from checkpoint.coordination.coordinator_events import FailureReason
from checkpoint.coordination.trigger_schedule import TriggerSchedule
from checkpoint.gate.gate_events import BarrierPassed
from checkpoint.in_flight.replay import ReplayTracker
from checkpoint.kinds import CheckpointKind
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.shared_files import SharedFiles
from simulated.graph import Kind
from simulated.storage import Checkpoint, SubtaskState

if TYPE_CHECKING:
    from simulated.attempt import Attempt
    from simulated.subtask import Subtask

_HEARTBEAT = 1.0


class _Impatient(TriggerSchedule):
    """A fault: checkpoints that sources ask for don't wait."""

    @property
    def ready_at(self) -> float:
        return -math.inf if self._asked else super().ready_at


class JobFailed(Exception):
    """The attempt is over; the next one restarts."""


class TooSoon(AssertionError):
    """A checkpoint was triggered within the min pause."""


class Master:
    def __init__(self, attempt: Attempt, retained: list[CheckpointRef]) -> None:
        self._attempt = attempt
        self._scheduler = attempt.scheduler
        self._storage = attempt.storage
        options = attempt.options
        sources = [s for s in attempt.subtasks if s.step.kind is Kind.SOURCE]
        sinks = [s for s in attempt.subtasks if s.step.kind is Kind.SINK]
        self.coordinator = CheckpointCoordinator(
            options.checkpoints,
            len(attempt.subtasks),
            1 + attempt.storage.newest_id(attempt.restored_id),
            tuple(ref.id for ref in retained),
            attempt.reached_from_sources(),
        )
        if "asks_ignore_the_min_pause" in options.faults:
            self.coordinator._schedule = _Impatient(options.interval, options.min_pause)
        self._refs = {ref.id: ref for ref in retained}
        self.shared = SharedFiles()
        for ref in attempt.storage.good():
            self.shared.register(ref.id, attempt.storage.checkpoints[ref].files())
        terminal = [s.number for s in attempt.subtasks if not s.output_channels]
        self.replay = ReplayTracker(terminal, attempt.drains)
        self._sources = sources
        names: dict[str, list[int]] = {}
        for sink in sinks:
            names.setdefault(sink.step.id, []).append(sink.index)
        self._restored_commits = RestoredCommits(names)
        self._unopened = {sink.number for sink in sinks}
        self.running = False
        self._reports: dict[int, deque[tuple[Any, ...]]] = {s.number: deque() for s in attempt.subtasks}
        """From every subtask, in order."""
        self._inbox: deque[events.Event] = deque()
        """From the threads that write and delete."""
        self._acks: dict[int, dict[int, SubtaskState]] = {}
        self._draining: dict[int, bool] = {}
        """Checkpoints that were triggered before everything restored had drained."""
        self._ended: set[int] = set()
        self._deletions: deque[tuple[CheckpointRef, list[FileHandle]]] = deque()
        self._deleting_until: float | None = None
        self._next_heartbeat = 0.0
        self._ended_at = -math.inf
        """When an ordinary checkpoint last completed."""
        self.declined = 0
        """Checkpoints in progress that a subtask gave up."""
        self.completed: list[tuple[int, CheckpointKind]] = []

    # -- actors ---------------------------------------------------------------------------------------------------

    def receive(self, number: int) -> bool:
        """Take a subtask's next report."""
        reports = self._reports[number]
        if not reports:
            return False
        self._on_report(self._attempt.subtasks[number], reports.popleft())
        return True

    def report(self, subtask: Subtask, letter: tuple[Any, ...]) -> None:
        self._reports[subtask.number].append(letter)

    def read_inbox(self) -> bool:
        if not self._inbox:
            return False
        self._tell(self._inbox.popleft())
        return True

    def tick(self) -> bool:
        due = self.coordinator.next_deadline(self._scheduler.now)
        if due is None or due > self._scheduler.now:
            return False
        self._tell(events.Tick())
        return True

    def beat(self) -> bool:
        if not self.running or self._scheduler.now < self._next_heartbeat:
            return False
        self._next_heartbeat = self._scheduler.now + _HEARTBEAT
        self._send_heartbeat()
        return True

    def delete(self) -> bool:
        """The deleter: one checkpoint at a time, its metadata first."""
        now = self._scheduler.now
        if not self._deletions:
            return False
        if self._deleting_until is None:
            seconds = self._attempt.options.deletion_seconds
            self._deleting_until = now + self._scheduler.rng.expovariate(1.0) * seconds
            self._storage.checkpoints.pop(self._deletions[0][0], None)
            return True
        if now < self._deleting_until:
            return False
        self._deleting_until = None
        ref, unused = self._deletions.popleft()
        for handle in unused:
            self._storage.segments.pop(handle.path, None)
        self._inbox.append(events.DeletionDone(ref.id))
        return True

    def deadline(self) -> float | None:
        due = [self._next_heartbeat] if self.running else []
        if self._deletions and self._deleting_until is not None:
            due.append(self._deleting_until)
        if (deadline := self.coordinator.next_deadline(self._scheduler.now)) is not None:
            due.append(deadline)
        return min(due, default=None)

    def request_savepoint(self) -> bool:
        if not self.running or self._scheduler.rng.random() > 0.02:
            return False
        self._tell(events.CheckpointRequested(CheckpointKind.SAVEPOINT, "user"))
        return True

    # -- what subtasks tell ---------------------------------------------------------------------------------------

    def _on_report(self, subtask: Subtask, letter: tuple[Any, ...]) -> None:
        match letter:
            case ("taken", n, span, busy):
                self._tell(events.SnapshotTaken(n, subtask.number, span, busy))
            case ("acknowledged", n, state):
                self._acks.setdefault(n, {})[subtask.number] = state
                files = [f for of_writer in state.pending.values() for one in of_writer for f in one.files]
                self.shared.register(n, files)
                self._tell(events.Acknowledged(n, subtask.number))
            case ("declined", n, message):
                self.declined += any(one.checkpoint_id == n for one in self.coordinator.statistics().in_progress)
                self._tell(events.Declined(n, subtask.number, message))
            case ("async failed", n):
                self._tell(events.Declined(n, subtask.number, "storage", FailureReason.ASYNC))
            case ("asks", last_barrier):
                self._tell(events.CheckpointAsked(last_barrier))
            case ("opened", highest, epochs):
                self._tell(events.IdSeen(highest))
                self._unopened.discard(subtask.number)
                self._release(self._restored_commits.opened(subtask.step.id, subtask.index, epochs))
                if "new_epochs_not_held_back" in self._attempt.options.faults:
                    self._attempt.release_early(subtask)
                if not self._unopened:
                    self.running = True
                    self._tell(events.SubtasksRunning())
                    self._send_heartbeat()
            case ("epoch out", epoch):
                self._release(self._restored_commits.done(subtask.step.id, subtask.index, epoch))
            case ("replayed",):
                if self.replay.arrived(subtask.number):
                    for source in self._sources:
                        source.mail.append(("replayed",))
            case ("ended",):
                self._ended.add(subtask.number)
                if len(self._ended) == len(self._attempt.subtasks):
                    self._tell(events.AllInputEnded())

    def _release(self, actions: list[ReleaseEpoch | ReleaseNew]) -> None:
        for action in actions:
            match action:
                case ReleaseEpoch(sink, epoch):
                    letter: tuple[Any, ...] = ("release epoch", epoch)
                case ReleaseNew(sink):
                    letter = ("release new",)
            for subtask in self._attempt.subtasks:
                if subtask.step.id == sink:
                    subtask.mail.append(letter)

    # -- what the coordinator asks for ----------------------------------------------------------------------------

    def _tell(self, event: events.Event) -> None:
        for action in self.coordinator.handle(event, self._scheduler.now):
            self._scheduler.log("coordinator", action)
            self._act(action)

    def _act(self, action: events.Action) -> None:
        match action:
            case events.TriggerCheckpoint(n, kind):
                if kind is CheckpointKind.CHECKPOINT:
                    self._check_min_pause(n)
                self._draining[n] = self.replay.replaying and "draining_not_marked" not in self._attempt.options.faults
                for source in self._sources:
                    self._send(source, ("trigger", n, kind), may_be_lost=True)
            case events.BarrierPassed(n, sources, start_delay, mean_span, busy_span):
                passed = BarrierPassed(n, start_delay, mean_span, busy_span)
                for source in self._sources:
                    if source.number in sources:
                        self._send(source, ("passed", passed), may_be_lost=True)
            case events.FinaliseCheckpoint(n, kind):
                self._finalise(n, kind)
            case events.NotifyComplete(n, kind):
                self.completed.append((n, kind))
                if kind is not CheckpointKind.SAVEPOINT:
                    self._ended_at = self._scheduler.now
                self._forget(n)
                self._attempt.happened("complete")
                for subtask in self._attempt.subtasks:
                    self._send(subtask, ("complete", n, kind), may_be_lost=kind is not CheckpointKind.FINAL)
                self._send_heartbeat()
            case events.NotifyAborted(n):
                for subtask in self._attempt.subtasks:
                    self._send(subtask, ("aborted", n), may_be_lost=True)
                self._send_heartbeat()
                acked = self._forget(n)
                self.shared.forget(n)
                if "aborted_segments_deleted" in self._attempt.options.faults:
                    self._delete_segments(acked)
            case events.DiscardAcknowledgement(n):
                acked = self._forget(n)
                self.shared.forget(n)
                if "aborted_segments_deleted" in self._attempt.options.faults:
                    self._delete_segments(acked)
            case events.DeleteCheckpoint(n):
                ref = self._refs.get(n, CheckpointRef(n, self._attempt.ownership.attempt))
                self._deletions.append((ref, self.shared.discard(n)))
            case events.FailJob(message):
                raise JobFailed(message)
            case events.RejectRequest():
                pass

    def _check_min_pause(self, n: int) -> None:
        pause = self._scheduler.now - self._ended_at
        if pause < self._attempt.options.min_pause:
            raise TooSoon(f"checkpoint {n} is triggered {pause:.3f} s after the end of the one before")

    def _send(self, subtask: Subtask, letter: tuple[Any, ...], may_be_lost: bool) -> None:
        if not may_be_lost or self._scheduler.rng.random() >= self._attempt.lost:
            subtask.mail.append(letter)

    def _send_heartbeat(self) -> None:
        for source in self._sources:
            heartbeat = self.coordinator.heartbeat(self._scheduler.now, source.number)
            self._send(source, ("heartbeat", heartbeat), may_be_lost=True)

    def _forget(self, n: int) -> dict[int, SubtaskState]:
        return self._acks.pop(n, {})

    def _delete_segments(self, acked: dict[int, SubtaskState]) -> None:
        """A fault: what aborted checkpoints refer to under `shared/` goes with them."""
        for state in acked.values():
            own = [c for committables in state.pending.values() for c in committables]
            for one in own:
                for handle in one.files:
                    self._storage.segments.pop(handle.path, None)

    def _finalise(self, n: int, kind: CheckpointKind) -> None:
        attempt = self._attempt
        states: dict[str, list[SubtaskState]] = {}
        for subtask in attempt.subtasks:
            states.setdefault(subtask.step.id, []).append(self._acks[n][subtask.number])
        ref = CheckpointRef(n, attempt.ownership.attempt)
        checkpoint = Checkpoint(ref, kind, attempt.parallelism, self._draining[n], states)
        self._refs[n] = ref

        def done(succeeded: bool) -> None:
            if succeeded or self._scheduler.rng.random() < 0.3:  # an error may come after the rename
                self._storage.checkpoints[ref] = checkpoint
            attempt.happened("durable")
            if succeeded:
                self._inbox.append(events.Finalised(n))
                return
            # As in production: it may be durable all the same, so it is deleted as a complete one would be.
            self.shared.forget(n)
            self._storage.checkpoints.pop(ref, None)
            self._inbox.append(events.FinaliseFailed(n, "storage"))

        self._storage.write(attempt.options.storage_seconds, attempt.failing, done)
