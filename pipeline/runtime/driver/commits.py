"""The driver's part in commits: which subtask may commit what, and when all is committed, so that the job has ended."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from pipeline.graph import StepKind
from pipeline.runtime import protocol
from pipeline.runtime.driver.attempt_context import AttemptContext, Progress
from pipeline.runtime.driver.commit_progress import CommitProgress, Order
from pipeline.runtime.driver.peers import Peer, Peers
from pipeline.runtime.system import System

_LOG = logging.getLogger(f"weir.{__name__}")


class DriverCommits:
    """Used by the attempt's thread only."""

    def __init__(self, context: AttemptContext, peers: Peers, progress: Progress, system: System) -> None:
        self._c = context
        self._peers = peers
        self._progress = progress
        self._system = system
        self._commits = CommitProgress(
            {
                step.id: list(vertex.subtasks)
                for vertex in context.plan.vertices
                for step in vertex.steps
                if step.kind is StepKind.SINK
            }
        )
        self._final_id: int | None = None
        self._quiescing = False

    def opened(self, peer: Peer, step: str, epochs: Collection[int]) -> None:
        """A sink's committers are open. `epochs`: restored ones that are not committed yet."""
        self._release(self._commits.opened(step, peer.subtask, epochs))

    def restored_committed(self, peer: Peer, step: str, epoch: int) -> None:
        """A sink has committed a restored epoch."""
        self._release(self._commits.restored_committed(step, peer.subtask, epoch))

    def _release(self, orders: Iterable[Order]) -> None:
        for subtask, message in orders:
            self._peers.send_to(subtask, message)
        if self._c.commit_only:
            self.finish_if_settled()

    def note(self, peer: Peer, message: protocol.Committed) -> None:
        """A sink has committed a checkpoint of this attempt, and the attempt is ending."""
        self._commits.new_committed(message.step, peer.subtask, message.checkpoint_id)
        self._progress.committed = self._commits.committed
        self._c.history.committed(self._progress.committed, self._system.monotonic())

    def committed(self, peer: Peer, message: protocol.Committed) -> None:
        """A sink has committed a checkpoint of this attempt."""
        self.note(peer, message)
        if self._progress.first_commit_at is None and message.records:
            self._progress.first_commit_at = self._system.monotonic()
        start = self._progress.start
        if message.records and start.reach("commit", self._system.monotonic()):
            _LOG.info("job %s: its first output is committed after %s", self._c.spec.pipeline, start.in_words())
        self._finish_if_done()

    def final(self, checkpoint_id: int) -> None:
        """The job's last checkpoint is complete."""
        self._final_id = checkpoint_id
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        """Once the last checkpoint is complete and committed by every sink, everybody may leave."""
        if self._final_id is not None and self._commits.all_committed(self._final_id):
            self._quiesce()

    def finish_if_settled(self) -> None:
        """For a job that was stopped: once everything restored is committed, everybody may leave."""
        if self._progress.running_at is not None and self._commits.restored_settled:
            self._quiesce()

    def _quiesce(self) -> None:
        """The job has ended. Nobody leaves before all know, or a neighbour would take it for a failure."""
        if not self._quiescing:
            self._quiescing = True
            self._peers.broadcast(protocol.Quiesce())
