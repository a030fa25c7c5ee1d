"""The checkpoint coordinator: when checkpoints are triggered, what has completed and what has failed.

Pure: events in, actions out, the clock passed in (`checkpoint.coordination.coordinator_events`). A checkpoint goes

    triggered → acknowledged by every subtask → finalised (`_metadata` is durable) → complete

and is *resolved* by its completion or by being given up. "Ordinary" below are all but savepoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.config import CheckpointConfig
from checkpoint.coordination import coordinator_events as events
from checkpoint.coordination.failure_manager import CheckpointFailureManager
from checkpoint.coordination.pending_checkpoint import CheckpointInProgress, PendingCheckpoint
from checkpoint.coordination.retention import Retention
from checkpoint.coordination.trigger_schedule import TriggerSchedule
from checkpoint.counted import counted

JOB_ENDING = "the attempt to run the job is ending"
"""Why checkpoints are given up that are in progress then."""


@dataclass(frozen=True, slots=True)
class CoordinatorStatistics:
    """What a coordinator has, for tests and debugging."""

    in_progress: tuple[CheckpointInProgress, ...]
    """By ascending id."""
    retained: tuple[int, ...]
    """Ids of the completed checkpoints that are kept, oldest first."""
    deleting: tuple[int, ...]
    """Ids whose deletion was asked for and has neither ended nor been given up."""
    consecutive_failures: int
    """Ordinary checkpoints that have failed since the last one that completed."""
    span_scale: float
    """See `Heartbeat`."""


@dataclass(slots=True)
class _Stop:
    """The user's wish that the job ends behind a last checkpoint."""

    kind: CheckpointKind
    token: str
    drain: bool
    checkpoint_id: int | None = None
    """The id of the last checkpoint, once it is triggered."""


class CheckpointCoordinator:
    """Coordinates the checkpoints of one attempt of a job.

    Completions of ordinary checkpoints are notified in the order of their ids. Two `_metadata` may be in the making at
    once; if the newer one is durable first, the older checkpoint is subsumed, and what its writer still leaves behind
    is deleted when it reports.

    Savepoints stand apart: they don't count in `max_concurrent`, the tolerable failures, the retained ones and the
    span's scale, don't restart the min pause, and neither subsume nor are subsumed.

    When the job is to stop, nothing else is triggered from the moment that its last checkpoint may be: at once, or, if
    it is drained, when all input has ended. Should that checkpoint fail, the job goes on (one that is drained: to its
    final checkpoint).
    """

    def __init__(
        self,
        config: CheckpointConfig,
        subtasks: Sequence[int] | int,
        first_id: int,
        retained: Sequence[int] = (),
        reach: Mapping[int, frozenset[int]] | None = None,
    ) -> None:
        """
        Args:
            config: when, how often and how many at once; how many are kept and may fail.
            subtasks: the subtasks that have to acknowledge, or their number.
            first_id: id of the first checkpoint.
            retained: ids of the completed checkpoints that are in the storage, oldest first.
            reach: the source subtasks that are told when barriers have passed, see `Passage`.

        Raises:
            ValueError: there is no subtask, or `first_id` repeats an id.
        """
        self._config = config
        self._subtasks = frozenset(range(subtasks) if isinstance(subtasks, int) else subtasks)
        if not self._subtasks:
            raise ValueError("a job without subtasks has no checkpoints")
        if first_id <= max(retained, default=0):
            raise ValueError(
                f"the first checkpoint's id must be larger than those retained ({retained}), not {first_id}"
            )
        self._reach = reach or {}
        self._next_id = first_id
        self._now = -math.inf
        """Last clock value; threads read the clock apart, so it is never taken back."""
        self._running = False
        """Every subtask runs."""
        self._closed = ""
        """Why there are no more triggers, in words; empty as long as there are."""
        self._ended = False
        """`JobEnding` has come: nothing is in progress, and nothing is deleted any more."""
        self._schedule = TriggerSchedule(config.interval_s, config.min_pause_s, early=config.first == "output")
        self._retention = Retention(config.retained, config.timeout_s, retained)
        self._pending: dict[int, PendingCheckpoint] = {}
        """Triggered and not resolved, by ascending id."""
        self._stop: _Stop | None = None
        """From the request to the failure or completion of the last checkpoint."""
        self._input_ended = False
        self._waiting: set[int] = set()
        """Subtasks that wait for what lies outside of the job."""
        self._failures = CheckpointFailureManager(config.tolerable_failures)
        self._actions: list[events.Action] = []
        """What the event in progress has asked for so far."""

    # -- what can be read -----------------------------------------------------------------------------------------

    def statistics(self) -> CoordinatorStatistics:
        return CoordinatorStatistics(
            in_progress=tuple(p.statistics() for p in self._pending.values()),
            retained=self._retention.kept,
            deleting=self._retention.deleting,
            consecutive_failures=self._failures.in_a_row,
            span_scale=self._failures.span_scale,
        )

    def next_deadline(self, now: float) -> float | None:
        """When to send the next `Tick`, a clock value of at least `now`; `None` if time alone changes nothing."""
        if self._ended:
            return None
        deadlines = [p.expires_at for p in self._pending.values()]
        if self._retention.next_deadline is not None:
            deadlines.append(self._retention.next_deadline)
        waits = not self._stopping and self._obstacle() is None and self._full() is None
        if waits and self._schedule.ready_at < math.inf:
            deadlines.append(self._schedule.ready_at)
        return max(now, min(deadlines)) if deadlines else None

    def heartbeat(self, now: float, subtask: int | None = None) -> events.Heartbeat:
        """The facts at `now`, for that subtask."""
        passed = [] if subtask is None else [(p.checkpoint_id, p.passage.passed(subtask)) for p in self._ordinary]
        return events.Heartbeat(
            in_progress=tuple((p.checkpoint_id, p.kind) for p in self._pending.values()),
            span_scale=self._failures.span_scale,
            held_back=self._held_back(now),
            passed=tuple((n, one.start_delay, one.mean_span, one.busy_span) for n, one in passed if one is not None),
        )

    # -- events ---------------------------------------------------------------------------------------------------

    def handle(self, event: events.Event, now: float) -> list[events.Action]:
        """What to do about `event` at clock value `now`, in this order.

        Raises:
            ValueError: the event can't be: a request for a final checkpoint, or `_metadata` reported as written that
                was never to be written.
        """
        self._now = now = max(self._now, now)
        self._actions = []
        self._retention.give_up(now)
        if not isinstance(event, events.Finalised):  # what is durable is complete, however late the report is
            self._expire(now)
        match event:
            case events.SubtasksRunning():
                if not self._running:
                    self._running = True
                    self._schedule.start(now)
                    if self._stop is not None and self._stop.drain:
                        self._actions.append(events.EndInput())
            case events.OutputBegan():
                self._schedule.output_begins(now)
            case events.IdSeen(checkpoint_id):
                self._next_id = max(self._next_id, checkpoint_id + 1)
            case events.SnapshotTaken(checkpoint_id, subtask, span, busy):
                self._snapshot_taken(checkpoint_id, subtask, span, busy, now)
            case events.Acknowledged(checkpoint_id, subtask):
                self._snapshot_taken(checkpoint_id, subtask, None, False, now)
                self._acknowledged(checkpoint_id, subtask)
            case events.Declined(checkpoint_id, subtask, message, reason):
                if pending := self._pending.get(checkpoint_id):
                    self._give_up(pending, reason, f"subtask {subtask}: {message}", now)
            case events.WaitsOutside(subtask, waits):
                self._waits_outside(subtask, waits)
            case events.Finalised(checkpoint_id):
                self._finalised(checkpoint_id, now)
            case events.FinaliseFailed(checkpoint_id, message):
                self._finalise_failed(checkpoint_id, message, now)
            case events.DeletionDone(checkpoint_id):
                self._retention.deleted(checkpoint_id)
            case events.CheckpointAsked(last_barrier):
                self._schedule.ask(last_barrier)
            case events.CheckpointRequested(kind, token):
                self._requested(kind, token)
            case events.StopRequested(kind, token, drain):
                self._stop_requested(kind, token, drain)
            case events.AllInputEnded():
                self._input_ended = True
                self._schedule.end_input()
            case events.JobEnding():
                self._end(now)
            case events.Tick():
                pass
        self._expire(now)
        self._trigger(now)
        return self._actions

    def _waits_outside(self, subtask: int, waits: bool) -> None:
        if not waits:
            self._waiting.discard(subtask)
            return
        self._waiting.add(subtask)
        for pending in self._pending.values():
            pending.held_up = True

    def _snapshot_taken(self, checkpoint_id: int, subtask: int, span: int | None, busy: bool, now: float) -> None:
        if pending := self._pending.get(checkpoint_id):
            self._actions += pending.snapshot_taken(subtask, span, busy, now)

    def _acknowledged(self, checkpoint_id: int, subtask: int) -> None:
        pending = self._pending.get(checkpoint_id)
        if pending is None or not pending.acknowledges(subtask):
            if not self._retention.may_be_durable(checkpoint_id):
                self._actions.append(events.DiscardAcknowledgement(checkpoint_id, subtask))
        elif (finalise := pending.acknowledged(subtask)) is not None:
            self._actions.append(finalise)

    def _finalised(self, checkpoint_id: int, now: float) -> None:
        pending = self._pending.get(checkpoint_id)
        if pending is None:
            self._writer_reported(checkpoint_id, now)
            return
        pending.require_acknowledged("is reported as finalised")
        if pending.ordinary:
            for older in [p for p in self._ordinary if p.checkpoint_id < checkpoint_id]:
                self._give_up(older, events.FailureReason.SUBSUMED, f"checkpoint {checkpoint_id} is complete", now)
        del self._pending[checkpoint_id]
        stops = self._stop is not None and self._stop.checkpoint_id == checkpoint_id
        last = stops or pending.kind is CheckpointKind.FINAL
        self._actions.append(events.NotifyComplete(checkpoint_id, pending.kind, last))
        if last:
            self._close("the job's last checkpoint is complete")
        if not pending.ordinary:
            self._retention.savepoint_completed(checkpoint_id)
            return
        self._failures.completed()
        self._schedule.completed(now)
        self._actions += self._retention.add(checkpoint_id, now)

    def _finalise_failed(self, checkpoint_id: int, message: str, now: float) -> None:
        pending = self._pending.get(checkpoint_id)
        if pending is None:
            self._writer_reported(checkpoint_id, now)
        else:
            pending.require_acknowledged("was not to be finalised")
            self._give_up(pending, events.FailureReason.FINALISE, message, now)

    def _writer_reported(self, checkpoint_id: int, now: float) -> None:
        """The writer of `_metadata` of a checkpoint given up meanwhile has ended, with an error or without."""
        # After the job's end it stays: it is a sound checkpoint, and the next attempt may already restore it.
        if self._retention.writer_reported(checkpoint_id) and not self._ended:
            self._actions.append(self._retention.delete(checkpoint_id, now))

    def _requested(self, kind: CheckpointKind, token: str) -> None:
        if kind is CheckpointKind.FINAL:
            raise ValueError("a final checkpoint can't be requested: it is taken when all input has ended")
        if self._closed:
            self._actions.append(events.RejectRequest(token, f"no {kind} is taken any more: {self._closed}"))
        else:
            self._schedule.request(kind, token)

    def _stop_requested(self, kind: CheckpointKind, token: str, drain: bool) -> None:
        if kind is CheckpointKind.CHECKPOINT:
            raise ValueError("a job stops with a final checkpoint or a savepoint")
        if self._closed:
            self._actions.append(events.RejectRequest(token, f"the job can't be stopped any more: {self._closed}"))
        elif self._stop is not None:
            self._actions.append(events.RejectRequest(token, "the job is stopping already"))
        else:
            self._stop = _Stop(kind, token, drain)
            if drain and self._running:
                self._actions.append(events.EndInput())

    @property
    def _stopping(self) -> bool:
        """Only the job's last checkpoint is triggered from now on."""
        return self._stop is not None and (not self._stop.drain or self._input_ended)

    def _expire(self, now: float) -> None:
        for pending in list(self._pending.values()):
            if why := pending.expiry(now):
                self._give_up(pending, events.FailureReason.EXPIRED, why, now)

    def _give_up(self, pending: PendingCheckpoint, reason: events.FailureReason, message: str, now: float) -> None:
        del self._pending[pending.checkpoint_id]
        if not pending.missing and reason is not events.FailureReason.FINALISE:
            self._retention.given_up_half_written(pending.checkpoint_id)
        self._actions.append(pending.aborted(reason, message))
        if self._stop is not None and self._stop.checkpoint_id == pending.checkpoint_id:
            self._stop = None
        if not pending.ordinary or reason.tolerated:
            return
        self._schedule.failed(pending.kind, now)
        why = self._failures.failed(pending, reason, message)
        if why is not None and not self._closed:
            self._actions.append(events.FailJob(why))
            self._close("too many checkpoints have failed")

    def _end(self, now: float) -> None:
        for pending in list(self._pending.values()):
            self._give_up(pending, events.FailureReason.CANCELLED, JOB_ENDING, now)
        self._close(JOB_ENDING)
        self._ended = True

    def _close(self, why: str) -> None:
        """No more triggers."""
        self._closed = self._closed or why
        tokens = self._schedule.take_requests()
        if self._stop is not None and self._stop.checkpoint_id is None:
            tokens.append(self._stop.token)
            self._stop = None
        for token in tokens:
            self._actions.append(events.RejectRequest(token, f"no checkpoint is taken any more: {why}"))

    # -- triggers -------------------------------------------------------------------------------------------------

    def _trigger(self, now: float) -> None:
        if self._obstacle() is not None:
            return
        if self._stopping:
            self._trigger_last(now)
        elif self._schedule.next_kind is CheckpointKind.FINAL:
            self._trigger_ordinary(now)
            self._trigger_savepoint(now)
        else:
            self._trigger_savepoint(now)
            self._trigger_ordinary(now)

    def _trigger_savepoint(self, now: float) -> None:
        if self._schedule.savepoint_waits and all(p.ordinary for p in self._pending.values()):
            self._start(CheckpointKind.SAVEPOINT, now, (self._schedule.take_savepoint(),))

    def _trigger_ordinary(self, now: float) -> None:
        if self._full() is None and now >= self._schedule.ready_at:
            self._start(self._schedule.next_kind, now, self._schedule.triggered(self._next_id, now))

    def _trigger_last(self, now: float) -> None:
        stop = self._stop
        assert stop is not None
        if stop.checkpoint_id is not None:
            return
        if stop.kind is CheckpointKind.SAVEPOINT:
            if all(p.ordinary for p in self._pending.values()):
                stop.checkpoint_id = self._next_id
                self._start(stop.kind, now, (stop.token,), stop=True)
        elif self._full() is None:
            stop.checkpoint_id = self._next_id
            tokens = self._schedule.triggered(self._next_id, now)
            self._start(stop.kind, now, (*tokens, stop.token), stop=True)

    def _start(self, kind: CheckpointKind, now: float, tokens: tuple[str, ...], stop: bool = False) -> None:
        n = self._next_id
        self._next_id = n + 1
        timeout, held_up = self._config.timeout_s, bool(self._waiting)
        self._pending[n] = PendingCheckpoint(n, kind, now, timeout, self._subtasks, self._reach, held_up)
        self._actions.append(events.TriggerCheckpoint(n, kind, tokens, stop))

    def _obstacle(self) -> str | None:
        """What holds every trigger back, however long one waits, in words; `None` = nothing."""
        if self._closed:
            return self._closed
        if not self._running:
            return "not every subtask runs yet"
        waiting = len(self._retention.deleting)
        if waiting > self._config.max_concurrent:
            return (
                f"{counted(waiting, 'old checkpoint waits', 'old checkpoints wait')} to be deleted, at most "
                f"{self._config.max_concurrent} may"
            )
        return None

    @property
    def _ordinary(self) -> list[PendingCheckpoint]:
        return [p for p in self._pending.values() if p.ordinary]

    def _full(self) -> str | None:
        """As `_obstacle`, for ordinary checkpoints: whether as many are in progress as may be."""
        running = [str(p.checkpoint_id) for p in self._ordinary]
        if len(running) < self._config.max_concurrent:
            return None
        return f"checkpoints in progress are at their maximum of {self._config.max_concurrent} ({', '.join(running)})"

    def _held_back(self, now: float) -> str | None:
        if self._closed or not self._running:
            return self._obstacle()
        if self._stopping:
            return "the job is stopping"
        if now >= self._schedule.ready_at:
            return self._obstacle() or self._full()
        return self._schedule.put_off(now)
