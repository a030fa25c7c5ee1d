"""One attempt to run the job: the driver's side, from taking ownership to the last subtask's leave.

All state is that of one thread, which takes what happens from a queue; sockets, Spark and storage work beside it and
put their results there. `handle` takes an event and `tick` a clock value; neither blocks.
"""

from __future__ import annotations

import logging
import pickle
import queue
from collections.abc import Callable
from typing import assert_never

from checkpoint.coordination import coordinator_events as events
from checkpoint.coordination.coordinator_events import FailureReason
from checkpoint.counted import counted
from checkpoint.in_flight.replay import ReplayTracker
from pipeline.runtime import protocol
from pipeline.runtime.auth import new_secret
from pipeline.runtime.driver.attempt_context import Answer, AttemptContext, CheckpointRequest, NotTriggered, Progress
from pipeline.runtime.driver.attempt_end import AttemptEnd
from pipeline.runtime.driver.attempt_events import (
    AttemptEvent,
    CancelRequested,
    CheckpointRequestedByUser,
    Connected,
    Deleted,
    Fenced,
    Finalised,
    Lost,
    Misunderstood,
    ProcessConnection,
    QueryAsked,
    Received,
    SparkEnded,
)
from pipeline.runtime.driver.attempt_services import ATTEMPT_SERVICES, AttemptServices, Processes
from pipeline.runtime.driver.checkpoints import DriverCheckpoints
from pipeline.runtime.driver.commits import DriverCommits
from pipeline.runtime.driver.failures import AttemptFailed, FirstCause, Sign, own_word
from pipeline.runtime.driver.peers import Peer, Peers
from pipeline.runtime.driver.process_liveness import ProcessLiveness
from pipeline.runtime.driver.spark.spark_job import SparkJobFailed
from pipeline.runtime.driver.start.deploying import deployments
from pipeline.runtime.driver.start.placement import Slot
from pipeline.runtime.driver.status.waits import THE_JOB
from pipeline.runtime.topology_changes import must_replay

_LOG = logging.getLogger(f"weir.{__name__}")
_COMMITTING = "commits what was restored"


class Attempt:
    """Runs until the job has finished.

    Raises (from `run`):
        AttemptFailed: with the first cause.
    """

    def __init__(self, context: AttemptContext, progress: Progress, services: AttemptServices = ATTEMPT_SERVICES):
        self._c = context
        self._plan = context.plan
        self._services = services
        self._system = services.system
        self._inbox: queue.SimpleQueue[AttemptEvent] = self._system.queue()
        self._progress = progress
        # By way of the inbox: what the peer said before it went comes first.
        self._peers = Peers(context.plan, lambda connection, reason: self._inbox.put(Lost(connection, reason)))
        self._limits = context.spec.limits
        now = self._system.monotonic()
        self._next_heartbeat = now
        restored = context.start.restored
        self._from = f"{restored.kind.noun} {restored.id}" if restored else "nothing"
        terminal = [
            subtask
            for vertex in self._plan.vertices
            if not self._plan.outputs_of(vertex.index)
            for subtask in vertex.subtasks
        ]
        self._replay = ReplayTracker(terminal, restored is not None and must_replay(restored, self._plan))
        self._commits = DriverCommits(context, self._peers, progress, self._system)
        self._checkpoints = DriverCheckpoints(
            context,
            self._peers,
            progress,
            self._inbox,
            on_failed=lambda message: self._fail(message, Sign.OWN_WORD),
            on_final=self._commits.final,
            replaying=lambda: self._replay.replaying,
            system=self._system,
        )
        self._output_began = False
        self._finishing = False
        self._cause = FirstCause()
        self._cancelled = False
        self._spark_ended = False
        self._secret = new_secret()
        self._transport = services.transport(context, self._secret, self._inbox.put)
        self._liveness = ProcessLiveness(context, self._peers, self._transport, self._fail, now)

    # -- from other threads -------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """End the attempt."""
        self._inbox.put(CancelRequested())

    def request_checkpoint(self, request: CheckpointRequest, answer: Answer) -> None:
        """Take a checkpoint; `answer` gets its id once it is complete, or an error."""
        self._inbox.put(CheckpointRequestedByUser(request, answer))

    # -- run ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        processes = self._start()
        try:
            self._c.queries.attempt_begins(lambda number: self._inbox.put(QueryAsked(number)))
            self._checkpoints.clean_up(void=False)
            while (wake := self.tick(self._system.monotonic())) is not None:
                self._wait(wake, self.handle)
        except BaseException:
            self._progress.failed_at = self._cause.first_at or self._system.monotonic()
            raise
        finally:
            self._c.queries.attempt_ends()
            self._end(processes)

    def refuse_requests(self) -> None:
        """Tell those who wait for a checkpoint that none will come; once `run` has ended and nobody can ask more."""
        error = RuntimeError("the attempt ended before the checkpoint was complete")
        self._checkpoints.refuse_requests(error)
        while True:
            try:
                event = self._inbox.get_nowait()
            except queue.Empty:
                return
            if isinstance(event, CheckpointRequestedByUser):
                event.answer(NotTriggered(str(error)))

    def _start(self) -> Processes:
        spec = self._c.spec
        self._transport.start(
            protocol.Job(
                versions=spec.versions, first_attempt=spec.first_attempt, limits=spec.limits, spec=pickle.dumps(spec)
            )
        )
        processes = self._services.processes(
            self._c,
            self._transport.address,
            self._secret,
            f"Weir: {spec.pipeline}, attempt {self._c.start.ownership.attempt}, from {self._from}",
            self._inbox.put,
        )
        processes.start()
        return processes

    def _wait(self, until: float, handle: Callable[[AttemptEvent], None]) -> None:
        try:
            event = self._inbox.get(timeout=max(0.001, until - self._system.monotonic()))
        except queue.Empty:
            return
        handle(event)

    def _end(self, processes: Processes) -> None:
        self._checkpoints.tell(events.JobEnding())
        # A subtask that comes up only now finds nobody.
        self._transport.stop_listening()
        self._peers.broadcast(protocol.Cancel(self._cancelled))
        end = AttemptEnd(
            self._peers,
            processes,
            self._spark_ended,
            self._system.monotonic(),
            on_committed=self._commits.note,
            on_request=lambda event: self._checkpoints.await_answer(event.request, event.answer),
        )
        while (wake := end.tick(self._system.monotonic())) is not None:
            self._wait(wake, end.handle)
        self._transport.close()
        self._checkpoints.close()
        self._c.waits.forget([THE_JOB, *map(self._peers.name, self._peers)])

    def tick(self, now: float) -> float | None:
        """Do what is due.

        Returns:
            When to come again, unless something happens before; `None` once the job has finished.

        Raises:
            AttemptFailed: with the first cause.
        """
        cause = self._cause.settled(now)
        if cause is not None:
            raise cause
        # Spark may tell of the end before the last subtask's own word has arrived: a close that failed counts.
        said_goodbye = self._spark_ended and all(peer.closed for peer in self._peers)
        if said_goodbye and self._cause.failure is None:
            return None
        self._checkpoints.tell(events.Tick())
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + self._limits.pace
            if not self._finishing:  # else they leave, one sooner than another
                self._checkpoints.send_heartbeat()
            self._liveness.look(now)
        deadlines = (self._next_heartbeat, self._checkpoints.next_deadline(now), self._cause.due_at)
        return min(deadline for deadline in deadlines if deadline is not None)

    def handle(self, event: AttemptEvent) -> None:
        """Something has happened.

        Raises:
            AttemptFailed: the attempt is over at once.
        """
        match event:
            case Connected(connection, name):
                self._liveness.connected(connection, name, self._system.monotonic())
            case Received(connection, message):
                self._on_message(connection, message)
            case Lost(connection, reason):
                self._liveness.lost(connection, reason)
            case Misunderstood(connection, error):
                self._liveness.misunderstood(connection, error)
            case SparkEnded(failure):
                self._on_spark_end(failure)
            case Finalised(checkpoint_id, problem):
                self._checkpoints.finalised(checkpoint_id, problem)
            case Deleted(checkpoint_id):
                self._checkpoints.deleted(checkpoint_id)
            case Fenced(text):
                self._fail(text, Sign.OWN_WORD, permanent=True)
            case CheckpointRequestedByUser(request, answer):
                self._checkpoints.request(request, answer)
            case QueryAsked():
                self._send_queries()
            case CancelRequested():
                self._cancelled = True
                raise AttemptFailed("cancelled", permanent=True)
            case _:
                assert_never(event)

    # -- failures -----------------------------------------------------------------------------------------------

    def _fail(self, message: str, sign: Sign, permanent: bool = False) -> None:
        self._cause.note(AttemptFailed(message, permanent), sign, self._system.monotonic())

    def _on_spark_end(self, error: SparkJobFailed | None) -> None:
        self._spark_ended = True
        if error is not None:
            self._fail(f"the Spark job failed: {error}", Sign.SPARK, permanent=error.permanent)
        elif not self._finishing:
            self._fail("the Spark job ended before the pipeline did", Sign.SPARK)

    # -- messages -----------------------------------------------------------------------------------------------

    def _on_message(self, connection: ProcessConnection, message: protocol.ToDriver) -> None:
        peer = self._peers.get(connection)
        if isinstance(message, protocol.Hello):
            self._on_hello(connection, message)
        elif isinstance(message, protocol.Failed):
            self._on_failed(peer, message)
        elif peer is None:
            _LOG.warning("a connection said %r before Hello; ignored", type(message).__name__)
        else:
            self._on_report(peer, message)

    def _on_report(self, peer: Peer, message: protocol.Report) -> None:
        match message:
            case protocol.PhaseEntered(phase):
                self._liveness.entered(peer.connection, phase, self._system.monotonic())
            case protocol.Running():
                self._on_running(peer, message)
            case protocol.OutputBegan():
                self._output_began = True
                self._progress.start.reach("first record", self._system.monotonic())
                self._tell_of_output()
            case protocol.SnapshotTaken(checkpoint_id, span, busy):
                self._checkpoints.tell(events.SnapshotTaken(checkpoint_id, peer.subtask, span, busy))
            case protocol.Acknowledged(checkpoint_id, snapshot, statistics):
                self._checkpoints.acknowledge(checkpoint_id, peer.subtask, snapshot, statistics)
            case protocol.Declined(checkpoint_id, text, asynchronous):
                reason = FailureReason.ASYNC if asynchronous else FailureReason.DECLINED
                declined = events.Declined(checkpoint_id, peer.subtask, f"{self._peers.name(peer)}: {text}", reason)
                self._checkpoints.tell(declined)
            case protocol.CheckpointAsked(last_barrier):
                self._checkpoints.tell(events.CheckpointAsked(last_barrier))
            case protocol.InputEnded():
                peer.ended = True
                if all(p.ended for p in self._peers):
                    self._checkpoints.tell(events.AllInputEnded())
            case protocol.RestoreBarrierArrived():
                if self._replay.arrived(peer.subtask):
                    self._peers.send_to_sources(protocol.ReplayEnded())
                    self._tell_of_output()
            case protocol.Quiet():
                peer.quiet = True
                if all(p.quiet for p in self._peers):
                    self._finishing = True
                    self._peers.broadcast(protocol.Finish())
            case protocol.Committed():
                self._commits.committed(peer, message)
            case protocol.RestoredEpochCommitted(step, epoch):
                self._commits.restored_committed(peer, step, epoch)
            case protocol.Metrics(metrics):
                name = self._peers.name(peer)
                self._progress.metrics[name] = dict(metrics)
                self._c.waits.report(name, metrics["waits"])
                if (waits := metrics["waitingMs"] > 0) != peer.waits:
                    peer.waits = waits
                    self._checkpoints.tell(events.WaitsOutside(peer.subtask, waits))
            case protocol.QueryAnswered(number, found):
                self._c.queries.answered(number, found, self._checkpoints.newest)
            case protocol.Closed(metrics):
                name = self._peers.name(peer)
                peer.closed = True
                self._liveness.left(peer.connection)
                self._progress.metrics[name] = dict(metrics)
                self._c.waits.forget([name])
            case _:
                assert_never(message)

    def _tell_of_output(self) -> None:
        """The first checkpoint is taken as soon as there is output; one before the end of the replay would have whoever
        restores it replay again."""
        if self._output_began and not self._replay.replaying:
            self._checkpoints.tell(events.OutputBegan())

    def _on_failed(self, peer: Peer | None, message: protocol.Failed) -> None:
        name = message.where
        if peer is not None:
            peer.closed = True
            self._liveness.left(peer.connection)
            name = self._peers.name(peer)
        cause, sign = own_word(name, message, newest_is_restored=not self._checkpoints.completed_one)
        self._cause.note(cause, sign, self._system.monotonic())

    # -- start --------------------------------------------------------------------------------------------------

    def _on_hello(self, connection: ProcessConnection, hello: protocol.Hello) -> None:
        self._peers.add(
            Peer(
                connection=connection,
                partition=hello.partition,
                host=hello.host,
                pid=hello.pid,
                address=hello.address,
                slot=Slot(hello.folder, frozenset(hello.copies)),
            )
        )
        self._liveness.ready(connection, self._system.monotonic())
        if len(self._peers) == self._plan.subtasks:
            self._deploy()

    def _deploy(self) -> None:
        """All processes are up: give each its place."""
        peers = sorted(self._peers, key=lambda peer: peer.partition)
        placed = list(zip(peers, deployments(self._c, peers, self._replay.replaying), strict=True))
        for peer, deployment in placed:
            self._peers.place(peer, deployment.subtask)
            self._progress.pids[self._peers.name(peer)] = peer.pid
        for peer, deployment in placed:
            self._peers.send(peer, protocol.Deploy(deployment))
        now = self._progress.deployed_at = self._system.monotonic()
        self._progress.start.begin("restore", now)
        _LOG.info(
            "job %s: %s up, to open and to restore %s",
            *(self._c.spec.pipeline, counted(len(placed), "subtask is", "subtasks are"), self._from),
        )

    def _on_running(self, peer: Peer, message: protocol.Running) -> None:
        peer.running = True
        self._liveness.entered(peer.connection, None, self._system.monotonic())
        if message.highest_checkpoint:
            self._checkpoints.tell(events.IdSeen(message.highest_checkpoint))
        for step, epochs in message.restored_epochs.items():
            self._commits.opened(peer, step, epochs)
        if self._progress.running_at is None and all(p.running for p in self._peers):
            self._on_all_running()

    def _on_all_running(self) -> None:
        now = self._progress.running_at = self._system.monotonic()
        start = self._progress.start
        start.run(now)
        _LOG.info("job %s: running from %s after %s", self._c.spec.pipeline, self._from, start.in_words())
        self._progress.on_running()
        self._send_queries()
        if self._c.commit_only:
            for peer in self._peers:
                self._liveness.entered(peer.connection, _COMMITTING, now)
            self._commits.finish_if_settled()
            return
        self._checkpoints.send_heartbeat()  # sources begin with it
        self._checkpoints.tell(events.SubtasksRunning())

    def _send_queries(self) -> None:
        """Once all subtasks have their state, give each query to the owner of its key."""
        if self._progress.running_at is None:
            return
        for number, query in self._c.queries.unsent().items():
            subtask = self._plan.owner_of(query.step, query.group, self._c.spec.max_parallelism)
            self._c.queries.sent(number, self._plan.subtask_name(subtask))
            self._peers.send_to(subtask, protocol.Query(number, query))
