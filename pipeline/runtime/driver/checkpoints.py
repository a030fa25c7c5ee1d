"""The driver's side of checkpoints: carries out what the coordinator decides.

Used by the attempt's thread. Metadata is written and files are deleted by threads beside it, whose results come back
through the attempt's inbox.
"""

from __future__ import annotations

import functools
import logging
import queue
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

from checkpoint import failpoints
from checkpoint.coordination import coordinator_events as events
from checkpoint.coordination.coordinator import CheckpointCoordinator
from checkpoint.coordination.coordinator_events import FailureReason
from checkpoint.kinds import CheckpointKind
from checkpoint.storage import owners, savepoints
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.metadata import CheckpointMetadata, SubtaskSnapshot, VertexSnapshot
from checkpoint.storage.naming import CheckpointRef, subtask_name
from checkpoint.storage.savepoints import SavepointFolder
from pipeline.runtime.driver.attempt_context import Answer, AttemptContext, CheckpointRequest, NotTriggered, Progress
from pipeline.runtime.driver.checkpoint_stats import in_words
from pipeline.runtime.driver.peers import Peers
from pipeline.runtime.in_flight import snapshot_edges
from pipeline.runtime.reach import reached_from_sources
from pipeline.runtime.subtask.driver_link import heartbeat_to_wire
from pipeline.runtime.subtask.mail import BarrierOptions

_LOG = logging.getLogger(f"weir.{__name__}")
_WRITE_WAIT = 10.0
_HELD = 0.3
"""Seconds; a task thread that is left alone looks around at least five times in one."""


class DriverCheckpoints:
    """Triggers, finalises, notifies and deletes for one attempt."""

    def __init__(
        self,
        context: AttemptContext,
        peers: Peers,
        progress: Progress,
        inbox: queue.SimpleQueue[Any],
        on_failed: Callable[[str], None],
        on_final: Callable[[int], None],
        replaying: Callable[[], bool],
    ):
        """
        Args:
            inbox: where `("finalised", …)`, `("deleted", …)` and `("fenced", …)` are put, for the attempt to hand on.
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
        self._edges = snapshot_edges(context.plan)
        self._coordinator = CheckpointCoordinator(
            context.options,
            context.plan.subtasks,
            context.first_id,
            tuple(ref.id for ref in context.retained),
            reached_from_sources(context.plan),
        )
        self._acks: dict[int, dict[int, SubtaskSnapshot]] = {}
        self._triggered_at: dict[int, float] = {}
        self._triggered_replaying: set[int] = set()
        self._triggered_ended: set[int] = set()
        self._input_ended = False
        self._targets: dict[str, SavepointFolder] = {}
        """Folders of requested savepoints that are not triggered yet, by request."""
        self._savepoints: dict[int, SavepointFolder] = {}
        """Folders of this attempt's savepoints, by id."""
        self._options: dict[int, BarrierOptions] = {}
        """Of checkpoints in progress that aren't ordinary ones."""
        self._spared: list[FileHandle] = []
        """Shared files that no checkpoint needs any more, but a savepoint in progress may still be copying."""
        self._refs: dict[int, CheckpointRef] = {ref.id: ref for ref in context.retained}
        self._finalising: set[int] = set()
        """Checkpoints whose `_metadata` is being written: whatever happens, it may become durable."""
        self._answers: dict[str, Answer] = {}
        """Who waits for a checkpoint, by request."""
        self._requests: dict[int, tuple[str, ...]] = {}
        """By checkpoint id: the requests that it was triggered for."""
        self.completed_one = False
        """Whether a checkpoint of this attempt has completed."""
        self._writes: list[Future[None]] = []
        """Of `_metadata`, those that have ended included, up to the next completion."""
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="weir-finalise")
        self._deleter = ThreadPoolExecutor(1, thread_name_prefix="weir-delete")

    # -- what the attempt tells ---------------------------------------------------------------------------------

    def next_deadline(self, now: float) -> float | None:
        return self._coordinator.next_deadline(now)

    def tell(self, event: events.Event) -> None:
        """Let the coordinator know, and do what it asks for."""
        now = time.monotonic()
        self._input_ended |= isinstance(event, events.AllInputEnded)
        for action in self._coordinator.handle(event, now):
            self._act(action, now)

    def acknowledge(self, id: int, subtask: int, wire: dict[str, Any], statistics: dict[str, Any]) -> None:
        """A subtask's snapshot has arrived."""
        snapshot = SubtaskSnapshot.from_wire(wire)
        self._acks.setdefault(id, {})[subtask] = snapshot
        if id not in self._savepoints:
            self._c.shared.register(id, snapshot.all_files())
        self._c.history.acknowledged(id, self._plan.subtask_name(subtask), statistics, time.monotonic())
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
        self._answers[request.token] = answer
        if request.target is not None:
            self._targets[request.token] = request.target

    def refuse_requests(self, error: Exception) -> None:
        """Tell those who wait for a checkpoint that none will come."""
        answers, self._answers = self._answers, {}
        for token, answer in list(answers.items()):
            answer(NotTriggered(str(error)) if token in self._targets else error)

    def send_heartbeat(self) -> None:
        if self._progress.running_at is not None and not self._c.commit_only:
            now = time.monotonic()
            options = [[id, options.target, options.stop] for id, options in self._options.items()]
            for peer in self._peers:
                heartbeat = self._coordinator.heartbeat(now, peer.subtask)
                # One that is about to be triggered is no news before its trigger, which says where it goes.
                known = tuple(each for each in heartbeat.in_progress if each[0] in self._triggered_at)
                facts = heartbeat_to_wire(replace(heartbeat, in_progress=known))
                self._peers.send(peer, "heartbeat", options=options, **facts)

    def close(self) -> None:
        """Wait for `_metadata` that is being written, within bounds; leave deletions to the next owner."""
        _, hung = wait(self._writes, _WRITE_WAIT)
        if hung:
            _LOG.warning("the storage hangs: %d checkpoints are left half written", len(hung))
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._deleter.shutdown(wait=False, cancel_futures=True)
        self._c.history.attempt_ended(time.monotonic())

    # -- what the coordinator asks for --------------------------------------------------------------------------

    def _act(self, action: events.Action, now: float) -> None:
        match action:
            case events.TriggerCheckpoint(id, kind, tokens, stop):
                self._trigger(id, kind, tokens, stop, now)
            case events.BarrierPassed(id, sources, start_delay, mean_span, busy_span):
                figures = {"start_delay": start_delay, "mean_span": mean_span, "busy_span": busy_span}
                for subtask in sources:
                    self._peers.send_to(subtask, "passed", id=id, **figures)
            case events.EndInput():
                self._tell_sources("end_input")
            case events.FinaliseCheckpoint(id, kind):
                self._finalising.add(id)
                stop = id in self._options and self._options[id].stop
                self._writes.append(self._pool.submit(self._finalise, id, self._metadata(id, kind, now), stop))
            case events.NotifyComplete(id):
                self._complete(action, now)
            case events.NotifyAborted(id, _, reason, message, missing):
                self._abort(id, reason, self._explain(id, reason, message, missing), now)
            case events.RejectRequest(token, message):
                self._answer((token,), NotTriggered(message))
            case events.DeleteCheckpoint(id):
                unused = self._c.shared.discard(id)
                if self._savepoint_in_progress:
                    self._spared += unused
                    unused = []
                self._deleter.submit(self._delete, id, unused)
            case events.DiscardAcknowledgement(id, subtask):
                self._forget(id)
                self._c.shared.forget(id)
                self._discard_private(id, [subtask])
            case events.FailJob(message):
                self._on_failed(message)

    def _trigger(self, id: int, kind: CheckpointKind, tokens: tuple[str, ...], stop: bool, now: float) -> None:
        self._triggered_at[id] = time.time()
        if self._replaying():
            self._triggered_replaying.add(id)
        if self._input_ended:
            self._triggered_ended.add(id)
        self._requests[id] = tokens
        self._c.history.triggered(id, kind, now)
        target: str | None = None
        if kind is CheckpointKind.SAVEPOINT:
            (token,) = tokens
            self._savepoints[id] = self._targets.pop(token)
            target = self._savepoints[id].uri
        if target is not None or stop:
            self._options[id] = BarrierOptions(target, stop)
        self._tell_sources("trigger", id=id, kind=kind.value, target=target, stop=stop)

    def _tell_sources(self, type: str, **fields: Any) -> None:
        for vertex in self._plan.vertices:
            if vertex.is_source:
                for subtask in vertex.subtasks:
                    self._peers.send_to(subtask, type, **fields)

    def _complete(self, done: events.NotifyComplete, now: float) -> None:
        id, savepoint = done.checkpoint_id, done.kind is CheckpointKind.SAVEPOINT
        self._c.history.completed(id, now)
        row = self._c.history.row(id)
        if row is not None:
            _LOG.info("job %s: %s", self._c.spec.pipeline, in_words(row))
        self._forget(id)
        self._peers.broadcast("complete", id=id, kind=done.kind.value, commits=done.commits)
        self.send_heartbeat()
        # Those that it has subsumed are answered with it.
        older = [] if savepoint else [n for n in self._requests if n < id and n not in self._savepoints]
        for n in (*older, id):
            self._answer(self._requests.pop(n, ()), id)
        if not savepoint and not self.completed_one:
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
        self._peers.broadcast("aborted", id=id)
        self.send_heartbeat()
        acknowledged = list(self._forget(id))
        # What it staged joins the next checkpoint, so its files must not go with it, even if it is durable after all
        # and deleted as such.
        self._c.shared.forget(id)
        error = RuntimeError(f"checkpoint {id} failed: {text}")
        if id in self._finalising:
            pass  # what becomes of it decides
        elif reason is FailureReason.FINALISE or id in self._savepoints:
            # A finalised one may be durable all the same, so it goes as a complete one would: `_metadata` first.
            deleted = self._deleter.submit(self._delete, id, [])
            if id in self._savepoints:
                # Its folder can be used again only then. (Cancelled or done, this is called.)
                tokens = self._requests.pop(id, ())
                deleted.add_done_callback(lambda _: self._answer(tokens, error))
        else:
            self._discard_private(id, acknowledged)
        if reason is not FailureReason.SUBSUMED:  # else the newer one answers for it
            self._answer(self._requests.pop(id, ()), error)

    @property
    def _savepoint_in_progress(self) -> bool:
        return any(options.target is not None for options in self._options.values())

    def _forget(self, id: int) -> dict[int, SubtaskSnapshot]:
        self._triggered_at.pop(id, None)
        self._triggered_replaying.discard(id)
        self._triggered_ended.discard(id)
        self._options.pop(id, None)
        if self._spared and not self._savepoint_in_progress:
            spared, self._spared = self._spared, []
            self._deleter.submit(self._guarded, "shared files", lambda: self._delete_shared(spared))
        return self._acks.pop(id, {})

    def _answer(self, tokens: tuple[str, ...], result: int | Exception) -> None:
        """Tell those who asked; also in the deleter's thread."""
        for token in tokens:
            if answer := self._answers.pop(token, None):
                answer(result)

    # -- completing ---------------------------------------------------------------------------------------------

    def _metadata(self, id: int, kind: CheckpointKind, now: float) -> CheckpointMetadata:
        c = self._c
        acks = self._acks[id]
        lineage, parent = c.lineage
        return CheckpointMetadata(
            id=id,
            epoch=c.claim.epoch,
            kind=kind,
            pipeline=c.spec.pipeline,
            lineage=lineage,
            lineage_parent=parent,
            max_parallelism=c.spec.max_parallelism,
            weir_version=c.spec.versions["Weir"],
            trigger_time=self._triggered_at[id],
            duration=c.history.duration(id, now),
            options=c.metadata_options,
            vertices={
                vertex.name: VertexSnapshot(tuple(acks[subtask] for subtask in vertex.subtasks))
                for vertex in self._plan.vertices
            },
            edges=self._edges,
            draining=id in self._triggered_replaying,
            ended=id in self._triggered_ended,
        )

    def _finalise(self, id: int, metadata: CheckpointMetadata, stop: bool) -> None:
        """In the pool: make the checkpoint durable."""
        c = self._c
        try:
            failpoints.hit("coordinator.before_metadata")
            check = functools.partial(owners.check, c.storage, c.claim)
            if id in self._savepoints:
                savepoints.write(c.storage, self._savepoints[id], metadata, stop, check)
            else:
                check()
                c.storage.write_metadata(id, c.claim.epoch, metadata)
            failpoints.hit("coordinator.after_metadata")
        except owners.Fenced as error:
            self._inbox.put(("fenced", str(error)))
        except Exception as error:
            self._inbox.put(("finalised", id, metadata, f"{type(error).__name__}: {error}"))
        else:
            self._inbox.put(("finalised", id, metadata, None))

    def finalised(self, id: int, metadata: CheckpointMetadata, error: str | None) -> None:
        """`("finalised", …)` has come."""
        self._finalising.discard(id)
        self._writes = [write for write in self._writes if not write.done()]
        if error is None:
            self._refs[id] = metadata.ref
            self.tell(events.Finalised(id))
            return
        self.tell(events.FinaliseFailed(id, error))

    # -- deleting -----------------------------------------------------------------------------------------------

    def deleted(self, id: int) -> None:
        """`("deleted", …)` has come."""
        self._refs.pop(id, None)
        self.tell(events.DeletionDone(id))

    def _delete(self, id: int, unused: list[FileHandle]) -> None:
        """In the deleter's thread: a checkpoint that is no longer retained, and the shared files that only it used; or
        a savepoint that failed."""
        c = self._c
        try:
            ref = self._refs.get(id, CheckpointRef(id, c.claim.epoch))
            owners.check(c.storage, c.claim)
            if id in self._savepoints:
                savepoints.discard(c.storage, self._savepoints[id], ref)
            else:
                c.storage.delete_checkpoint(ref)
            self._delete_shared(unused)
        except owners.Fenced as error:
            self._inbox.put(("fenced", str(error)))
        except Exception:
            _LOG.exception("checkpoint %d could not be deleted; what is left of it is for gc", id)
        self._inbox.put(("deleted", id))

    def _delete_shared(self, unused: list[FileHandle]) -> None:
        """In the deleter's thread."""
        for handle in unused:
            owners.check(self._c.storage, self._c.claim)
            self._c.storage.delete_file(handle)

    def _discard_private(self, id: int, subtasks: list[int]) -> None:
        """Delete what subtasks wrote for a checkpoint that won't complete; never anything under `shared/`."""
        c = self._c
        storage = self._savepoints[id].storage if id in self._savepoints else c.storage
        names = [
            subtask_name(step.id, subtask - self._plan.vertex_of(subtask).first_subtask)
            for subtask in subtasks
            for step in self._plan.vertex_of(subtask).steps
        ]

        def discard() -> None:
            owners.check(c.storage, c.claim)
            for name in names:
                storage.delete_private(id, c.claim.epoch, name)

        if names:
            self._deleter.submit(self._guarded, f"files of checkpoint {id}", discard)

    def clean_up(self, void: bool) -> None:
        """Have the deleter delete what older owners left."""
        self._deleter.submit(self._guarded, "what older owners left", lambda: self._c.cleanup.run(void))

    def _guarded(self, what: str, delete: Callable[[], None]) -> None:
        """In the deleter's thread."""
        try:
            delete()
        except owners.Fenced as error:
            self._inbox.put(("fenced", str(error)))
        except Exception as error:
            _LOG.warning("%s could not all be deleted, the rest is for gc: %s", what, error)

    # -- explaining ---------------------------------------------------------------------------------------------

    def _explain(self, id: int, reason: FailureReason, message: str, missing: tuple[int, ...]) -> str:
        """For an expired checkpoint: who held it up."""
        if reason is not FailureReason.EXPIRED:
            return message
        parts = [self._explain_subtask(id, subtask) for subtask in missing[:5]]
        if len(missing) > 5:
            parts.append(f"and {len(missing) - 5} more subtasks")
        return "; ".join([message, *parts, *self._explain_gates(missing)])

    def _explain_gates(self, missing: tuple[int, ...]) -> list[str]:
        """Which sources stand still, beside those that are missing and say so themselves."""
        sources = [subtask for vertex in self._plan.vertices if vertex.is_source for subtask in vertex.subtasks]
        names = [self._plan.subtask_name(subtask) for subtask in sources if subtask not in missing]
        closed = [name for name in names if self._progress.metrics.get(name, {}).get("sourceGateReason")]
        return ["gate closed: " + ", ".join(closed)] if closed else []

    def _explain_subtask(self, id: int, subtask: int) -> str:
        name = self._plan.subtask_name(subtask)
        metrics = self._progress.metrics.get(name, {})
        queued = f"{metrics.get('inFlightBytes') or 0:,.0f} bytes queued"
        held = (metrics.get("heldMs") or 0) / 1000
        gate = metrics.get("sourceGateReason")
        storage = "storage busy" if id in metrics.get("writing", ()) else "storage idle"
        barriers = metrics.get("barriers", {}).get(id)
        if id in metrics.get("writing", ()):
            what = f"{name} is still writing its snapshot"
        elif unsent := metrics.get("unsent", {}).get(id):
            what = f"the barrier of {name} is still queued towards {_listed(unsent)}"
        elif self._plan.vertex_of(subtask).is_source:
            what = f"{name} has not taken the barrier"
        elif uncaptured := metrics.get("uncaptured", {}).get(id):
            what = f"{name} has taken its snapshot and has no barrier from {_listed(uncaptured)}"
        elif barriers is None:
            what = f"{name} has no barrier from any input"
        else:
            what = f"{name} has no barrier from " + ", ".join(self._plan.subtask_name(s) for s in barriers)
        details = [queued]
        if held >= _HELD:
            details.insert(0, f"its operators or the sink's writer have kept the task busy for {held:.1f} s")
        if gate:
            details.append(f"gate closed: {gate}")
        return "; ".join([what, *details, storage])


def _listed(subtasks: list[list[Any]]) -> str:
    return ", ".join(f"{step}[{index}]" for step, index in subtasks)
