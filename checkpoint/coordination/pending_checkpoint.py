"""One checkpoint that is triggered and not resolved (pure; part of the coordinator)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination.coordinator_events import (
    BarrierPassed,
    FailureReason,
    FinaliseCheckpoint,
    NotifyAborted,
)


@dataclass(frozen=True, slots=True)
class Passed:
    """A barrier has passed all that these source subtasks reach."""

    sources: tuple[int, ...]
    start_delay: float
    """Seconds from the trigger until then."""
    mean_span: float
    """Records that one of them has emitted since the barrier before, on average."""
    busy_span: float
    """The same of those that would have emitted more; 0 if none would."""


class Passage:
    """How far the barrier of one checkpoint has come.

    It has passed a source subtask's part of the job when every subtask that the source *reaches*, through channels, has
    taken its snapshot. Sources of jobs in one, or of forward chains, so don't answer for one another.
    """

    def __init__(self, reach: Mapping[int, frozenset[int]]) -> None:
        """`reach`: for each source subtask those that it reaches, itself or not; never none."""
        self._sources: dict[frozenset[int], list[int]] = defaultdict(list)
        for source, reached in sorted(reach.items()):
            self._sources[reached].append(source)
        self._missing = {reached: set(reached) for reached in self._sources}
        self._spans: dict[int, tuple[int, bool]] = {}
        self._passed: dict[int, Passed] = {}
        """By source subtask."""

    def snapshot_taken(self, subtask: int, delay: float, span: int | None, busy: bool) -> list[Passed]:
        """What it has passed with that.

        Args:
            delay: seconds since the trigger.
            span, busy: see `SnapshotTaken`.
        """
        if span is not None:
            self._spans[subtask] = (span, busy)
        found = []
        for reached, missing in list(self._missing.items()):
            missing.discard(subtask)
            if not missing:
                del self._missing[reached]
                sources = self._sources[reached]
                spans = [self._spans.get(source, (0, False)) for source in sources]
                mean, of_busy = _mean([span for span, _ in spans]), _mean([span for span, busy in spans if busy])
                found.append(Passed(tuple(sources), delay, mean, of_busy))
        self._passed.update({source: one for one in found for source in one.sources})
        return found

    def passed(self, source: int) -> Passed | None:
        """How it has passed this source's part, if it has."""
        return self._passed.get(source)


def _mean(spans: list[int]) -> float:
    return sum(spans) / len(spans) if spans else 0.0


@dataclass(frozen=True, slots=True)
class CheckpointInProgress:
    """A pending checkpoint, for tests and debugging."""

    checkpoint_id: int
    kind: CheckpointKind
    triggered_at: float
    """Clock value."""
    missing: tuple[int, ...]
    """Subtasks that have not acknowledged, ascending. Empty: `_metadata` is being written."""


class PendingCheckpoint:
    """Who has taken a snapshot for it, who has acknowledged it, and until when it may take."""

    def __init__(
        self,
        checkpoint_id: int,
        kind: CheckpointKind,
        now: float,
        timeout: float,
        subtasks: Collection[int],
        reach: Mapping[int, frozenset[int]],
        held_up: bool,
    ) -> None:
        """
        Args:
            now: when it is triggered, a clock value.
            timeout: seconds.
            subtasks: those that have to acknowledge.
            reach: see `Passage`.
            held_up: a subtask waits for what lies outside of the job.
        """
        self.checkpoint_id = checkpoint_id
        self.kind = kind
        self.triggered_at = now
        self.timeout = timeout
        self.passage = Passage(reach)
        self.held_up = held_up
        """Whether a subtask has waited meanwhile for what lies outside of the job."""
        self._subtasks = subtasks
        self._missing = set(subtasks)

    @property
    def ordinary(self) -> bool:
        return self.kind is not CheckpointKind.SAVEPOINT

    @property
    def expires_at(self) -> float:
        """Clock value."""
        return self.triggered_at + self.timeout

    @property
    def missing(self) -> tuple[int, ...]:
        """Subtasks that have not acknowledged, ascending. Empty exactly while `_metadata` is being written."""
        return tuple(sorted(self._missing))

    def statistics(self) -> CheckpointInProgress:
        return CheckpointInProgress(self.checkpoint_id, self.kind, self.triggered_at, self.missing)

    def snapshot_taken(self, subtask: int, span: int | None, busy: bool, now: float) -> list[BarrierPassed]:
        """What its barrier has passed with that; of a savepoint nothing is told."""
        if not self.ordinary:
            return []
        return [
            BarrierPassed(self.checkpoint_id, one.sources, one.start_delay, one.mean_span, one.busy_span)
            for one in self.passage.snapshot_taken(subtask, now - self.triggered_at, span, busy)
        ]

    def acknowledges(self, subtask: int) -> bool:
        """Whether it is one of those that have to."""
        return subtask in self._subtasks

    def acknowledged(self, subtask: int) -> FinaliseCheckpoint | None:
        """What is to be done with that. A repetition changes nothing: its files are part of the checkpoint."""
        if subtask not in self._missing:
            return None
        self._missing.remove(subtask)
        return None if self._missing else FinaliseCheckpoint(self.checkpoint_id, self.kind)

    def require_acknowledged(self, what: str) -> None:
        """
        Raises:
            ValueError: `what` is reported of its `_metadata`, which was never to be written.
        """
        if self._missing:
            raise ValueError(f"checkpoint {self.checkpoint_id} {what}: subtasks {self._missing} are missing")

    def expiry(self, now: float) -> str | None:
        """Why it has to be given up at `now`, in words; `None` = it has time."""
        if now < self.expires_at:
            return None
        what = "not acknowledged by every subtask" if self._missing else "_metadata not written"
        return f"{what} {self.timeout:g} s after the trigger"

    def aborted(self, reason: FailureReason, message: str) -> NotifyAborted:
        return NotifyAborted(self.checkpoint_id, self.kind, reason, message, self.missing)
