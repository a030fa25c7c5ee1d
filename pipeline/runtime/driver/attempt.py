"""One attempt to run the job: the driver's side, from taking ownership to the last subtask's leave.

All state is that of one thread, which takes what happens from a queue; sockets, Spark and storage work beside it and
put their results there.
"""

from __future__ import annotations

import functools
import logging
import pickle
import queue
import time
from array import array
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from checkpoint.committing import ReleaseEpoch, ReleaseNew, RestoredCommits
from checkpoint.coordination import coordinator_events as events
from checkpoint.coordination.coordinator_events import FailureReason
from checkpoint.in_flight.replay import ReplayTracker
from checkpoint.in_flight.runs import Origin
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.metadata import OperatorSnapshot
from checkpoint.storage.probe import finish_probe
from pipeline.errors import PipelineError
from pipeline.graph import StepKind, Vertex
from pipeline.runtime import error_text
from pipeline.runtime.auth import new_secret
from pipeline.runtime.deployment import Contact, Deployment, Restored
from pipeline.runtime.driver.attempt_context import Answer, AttemptContext, CheckpointRequest, NotTriggered, Progress
from pipeline.runtime.driver.checkpoints import DriverCheckpoints
from pipeline.runtime.driver.failures import AttemptFailed, FirstCause, Sign
from pipeline.runtime.driver.peers import Peer, Peers
from pipeline.runtime.driver.placement import Slot, place, wish
from pipeline.runtime.driver.restore_plan import restored_for, without_pending
from pipeline.runtime.driver.server import ControlServer
from pipeline.runtime.driver.spark_job import SparkJob, SparkJobFailed
from pipeline.runtime.driver.waits import THE_JOB
from pipeline.runtime.in_flight import ask_custom_partitioners, in_flight_for, must_replay, same_topology
from pipeline.runtime.liveness import Liveness
from pipeline.runtime.subtask.process import run_subtask
from pipeline.runtime.typed_values import to_value
from pipeline.runtime.wire import ControlConnection, Message

_LOG = logging.getLogger(f"weir.{__name__}")
_CANCEL_WAIT = 10.0
_GONE = (
    "It said nothing: it was killed (by the system, for want of memory?), it crashed, or code in it called os._exit. "
    "What it printed is in the output of the executor."
)
_COMMITTING = "commits what was restored"
_CANCEL_AGAIN = 1.0
"""A cancel that comes before Spark knows the job goes unheard, so it is repeated."""


class Attempt:
    """Runs until the job has finished.

    Raises (from `run`):
        AttemptFailed: with the first cause.
    """

    def __init__(self, context: AttemptContext, progress: Progress):
        self._c = context
        self._plan = context.plan
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._progress = progress
        # By way of the inbox: what the peer said before it went comes first.
        self._peers = Peers(context.plan, lambda connection, reason: self._inbox.put(("lost", connection, reason)))
        self._arriving: dict[ControlConnection, str] = {}
        """Processes that have connected and are not ready yet, by how they call themselves."""
        self._limits = context.spec.limits
        self._liveness: Liveness[ControlConnection] = Liveness(context.plan.subtasks, self._limits, time.monotonic())
        self._spilled: dict[FileHandle, Mapping[str, Any]] = {}
        """State of the restored checkpoint that was too large for `_metadata`, by file; until all are deployed."""
        self._restored_id = context.restored.id if context.restored else 0
        self._from = f"{context.restored.kind.noun} {self._restored_id}" if context.restored else "nothing"
        terminal = [
            subtask
            for vertex in self._plan.vertices
            if not self._plan.outputs_of(vertex.index)
            for subtask in vertex.subtasks
        ]
        replays = context.restored is not None and must_replay(context.restored, self._plan)
        self._replay = ReplayTracker(terminal, replays)
        self._checkpoints = DriverCheckpoints(
            context,
            self._peers,
            progress,
            self._inbox,
            on_failed=lambda message: self._fail(message, Sign.OWN_WORD),
            on_final=self._on_final,
            replaying=lambda: self._replay.replaying,
        )
        self._sinks = {
            step.id: list(vertex.subtasks)
            for vertex in self._plan.vertices
            for step in vertex.steps
            if step.kind is StepKind.SINK
        }
        self._commits = RestoredCommits(self._sinks)
        self._committed: dict[tuple[int, str], int] = {}
        self._final_id: int | None = None
        self._quiescing = self._finishing = False
        self._cause = FirstCause()
        self._cancelled = False
        self._spark_ended = False
        self._secret = new_secret()
        self._server = ControlServer(
            context.host,
            self._secret,
            self._limits,
            lambda connection, name: self._inbox.put(("connected", connection, name)),
            lambda connection, message: self._inbox.put(("message", connection, message)),
            lambda connection, reason: self._inbox.put(("lost", connection, reason)),
        )

    # -- from other threads -------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """End the attempt."""
        self._inbox.put(("cancel",))

    def request_checkpoint(self, request: CheckpointRequest, answer: Answer) -> None:
        """Take a checkpoint; `answer` gets its id once it is complete, or an error."""
        self._inbox.put(("checkpoint", request, answer))

    # -- run ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        c = self._c
        self._server.start(pickle.dumps(c.spec))
        job = SparkJob(
            c.spark,
            self._plan.subtasks,
            functools.partial(run_subtask, Contact(self._server.address, self._limits.vanished)),
            self._secret,
            f"Weir: {c.spec.pipeline}, attempt {c.ownership.attempt}, from {self._from}",
            lambda error: self._inbox.put(("spark", error)),
        )
        job.start()
        try:
            self._checkpoints.clean_up(void=False)
            self._loop()
        except BaseException:
            self._progress.failed_at = self._cause.first_at or time.monotonic()
            raise
        finally:
            self._stop(job)

    def _loop(self) -> None:
        next_heartbeat = time.monotonic()
        while True:
            now = time.monotonic()
            cause = self._cause.settled(now)
            if cause is not None:
                raise cause
            # Spark may tell of the end before the last subtask's own word has arrived: a close that failed counts.
            said_goodbye = self._spark_ended and all(peer.closed for peer in self._peers)
            if self._finishing and said_goodbye and self._cause.failure is None:
                return
            self._checkpoints.tell(events.Tick())
            if now >= next_heartbeat:
                next_heartbeat = now + self._limits.pace
                if not self._finishing:  # else they leave, one sooner than another
                    self._checkpoints.send_heartbeat()
                self._look_for_life(now)
            wake = [next_heartbeat]
            wake += [t for t in (self._checkpoints.next_deadline(now), self._cause.due_at) if t is not None]
            try:
                item = self._inbox.get(timeout=max(0.001, min(wake) - now))
            except queue.Empty:
                continue
            self._handle(*item)

    def _handle(self, kind: str, *args: Any) -> None:
        match kind:
            case "connected":
                connection, name = args
                self._arriving[connection] = name
                self._liveness.connected(connection, time.monotonic())
            case "message":
                connection, message = args
                self._on_message(connection, message)
            case "lost":
                connection, reason = args
                self._on_lost(connection, reason)
            case "spark":
                self._on_spark_end(args[0])
            case "finalised":
                self._checkpoints.finalised(*args)
            case "deleted":
                self._checkpoints.deleted(args[0])
            case "fenced":
                self._fail(args[0], Sign.OWN_WORD, permanent=True)
            case "checkpoint":
                self._checkpoints.request(*args)
            case "cancel":
                self._cancelled = True
                raise AttemptFailed("cancelled", permanent=True)
            case _:
                raise AssertionError(f"unknown item {kind!r}")

    def _stop(self, job: SparkJob) -> None:
        """End whatever still runs; returns when Spark's job has ended and its processes have left, so that the next
        attempt finds the slots free."""
        self._checkpoints.tell(events.JobEnding())
        # A subtask that comes up only now finds nobody.
        self._server.stop_listening()
        self._peers.broadcast("cancel", job_over=self._cancelled)
        self._await_end(job)
        self._server.close()
        self._checkpoints.close()
        self._c.waits.forget([THE_JOB, *map(self._peers.name, self._peers)])

    def _await_end(self, job: SparkJob) -> None:
        """Subtasks leave on their own; Spark is asked at once, too, since one of them may be gone, not up yet, or held
        by user code, whose process Spark ends after 2 s."""
        deadline = time.monotonic() + _CANCEL_WAIT
        next_cancel = 0.0
        while not (self._spark_ended and all(peer.gone for peer in self._peers)):
            now = time.monotonic()
            if now >= deadline:
                left = [self._peers.name(peer) for peer in self._peers if not peer.gone]
                _LOG.warning(
                    "%g s after the end of the attempt, Spark's job %s; processes not gone: %s",
                    _CANCEL_WAIT,
                    "has ended" if self._spark_ended else "has not ended",
                    ", ".join(left) or "none",
                )
                return
            if not self._spark_ended and now >= next_cancel:
                job.cancel()
                next_cancel = now + _CANCEL_AGAIN
            try:
                item = self._inbox.get(timeout=min(deadline, now + _CANCEL_AGAIN) - now)
            except queue.Empty:
                continue
            match item:
                case ("lost", connection, _):
                    peer = self._peers.get(connection)
                    if peer is not None:
                        peer.gone = True
                case ("spark", _):
                    self._spark_ended = True
                case ("message", connection, {"type": "committed"} as message):
                    peer = self._peers.get(connection)
                    if peer is not None:
                        self._note_commit(peer, message)
                case ("checkpoint", request, answer):
                    self._checkpoints.await_answer(request, answer)
                case _:
                    pass  # a report to an attempt that is over

    def refuse_requests(self) -> None:
        """Tell those who wait for a checkpoint that none will come; once `run` has ended and nobody can ask more."""
        error = RuntimeError("the attempt ended before the checkpoint was complete")
        self._checkpoints.refuse_requests(error)
        while True:
            try:
                item = self._inbox.get_nowait()
            except queue.Empty:
                return
            if item[0] == "checkpoint":
                item[2](NotTriggered(str(error)))

    # -- failures -----------------------------------------------------------------------------------------------

    def _fail(self, message: str, sign: Sign, permanent: bool = False, damaged: str | None = None) -> None:
        self._cause.note(AttemptFailed(message, permanent, damaged), sign, time.monotonic())

    def _on_lost(self, connection: ControlConnection, reason: str) -> None:
        phase = self._liveness.phase(connection)
        self._liveness.left(connection)
        peer = self._peers.get(connection)
        if peer is None:
            if name := self._arriving.pop(connection, None):
                self._fail(f"the process {name} is gone before it was ready ({reason})", Sign.LOST)
            return
        peer.gone = True
        if peer.closed:
            return
        name = self._peers.name(peer)
        last = f"\nThe last that is known of it: it {phase}." if phase else ""
        self._fail(f"subtask {name} is gone (process {peer.pid} on {peer.host}: {reason}){last}\n{_GONE}", Sign.LOST)

    def _look_for_life(self, now: float) -> None:
        """Give up who is silent for too long, and who doesn't come; tell of what takes long."""
        found = self._liveness.look(now, lambda connection: connection.heard_at)
        for connection in found.silent:
            self._on_lost(connection, f"not heard of for {self._limits.silent:g} s, though its host answers")
        here, wanted = len(self._peers), self._plan.subtasks
        if found.waited >= self._limits.start:
            raise AttemptFailed(
                f"only {here} of {wanted} subtasks came up, and none for {found.waited:.0f} s; "
                "look into the executors' logs, check that they reach "
                f"{self._server.address[0]}:{self._server.address[1]}, and that no other job of this Spark session "
                "holds the slots"
            )
        waits = [(f"{self._name_of(one.who)}, which {one.what}", now - one.since) for one in found.slow]
        if found.waited >= self._limits.told:
            waits.append((f"{wanted - here} of {wanted} processes, which Spark has not brought up", found.waited))
        self._c.waits.report(THE_JOB, waits)

    def _name_of(self, connection: ControlConnection) -> str:
        peer = self._peers.get(connection)
        return self._peers.name(peer) if peer is not None else f"the process {self._arriving[connection]}"

    def _on_spark_end(self, error: SparkJobFailed | None) -> None:
        self._spark_ended = True
        if error is not None:
            self._fail(f"the Spark job failed: {error}", Sign.SPARK, permanent=error.permanent)
        elif not self._finishing:
            self._fail("the Spark job ended before the pipeline did", Sign.SPARK)

    # -- messages -----------------------------------------------------------------------------------------------

    def _on_message(self, connection: ControlConnection, message: Message) -> None:
        kind = message["type"]
        if kind == "hello":
            self._on_hello(connection, message)
            return
        peer = self._peers.get(connection)
        if kind == "failed":
            self._on_failed(peer, message)
            return
        if peer is None:
            _LOG.warning("a connection said %r before hello; ignored", kind)
            return
        match kind:
            case "phase":
                self._liveness.entered(connection, message["phase"], time.monotonic())
            case "running":
                self._on_running(peer, message)
            case "taken":
                self._checkpoints.tell(
                    events.SnapshotTaken(message["id"], peer.subtask, message["span"], message["busy"])
                )
            case "ack":
                self._checkpoints.acknowledge(message["id"], peer.subtask, message["snapshot"], message["statistics"])
            case "decline":
                reason = FailureReason.ASYNC if message["asynchronous"] else FailureReason.DECLINED
                text = f"{self._peers.name(peer)}: {message['message']}"
                self._checkpoints.tell(events.Declined(message["id"], peer.subtask, text, reason))
            case "ask":
                self._checkpoints.tell(events.CheckpointAsked(message["last_barrier"]))
            case "ended":
                peer.ended = True
                if all(p.ended for p in self._peers):
                    self._checkpoints.tell(events.AllInputEnded())
            case "replayed_here":
                if self._replay.arrived(peer.subtask):
                    self._end_replay()
            case "quiet":
                peer.quiet = True
                if all(p.quiet for p in self._peers):
                    self._finishing = True
                    self._peers.broadcast("finish")
            case "committed":
                self._on_committed(peer, message)
            case "epoch_committed":
                self._release(self._commits.done(message["step"], peer.subtask, message["epoch"]))
            case "metrics":
                name = self._peers.name(peer)
                self._progress.metrics[name] = message["metrics"]
                self._c.waits.report(name, message["metrics"]["waits"])
                if (waits := message["metrics"]["waitingMs"] > 0) != peer.waits:
                    peer.waits = waits
                    self._checkpoints.tell(events.WaitsOutside(peer.subtask, waits))
            case "closed":
                name = self._peers.name(peer)
                peer.closed = True
                self._liveness.left(connection)
                self._progress.metrics[name] = message["metrics"]
                self._c.waits.forget([name])
            case _:
                raise AssertionError(f"unknown control message {kind!r}")

    def _on_failed(self, peer: Peer | None, message: Message) -> None:
        name = message["where"]
        if peer is not None:
            peer.closed = True
            self._liveness.left(peer.connection)
            name = self._peers.name(peer)
        text = f"subtask {name} failed: {message['message']}"
        if message["step"] is not None:
            text += f"\nin step {message['step']!r}"
        if message["traceback"]:
            text += "\n" + message["traceback"]
        sign = {"peer": Sign.LOST_PEER, "cancelled": Sign.SPARK}.get(message["kind"], Sign.OWN_WORD)
        # Once a newer checkpoint is complete, whatever is damaged may be its own: the next restore will tell.
        damaged = message["message"] if message["kind"] == "damaged" and not self._checkpoints.completed_one else None
        self._fail(text, sign, permanent=message["kind"] == "permanent", damaged=damaged)

    def _on_hello(self, connection: ControlConnection, message: Message) -> None:
        peer = Peer(
            connection,
            message["partition"],
            message["host"],
            message["pid"],
            (message["address"][0], message["address"][1]),
            Slot(message["folder"], frozenset((id, epoch, subtask) for id, epoch, subtask in message["copies"])),
        )
        del self._arriving[connection]
        self._peers.add(peer)
        self._liveness.ready(connection, time.monotonic())
        if len(self._peers) == self._plan.subtasks:
            self._deploy()

    def _deploy(self) -> None:
        """All processes are up: give each its place."""
        c = self._c
        if c.probe is not None:
            try:
                finish_probe(c.storage, c.probe, [str(peer.partition) for peer in self._peers])
            except StorageError as error:
                raise AttemptFailed(str(error), permanent=c.spec.first_attempt) from error
        assigned = self._ask_custom_partitioners()
        restored = [
            self._restored_for(vertex, subtask - vertex.first_subtask, assigned)
            for vertex in self._plan.vertices
            for subtask in vertex.subtasks
        ]
        peers = sorted(self._peers, key=lambda peer: peer.partition)
        for subtask, partition in enumerate(place([peer.slot for peer in peers], [wish(one) for one in restored])):
            peer = peers[partition]
            self._peers.place(peer, subtask)
            self._progress.pids[self._peers.name(peer)] = peer.pid
        addresses = {peer.subtask: peer.address for peer in self._peers}
        unchanged = c.restored is not None and same_topology(c.restored, self._plan)
        for subtask, one in enumerate(restored):
            deployment = Deployment(
                subtask=subtask,
                peers=addresses,
                lineage=c.lineage,
                restored_checkpoint=self._restored_id,
                restored_from=(c.restored_storage.uri, c.restored_storage.pipeline),
                rewind=c.rewind,
                ignore_earlier_output=c.ignore_earlier_output,
                fork=c.restored is not None and c.restored.pipeline != c.spec.pipeline,
                allow_unclaimed=c.allow_unclaimed,
                replay=self._replay.replaying,
                same_topology=unchanged,
                restore=one,
            )
            self._peers.send_to(subtask, "deploy", deployment=to_value(deployment))
        self._spilled.clear()
        now = self._progress.deployed_at = time.monotonic()
        self._progress.start.begin("restore", now)
        _LOG.info("job %s: %d subtasks are up; they open, and restore %s", c.spec.pipeline, len(restored), self._from)

    def _ask_custom_partitioners(self) -> Mapping[Origin, array[int]]:
        c = self._c
        if c.restored is None:
            return {}
        try:
            return ask_custom_partitioners(c.restored, self._plan, c.restored_storage)
        except DamagedFile as error:
            raise AttemptFailed(str(error), damaged=str(error)) from error
        except StorageError as error:
            raise AttemptFailed(str(error)) from error
        except Exception as error:
            told = f"restoring in-flight data failed: {error_text.summary(error)}\n{error_text.trace(error)}"
            raise AttemptFailed(told) from error

    def _restored_for(self, vertex: Vertex, index: int, assigned: Mapping[Origin, array[int]]) -> Restored:
        c = self._c
        if c.restored is None:
            return Restored()
        most = c.spec.max_parallelism
        try:
            restored = restored_for(vertex, index, c.restored, most, self._load_state, c.allow_unclaimed)
            if not c.claimed:
                restored = without_pending(restored, markers=c.restored.pipeline == c.spec.pipeline)
            return replace(restored, in_flight=in_flight_for(vertex, index, c.restored, self._plan, most, assigned))
        except DamagedFile as error:
            raise AttemptFailed(str(error), damaged=str(error)) from error
        except StorageError as error:
            raise AttemptFailed(str(error)) from error
        except PipelineError as error:
            raise AttemptFailed(f"{type(error).__name__}: {error}", permanent=True) from error

    def _load_state(self, snapshot: OperatorSnapshot) -> Mapping[str, Any]:
        """The state of a step in an old subtask. Every new subtask asks for it, so a file is read once for all."""
        handle = snapshot.state_file
        if handle is None:
            return snapshot.state
        if handle not in self._spilled:
            self._spilled[handle] = self._c.restored_storage.unspill(snapshot).state
        return self._spilled[handle]

    def _on_running(self, peer: Peer, message: Message) -> None:
        peer.running = True
        self._liveness.entered(peer.connection, None, time.monotonic())
        if message["highest_checkpoint"]:
            self._checkpoints.tell(events.IdSeen(message["highest_checkpoint"]))
        for step, epochs in message["restored_epochs"].items():
            self._release(self._commits.opened(step, peer.subtask, epochs))
        if all(p.running for p in self._peers) and self._progress.running_at is None:
            now = self._progress.running_at = time.monotonic()
            self._progress.start.run(now)
            _LOG.info(
                "job %s: running from %s after %s", self._c.spec.pipeline, self._from, self._progress.start.in_words()
            )
            if self._c.commit_only:
                for peer in self._peers:
                    self._liveness.entered(peer.connection, _COMMITTING, time.monotonic())
                self._finish_if_settled()
                return
            self._checkpoints.send_heartbeat()  # sources begin with it
            self._checkpoints.tell(events.SubtasksRunning())

    def _end_replay(self) -> None:
        for vertex in self._plan.vertices:
            if vertex.is_source:
                for subtask in vertex.subtasks:
                    self._peers.send_to(subtask, "replayed")

    def _release(self, actions: list[ReleaseEpoch | ReleaseNew]) -> None:
        for action in actions:
            match action:
                case ReleaseEpoch(sink, epoch):
                    for subtask in self._sinks[sink]:
                        self._peers.send_to(subtask, "release_epoch", step=sink, epoch=epoch)
                case ReleaseNew(sink):
                    for subtask in self._sinks[sink]:
                        self._peers.send_to(subtask, "release_new", step=sink)
        if self._c.commit_only:
            self._finish_if_settled()

    def _finish_if_settled(self) -> None:
        """Of a job that was stopped: once everything restored is committed, everybody may leave."""
        if self._progress.running_at is not None and self._commits.settled and not self._quiescing:
            self._quiesce()

    def _quiesce(self) -> None:
        """The job has ended. Nobody leaves before all know, or a neighbour would take it for a failure."""
        self._quiescing = True
        self._peers.broadcast("quiesce")

    def _note_commit(self, peer: Peer, message: Message) -> None:
        self._committed[peer.subtask, message["step"]] = message["id"]
        sinks = [(subtask, step) for step, subtasks in self._sinks.items() for subtask in subtasks]
        self._progress.committed = min(self._committed.get(sink, 0) for sink in sinks)

    def _on_committed(self, peer: Peer, message: Message) -> None:
        self._note_commit(peer, message)
        if self._progress.first_commit_at is None and message["records"]:
            self._progress.first_commit_at = time.monotonic()
        self._finish_if_done()

    def _on_final(self, id: int) -> None:
        self._final_id = id
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        """Once the last checkpoint is complete and committed by every sink, everybody may leave."""
        final = self._final_id
        if final is None or self._quiescing:
            return
        if all(
            self._committed.get((subtask, step), 0) >= final
            for step, subtasks in self._sinks.items()
            for subtask in subtasks
        ):
            self._quiesce()
