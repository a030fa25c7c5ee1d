"""A virtual sink subtask: a writer that stages segments, the production commit log, and a committer for each writer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkpoint.committables import Committable, SegmentName
from checkpoint.committing import CommitLog, CommitOrder
from checkpoint.in_flight.restored_input import Entry
from checkpoint.kinds import CheckpointKind
from checkpoint.storage.handles import FileHandle
from simulated.graph import Edge, Row, Step
from simulated.operator import Operator
from simulated.output import SimulatedCommitter
from simulated.storage import SubtaskState
from sinks.kafka.marker import Marker

if TYPE_CHECKING:
    from simulated.attempt import Attempt

_SEGMENT_ROWS = 3


class Sink(Operator):
    def __init__(
        self,
        attempt: Attempt,
        step: Step,
        index: int,
        number: int,
        restored: SubtaskState,
        entries: Iterable[Entry],
    ) -> None:
        super().__init__(attempt, step, index, number, restored, entries)
        self.log: CommitLog | None = None
        self.final_complete = False
        self._rows: list[Row] = []
        self._files = 0
        self._pending: Mapping[int, Sequence[Committable]] = restored.pending
        self._markers: Mapping[int, Marker] = restored.markers
        self.committers: dict[int, SimulatedCommitter] = {}
        self._released: int | None = None
        self._running: Iterator[None] = self._run_committers()
        self._idle = False

    # -- writer ---------------------------------------------------------------------------------------------------

    @property
    def may_process(self) -> bool:
        return self.log is None or self.log.accepts_records or self._handler.holding

    def process(self, row: Row, edge: Edge) -> None:
        self._rows.append(row)

    def _prepare_commit(self, n: int) -> list[Committable]:
        rows, self._rows = self._rows, []
        found = []
        for index, start in enumerate(range(0, len(rows), _SEGMENT_ROWS)):
            self._files += 1
            path = f"shared/{self.attempt.ownership.attempt}-{self.name}-{self._files}.arrow"
            self.attempt.storage.segments[path] = rows[start : start + _SEGMENT_ROWS]
            found.append(Committable(SegmentName(n, index), None, (FileHandle(path, 1, path),)))
        return found

    def state(self, n: int) -> SubtaskState:
        assert self.log is not None, "a checkpoint was triggered before the committers were open"
        own = self._prepare_commit(n)
        self.log.add(n, own)
        state = super().state(n)
        state.pending = self.log.snapshot()
        if "committables_stay" in self.options.faults:
            state.pending = {self.index: own}
        state.markers = {writer: c.marker for writer, c in self.committers.items() if c.marker is not None}
        return state

    # -- committers -----------------------------------------------------------------------------------------------

    def commit_step(self) -> bool:
        """A step of the committing thread."""
        self._idle = False
        next(self._running)
        return not self._idle

    def _run_committers(self) -> Iterator[None]:
        attempt = self.attempt
        left: dict[int, Sequence[Committable]] = {}
        for writer in sorted({self.index, *self._pending, *self._markers}):
            committer = SimulatedCommitter(
                attempt.output,
                attempt.storage.segments.__getitem__,
                self.step.id,
                writer,
                attempt.lineage,
                attempt.restored_id,
                self._markers.get(writer),
                self.rng,
                self.options.faults,
            )
            yield from committer.open(self._pending.get(writer, ()))
            self.committers[writer] = committer
            left[writer] = committer.left
        self.log = CommitLog(self.index, left)
        highest = max(c.marker.checkpoint for c in self.committers.values() if c.marker is not None)
        attempt.report(self, ("opened", highest, tuple(self.log.restored_epochs())))
        yield
        while True:
            order = self.log.next_commit()
            if order is None:
                self._idle = True
                yield
                continue
            yield from self._commit(order)
            self.log.committed(order)
            self._report_epoch()
            yield

    def _commit(self, order: CommitOrder) -> Iterator[None]:
        self.scheduler.log("commits", self.name, order)
        for _ in self.committers[order.writer].commit(order.checkpoint_id, order.committables):
            self.attempt.happened("commit")
            yield

    def _report_epoch(self) -> None:
        assert self.log is not None
        if self._released is not None and self.log.restored_done(self._released):
            self.attempt.report(self, ("epoch out", self._released))
            self._released = None

    # -- mail -----------------------------------------------------------------------------------------------------

    def handle(self, letter: tuple[Any, ...]) -> None:
        super().handle(letter)
        match letter:
            case ("complete", n, kind):
                assert self.log is not None
                if kind is not CheckpointKind.SAVEPOINT or "savepoints_commit" in self.options.faults:
                    self.log.complete(n)
                self.final_complete |= kind is CheckpointKind.FINAL
            case ("release epoch", epoch):
                assert self.log is not None
                self.log.release_restored(epoch)
                self._released = epoch
                self._report_epoch()
            case ("release new",):
                assert self.log is not None
                self.log.release_new()

    @property
    def finished(self) -> bool:
        return self.final_complete and self.log is not None and self.log.idle
