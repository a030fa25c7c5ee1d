"""What happened to each checkpoint: rows for users, kept on the driver."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.counted import counted
from pipeline.runtime.error_text import cut

_KEPT = 10_000
_DETAILS = 10_000
"""Rows of subtasks that are kept, of all checkpoints together: those of 156 checkpoints with 64 subtasks."""
_FAILURE = 300
"""Characters of a failure that are kept once its checkpoint's details are not; so many weigh as a row does."""
ATTEMPT_ENDED = "the attempt ended"
"""Why checkpoints failed that were in progress at its end."""


@dataclass(frozen=True, slots=True)
class SubtaskStats:
    """One subtask's part in a checkpoint."""

    name: str
    acknowledged_after: float
    """Seconds from the trigger to the acknowledgement's arrival."""
    start_delay: float
    """Seconds from the trigger to the subtask's snapshot."""
    alignment: float
    """Seconds from the first barrier to the last."""
    sync: float
    """Seconds that the task thread was held."""
    async_: float
    """Seconds that writing took beside it."""
    size: int
    """Bytes written or referred to."""
    written: int
    """Bytes written: the files of earlier checkpoints that it refers to don't count."""
    span_records: int
    """Records that a source emitted between the last barrier and this one; 0 for other subtasks."""
    span_bytes: int
    in_flight_records: int
    """Records of its channel state."""
    in_flight_bytes: int
    unaligned: bool
    """Its barrier has overtaken data, or would have."""
    keyed_state: float = 0.0
    """Seconds of `async_` that writing keyed state took, ..."""
    channel_state: float = 0.0
    """... and what was in flight. Before that the barrier has left its output queues, and come on all inputs."""


@dataclass(frozen=True, slots=True)
class CheckpointStats:
    """One checkpoint. Durations are seconds; those of subtasks are the largest of any.

    Attributes:
        id: grows from one to the next, also over restarts.
        status: `"subsumed"`: a newer one was complete first, so that nobody needs it any more. That is no failure.
        kind: of what it is for: a checkpoint, a savepoint, the last one of a job.
        trigger_time: seconds since 1970.
        duration: from the trigger to durable `_metadata`, or to its end otherwise; `None` while in progress.
        start_delay: from the trigger to a subtask's snapshot.
        alignment: from a subtask's first barrier to its last.
        sync: for how long a subtask handled no records for it.
        async_: what writing took beside the records.
        keyed_state: what writing keyed state took of `async_`.
        channel_state: what writing records in flight took of `async_`.
        finalise: from the last acknowledgement to durable `_metadata`, or to its end otherwise; 0 until then.
        commit: from durable `_metadata` to the commit by every sink; `None` before.
        size: bytes of all its files, those included whose content `_metadata` holds, without other inline state.
        written: bytes of the files that are new with it.
        in_flight_bytes: bytes of the records that were in flight and are part of it, all subtasks together.
        in_flight_records: how many they are.
        unaligned: at some subtask it was unaligned: from the start, or since it took too long.
        span_records: records that a source subtask emitted since the barrier before; the largest of any.
        span_bytes: the same in bytes.
        failure: why it failed; `None` if it has not.
        subtasks: those that have acknowledged. Only of the newest checkpoints: of older ones the figures above are
            left.
    """

    id: int
    status: Literal["in_progress", "completed", "failed", "subsumed"]
    kind: str
    trigger_time: float
    duration: float | None = None
    start_delay: float = 0.0
    alignment: float = 0.0
    sync: float = 0.0
    async_: float = 0.0
    keyed_state: float = 0.0
    channel_state: float = 0.0
    finalise: float = 0.0
    commit: float | None = None
    size: int = 0
    written: int = 0
    in_flight_bytes: int = 0
    in_flight_records: int = 0
    unaligned: bool = False
    span_records: int = 0
    span_bytes: int = 0
    failure: str | None = None
    subtasks: tuple[SubtaskStats, ...] = field(default=(), repr=False)


def in_words(row: CheckpointStats) -> str:
    """What the log says of a completed checkpoint: its duration and content, and the times of its last subtask."""
    new = f", {row.written:,} of them new" if row.written < row.size else ""
    text = (
        f"{CheckpointKind(row.kind).noun} {row.id} completed in {row.duration or 0:.3f} s"
        f"{', unaligned' if row.unaligned else ''}: "
        f"{counted(row.size, 'byte')}{new}, {counted(row.in_flight_records, 'record')} in flight, "
        f"span {counted(row.span_records, 'record')}"
    )
    if row.subtasks:
        last = max(row.subtasks, key=lambda one: one.acknowledged_after)
        text += (
            f"; the last was {last.name} after {last.acknowledged_after:.3f} s (its snapshot after "
            f"{last.start_delay:.3f} s, alignment {last.alignment:.3f} s, held {last.sync:.3f} s, writing "
            f"{last.async_:.3f} s), _metadata {row.finalise:.3f} s"
        )
    return text


class CheckpointHistory:
    """Rows of the newest checkpoints of a job, over all attempts, in bounded memory. Written by the job's thread; reads
    are copies."""

    def __init__(self) -> None:
        self._rows: OrderedDict[int, CheckpointStats] = OrderedDict()
        self._triggered: dict[int, float] = {}
        """When each checkpoint in progress was triggered."""
        self._detailed: dict[int, int] = {}
        """Those that have ended and whose details are kept, oldest first, and what these weigh."""
        self._details = 0
        """The sum of that."""
        self._uncommitted: dict[int, float] = {}
        """When those were complete that not every sink is known to have committed."""
        self._largest_id = 0
        self.completed_count = 0
        """How many checkpoints were ever completed."""
        self.failed_count = 0

    def rows(self) -> list[CheckpointStats]:
        return list(self._rows.values())

    def row(self, id: int) -> CheckpointStats | None:
        """`None`: it is not known, or not any more."""
        return self._rows.get(id)

    @property
    def largest_id(self) -> int:
        """The largest id of a checkpoint of any attempt, complete or not; 0 before the first."""
        return self._largest_id

    def triggered(self, id: int, kind: CheckpointKind, now: float, trigger_time: float) -> None:
        """`now` is of the clock that durations are measured by, `trigger_time` in seconds since 1970."""
        self._rows[id] = CheckpointStats(id, "in_progress", kind.value, trigger_time)
        self._triggered[id] = now
        while len(self._rows) > _KEPT:
            oldest, _ = self._rows.popitem(last=False)
            self._triggered.pop(oldest, None)
            self._details -= self._detailed.pop(oldest, 0)
        self._largest_id = max(self._largest_id, id)

    def acknowledged(self, id: int, name: str, statistics: Mapping[str, Any], now: float) -> None:
        row = self._rows.get(id)
        if row is None or row.status != "in_progress":
            return
        one = SubtaskStats(
            name,
            now - self._triggered[id],
            statistics.get("start_delay", 0.0),
            statistics.get("alignment", 0.0),
            statistics.get("sync", 0.0),
            statistics.get("async", 0.0),
            statistics.get("size", 0),
            statistics.get("written", 0),
            statistics.get("span_records", 0),
            statistics.get("span_bytes", 0),
            statistics.get("in_flight_records", 0),
            statistics.get("in_flight_bytes", 0),
            statistics.get("unaligned", False),
            statistics.get("keyed_state", 0.0),
            statistics.get("channel_state", 0.0),
        )
        self._rows[id] = replace(
            row,
            start_delay=max(row.start_delay, one.start_delay),
            alignment=max(row.alignment, one.alignment),
            sync=max(row.sync, one.sync),
            async_=max(row.async_, one.async_),
            keyed_state=max(row.keyed_state, one.keyed_state),
            channel_state=max(row.channel_state, one.channel_state),
            size=row.size + one.size,
            written=row.written + one.written,
            in_flight_records=row.in_flight_records + one.in_flight_records,
            in_flight_bytes=row.in_flight_bytes + one.in_flight_bytes,
            unaligned=row.unaligned or one.unaligned,
            span_records=max(row.span_records, one.span_records),
            span_bytes=max(row.span_bytes, one.span_bytes),
            subtasks=(*row.subtasks, one),
        )

    def completed(self, id: int, now: float) -> None:
        self._end(id, "completed", None, now)
        self._uncommitted[id] = now
        if len(self._uncommitted) > _KEPT:
            del self._uncommitted[next(iter(self._uncommitted))]

    def committed(self, newest: int, now: float) -> None:
        """Every sink has committed all checkpoints up to this one."""
        for id in [id for id in self._uncommitted if id <= newest]:
            completed = self._uncommitted.pop(id)
            row = self._rows.get(id)
            if row is not None:
                self._rows[id] = replace(row, commit=now - completed)

    def failed(self, id: int, reason: str, now: float) -> None:
        self._end(id, "failed", reason, now)

    def subsumed(self, id: int, now: float) -> None:
        self._end(id, "subsumed", None, now)

    def attempt_ended(self, now: float) -> None:
        """Nothing of the attempt is in progress any more."""
        for id, row in list(self._rows.items()):
            if row.status == "in_progress":
                self.failed(id, ATTEMPT_ENDED, now)

    def duration(self, id: int, now: float) -> float:
        """Seconds since its trigger."""
        return now - self._triggered.get(id, now)

    def _end(
        self, id: int, status: Literal["completed", "failed", "subsumed"], failure: str | None, now: float
    ) -> None:
        row = self._rows.get(id)
        if row is None or row.status != "in_progress":
            return
        duration = now - self._triggered.pop(id)
        acknowledged = max((one.acknowledged_after for one in row.subtasks), default=duration)
        self._rows[id] = replace(
            row, status=status, failure=failure, duration=duration, finalise=duration - acknowledged
        )
        self._detailed[id] = len(row.subtasks) + len(failure or "") // _FAILURE
        self.completed_count += status == "completed"
        self.failed_count += status == "failed"
        self._details += self._detailed[id]
        while self._details > _DETAILS and len(self._detailed) > 1:
            oldest = next(iter(self._detailed))
            self._details -= self._detailed.pop(oldest)
            row = self._rows[oldest]
            short = None if row.failure is None else cut(row.failure, _FAILURE)
            self._rows[oldest] = replace(row, subtasks=(), failure=short)
