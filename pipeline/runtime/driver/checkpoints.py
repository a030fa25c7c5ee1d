"""The driver's side of checkpoints: carries out what the coordinator decides.

Used by the attempt's thread. Metadata is written and files are deleted by threads beside it, whose results come back
through the attempt's inbox.
"""

from __future__ import annotations

import functools
import logging
import queue
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final

from checkpoint import failpoints
from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination import coordinator_events as events
from checkpoint.coordination.coordinator import CheckpointCoordinator
from checkpoint.coordination.coordinator_events import FailureReason
from checkpoint.counted import counted
from checkpoint.gate import gate_events
from checkpoint.storage import fencing, savepoints
from checkpoint.storage.metadata import CheckpointMetadata, SubtaskSnapshot, VertexSnapshot
from checkpoint.storage.savepoints import SavepointFolder
from pipeline.runtime.driver import expired_checkpoints
from pipeline.runtime.driver.attempt_context import (
    Answer,
    AttemptContext,
    CheckpointRequest,
    NotTriggered,
    Progress,
)
from pipeline.runtime.driver.attempt_events import AttemptEvent, Fenced, Finalised
from pipeline.runtime.driver.checkpoint_deletion import CheckpointDeletion
from pipeline.runtime.driver.peers import Peers
from pipeline.runtime.driver.status.checkpoint_stats import in_words
from pipeline.runtime.protocol import Aborted, BarrierOptions, BarrierPassed, Completed, EndInput, Heartbeat, Trigger
from pipeline.runtime.reach import reached_from_sources
from pipeline.runtime.system import SYSTEM, System
from pipeline.runtime.topology_changes import snapshot_edges
from pipeline.version import VERSION

_LOG = logging.getLogger(f"weir.{__name__}")
_WRITE_WAIT: Final = 10.0
"""Seconds."""


class _Phase(Enum):
    COLLECTING = auto()
    """Snapshots of subtasks are missing."""
    WRITING = auto()
    """`_metadata` is being written: whatever happens, it may become durable."""
    GIVEN_UP = auto()
    """It has failed while `_metadata` was being written, and the writer has not reported yet."""


@dataclass(slots=True)
class _Checkpoint:
    """From the trigger until it is complete or has failed, and nobody writes its `_metadata` any more."""

    id: int
    kind: CheckpointKind
    trigger_time: float
    """Seconds since 1970."""
    tokens: tuple[str, ...]
    """The requests that it was triggered for."""
    folder: SavepointFolder | None
    """Where a savepoint goes; `None` for a checkpoint."""
    options: BarrierOptions
    replaying: bool
    """Triggered while restored in-flight data was on its way through the job."""
    input_ended: bool
    """Triggered when all input had ended, or was told to."""
    snapshots: dict[int, SubtaskSnapshot] = field(default_factory=dict)
    """Snapshots of the subtasks that have acknowledged."""
    phase: _Phase = _Phase.COLLECTING


@dataclass(slots=True)
class _Waiting:
    """Somebody who has asked for a checkpoint and has no answer yet."""

    request: CheckpointRequest
    answer: Answer
    triggered: bool = False


class DriverCheckpoints:
    """Triggers, finalises, notifies and deletes for one attempt."""

    def __init__(
        self,
        context: AttemptContext,
        peers: Peers,
        progress: Progress,
        inbox: queue.SimpleQueue[AttemptEvent],
        on_failed: Callable[[str], None],
        on_final: Callable[[int], None],
        replaying: Callable[[], bool],
        system: System = SYSTEM,
    ):
        """
        Args:
            inbox: where `Finalised`, `Deleted` and `Fenced` are put, for the attempt to hand on.
            on_failed: more checkpoints in a row failed than are tolerated; the message says how.
            on_final: the final checkpoint is complete.
            replaying: whether restored in-flight data is still on its way through the job.
        """
        self._c = context
        self._plan = context.plan
        self._peers = peers
        self._progress = progress
        self._inbox = inbox
        self._on_failed = on_failed
        self._on_final = on_final
        self._replaying = replaying
        self._system = system
        self._edges = snapshot_edges(context.plan)
        self._coordinator = CheckpointCoordinator(
            context.spec.checkpoints,
            context.plan.subtasks,
            context.first_checkpoint,
            tuple(ref.id for ref in context.start.retained),
            reached_from_sources(context.plan),
        )
        self._input_ended = False
        """All input has ended, or was told to: it may have ended in some of the subtasks, and event time with it."""
        self._checkpoints: dict[int, _Checkpoint] = {}
        self._waiting: dict[str, _Waiting] = {}
        """By the request's token."""
        self._subsumed: list[str] = []
        """Tokens of requests that the completion which is being handled answers, too."""
        self.completed_one = False
        """Whether a checkpoint of this attempt has completed."""
        restored = context.start.restored
        self.newest: int | None = None if restored is None else restored.id
        """Id of the newest complete checkpoint, or of what was restored; `None`: there is none."""
        self._writers = system.executor(2, "weir-finalise")
        self._writes: list[Future[None]] = []
        """Writes of `_metadata`, those that have ended included, up to the next completion."""
        self._deletion = CheckpointDeletion(context, inbox, system)

    # -- what the attempt tells ---------------------------------------------------------------------------------

    def next_deadline(self, now: float) -> float | None:
        return self._coordinator.next_deadline(now)

    def tell(self, event: events.Event) -> None:
        """Let the coordinator know, and do what it asks for."""
        now = self._system.monotonic()
        self._input_ended |= isinstance(event, events.AllInputEnded)
        for action in self._coordinator.handle(event, now):
            self._act(action, now)

    def acknowledge(self, id: int, subtask: int, snapshot: SubtaskSnapshot, statistics: Mapping[str, Any]) -> None:
        """A subtask's snapshot has arrived."""
        one = self._checkpoints.get(id)
        if one is not None and one.phase is _Phase.COLLECTING:
            one.snapshots[subtask] = snapshot
            if one.folder is None:
                self._c.start.shared.register(id, snapshot.all_files())
            self._c.history.acknowledged(id, self._plan.subtask_name(subtask), statistics, self._system.monotonic())
        self.tell(events.Acknowledged(id, subtask))

    def request(self, request: CheckpointRequest, answer: Answer) -> None:
        """A user asks for a checkpoint or savepoint."""
        self.await_answer(request, answer)
        if request.stop:
            self.tell(events.StopRequested(request.kind, request.token, request.drain))
        else:
            self.tell(events.CheckpointRequested(request.kind, request.token))

    def await_answer(self, request: CheckpointRequest, answer: Answer) -> None:
        """Remember who asked, so that `refuse_requests` answers at the latest."""
        self._waiting[request.token] = _Waiting(request, answer)

    def refuse_requests(self, error: Exception) -> None:
        """Tell those who wait for a checkpoint that none will come."""
        waiting, self._waiting = self._waiting, {}
        for one in list(waiting.values()):
            unused = one.request.target is not None and not one.triggered
            one.answer(NotTriggered(str(error)) if unused else error)

    def send_heartbeat(self) -> None:
        if self._progress.running_at is not None and not self._c.commit_only:
            now = self._system.monotonic()
            special = [one for one in self._in_progress.values() if one.options != BarrierOptions()]
            options = {one.id: one.options for one in special}
            for peer in self._peers:
                heartbeat = self._coordinator.heartbeat(now, peer.subtask)
                # One that is about to be triggered is no news before its trigger, which says where it goes.
                known = tuple(each for each in heartbeat.in_progress if each[0] in self._in_progress)
                self._peers.send(peer, Heartbeat(replace(heartbeat, in_progress=known), options))

    def finalised(self, id: int, error: str | None) -> None:
        """`Finalised` has come."""
        self._writes = [write for write in self._writes if not write.done()]
        if self._checkpoints[id].phase is _Phase.GIVEN_UP:
            del self._checkpoints[id]
        self.tell(events.Finalised(id) if error is None else events.FinaliseFailed(id, error))

    def deleted(self, id: int) -> None:
        """`Deleted` has come."""
        self.tell(events.DeletionDone(id))

    def clean_up(self, void: bool) -> None:
        """Have the deleter delete what earlier attempts left."""
        self._deletion.left_by_earlier_attempts(void)

    def close(self) -> None:
        """Wait for `_metadata` that is being written, within bounds; leave deletions to the next attempt."""
        hung = self._system.wait(self._writes, _WRITE_WAIT)
        if hung:
            left = counted(len(hung), "checkpoint is", "checkpoints are")
            _LOG.warning("the storage hangs: %s left half written", left)
        self._writers.shutdown(wait=False, cancel_futures=True)
        self._deletion.close()
        self._c.history.attempt_ended(self._system.monotonic())

    # -- what the coordinator asks for --------------------------------------------------------------------------

    def _act(self, action: events.Action, now: float) -> None:
        match action:
            case events.TriggerCheckpoint(id, kind, tokens, stop):
                self._trigger(id, kind, tokens, stop, now)
            case events.BarrierPassed(id, sources, start_delay, mean_span, busy_span):
                passed = BarrierPassed(gate_events.BarrierPassed(id, start_delay, mean_span, busy_span))
                for subtask in sources:
                    self._peers.send_to(subtask, passed)
            case events.EndInput():
                self._input_ended = True
                self._peers.send_to_sources(EndInput())
            case events.FinaliseCheckpoint(id):
                one = self._checkpoints[id]
                one.phase = _Phase.WRITING
                self._writes.append(self._writers.submit(self._finalise, one, self._metadata(one, now)))
            case events.NotifyComplete(id):
                self._complete(action, now)
            case events.NotifyAborted(id, _, reason, message, missing):
                if reason is FailureReason.EXPIRED:
                    who = expired_checkpoints.explain(self._plan, self._progress.metrics, id, missing)
                    message = "; ".join([message, *who])
                self._abort(id, reason, message, now)
            case events.RejectRequest(token, message):
                self._answer((token,), NotTriggered(message))
            case events.DeleteCheckpoint(id):
                self._deletion.checkpoint(id, self._c.start.shared.discard(id))
            case events.DiscardAcknowledgement(id, subtask):
                self._deletion.private_files(id, [subtask])
            case events.FailJob(message):
                self._on_failed(message)

    def _trigger(self, id: int, kind: CheckpointKind, tokens: tuple[str, ...], stop: bool, now: float) -> None:
        folder: SavepointFolder | None = None
        unaligned = False
        for token in tokens:
            self._waiting[token].triggered = True
            folder = self._waiting[token].request.target  # a savepoint has one token
            unaligned |= self._waiting[token].request.unaligned
        options = BarrierOptions(None if folder is None else folder.uri, stop, unaligned)
        wall = self._system.time()
        self._checkpoints[id] = _Checkpoint(
            id, kind, wall, tokens, folder, options, replaying=self._replaying(), input_ended=self._input_ended
        )
        if folder is not None:
            self._deletion.savepoint_begins(id, folder)
        self._c.history.triggered(id, kind, now, wall)
        self._peers.send_to_sources(Trigger(id, kind, options))

    def _complete(self, done: events.NotifyComplete, now: float) -> None:
        id = done.checkpoint_id
        self._c.history.completed(id, now)
        self._progress.start.reach("checkpoint", now)
        row = self._c.history.row(id)
        if row is not None:
            _LOG.info("job %s: %s", self._c.spec.pipeline, in_words(row))
        tokens = self._checkpoints.pop(id).tokens
        self._deletion.savepoint_ends(id)
        self._peers.broadcast(Completed(id, done.kind, done.commits))
        self.send_heartbeat()
        subsumed, self._subsumed = self._subsumed, []
        self._answer((*subsumed, *tokens), id)
        if done.kind is not CheckpointKind.SAVEPOINT:
            self.newest = id
            if not self.completed_one:
                self.completed_one = True
                self.clean_up(void=True)
        if done.last:
            self._on_final(id)

    def _abort(self, id: int, reason: FailureReason, text: str, now: float) -> None:
        if not reason.tolerated:
            _LOG.warning("job %s: checkpoint %d failed: %s", self._c.spec.pipeline, id, text)
        if reason is FailureReason.SUBSUMED:
            self._c.history.subsumed(id, now)
        else:
            self._c.history.failed(id, text, now)
        one = self._checkpoints[id]
        half_written = one.phase is _Phase.WRITING and reason is not FailureReason.FINALISE
        if half_written:
            one.phase = _Phase.GIVEN_UP
        else:
            del self._checkpoints[id]
        self._peers.broadcast(Aborted(id))
        self.send_heartbeat()
        self._deletion.savepoint_ends(id)
        # What it staged joins the next checkpoint, so its files must not go with it, even if it is durable after all
        # and deleted as such.
        self._c.start.shared.forget(id)
        answered = functools.partial(self._answer, one.tokens, RuntimeError(f"checkpoint {id} failed: {text}"))
        if reason is FailureReason.SUBSUMED:
            self._subsumed += one.tokens
        elif one.folder is None or half_written:
            answered()
        if half_written:
            return  # what its writer reports decides what is deleted
        if one.folder is not None:
            # Its folder can be used again only then. (Cancelled or done, this is called.)
            self._deletion.checkpoint(id).add_done_callback(lambda _: answered())
        elif reason is FailureReason.FINALISE:
            # It may be durable all the same, so it goes as a complete one would: `_metadata` first.
            self._deletion.checkpoint(id)
        else:
            self._deletion.private_files(id, list(one.snapshots))

    @property
    def _in_progress(self) -> Mapping[int, _Checkpoint]:
        return {id: one for id, one in self._checkpoints.items() if one.phase is not _Phase.GIVEN_UP}

    def _answer(self, tokens: Iterable[str], result: int | Exception) -> None:
        """Tell those who asked; also in the deleter's thread."""
        for token in tokens:
            if one := self._waiting.pop(token, None):
                one.answer(result)

    # -- completing ---------------------------------------------------------------------------------------------

    def _metadata(self, one: _Checkpoint, now: float) -> CheckpointMetadata:
        c = self._c
        lineage, parent = c.start.lineage
        config = c.spec.checkpoints
        return CheckpointMetadata(
            id=one.id,
            attempt=c.start.ownership.attempt,
            kind=one.kind,
            pipeline=c.spec.pipeline,
            lineage=lineage,
            lineage_parent=parent,
            max_parallelism=c.spec.max_parallelism,
            weir_version=c.spec.versions["Weir"],
            trigger_time=one.trigger_time,
            duration=c.history.duration(one.id, now),
            options={"weir": VERSION, "interval": config.interval_s, "retained": config.retained},
            vertices={
                vertex.name: VertexSnapshot(tuple(one.snapshots[subtask] for subtask in vertex.subtasks))
                for vertex in self._plan.vertices
            },
            edges=self._edges,
            replaying=one.replaying,
            ended=one.input_ended,
        )

    def _finalise(self, one: _Checkpoint, metadata: CheckpointMetadata) -> None:
        """In a thread of its own: make the checkpoint durable."""
        c = self._c
        try:
            failpoints.hit("coordinator.before_metadata")
            check = functools.partial(fencing.check, c.start.storage, c.start.ownership)
            if one.folder is not None:
                savepoints.write(c.start.storage, one.folder, metadata, one.options.stop, check)
            else:
                check()
                c.start.storage.write_metadata(one.id, c.start.ownership.attempt, metadata)
            failpoints.hit("coordinator.after_metadata")
        except fencing.Fenced as error:
            self._inbox.put(Fenced(str(error)))
        except Exception as error:
            self._inbox.put(Finalised(one.id, f"{type(error).__name__}: {error}"))
        else:
            self._inbox.put(Finalised(one.id, None))
