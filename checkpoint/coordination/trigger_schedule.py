"""When the next checkpoint is wanted, and when at the earliest it may be triggered (pure; part of the coordinator).

This part looks at time and requests only. What else holds a trigger back (checkpoints in progress, deletions) is
decided in `checkpoint.coordination.coordinator`.
"""

from __future__ import annotations

import math
from collections import deque

from checkpoint.checkpoint_kind import CheckpointKind

RETRY_PAUSE = 1.0
"""Seconds from a failure to the retry of the final checkpoint, at least, and to a checkpoint that a source asked for
where there is no interval. A failure that comes at once would use up the tolerable failures in a moment otherwise."""

FIRST_OUTPUT_PAUSE = 0.1
"""Seconds from the first output to the checkpoint that makes it visible: what comes meanwhile is in it, too."""


class TriggerSchedule:
    """The next ordinary checkpoint (periodic, asked for, requested or final) and the savepoints that wait.

    A periodic checkpoint that comes too early is put off, not queued up: there is one due time, and it counts from
    the last trigger.
    """

    def __init__(self, interval: float | None, min_pause: float, early: bool = False) -> None:
        """`early`: the first checkpoint doesn't wait for the interval once there is output for it."""
        self._early = early
        self._interval = interval
        self._min_pause = min_pause
        self._due = math.inf
        """When the next periodic checkpoint is wanted; never before the start or without an interval."""
        self._paused_until = -math.inf
        """End of the min pause."""
        self._last_barrier = 0
        """Id of the last ordinary checkpoint triggered here: asks of sources with an older barrier are stale."""
        self._asked = False
        """A source has asked since the last trigger."""
        self._failed_at: float | None = None
        """When the last ordinary checkpoint failed; `None` if one has completed since. Asks wait meanwhile."""
        self._checkpoint_tokens: list[str] = []
        self._savepoint_tokens: deque[str] = deque()
        self._input_ended = False
        """Every ordinary checkpoint from now on is a final one."""
        self._final_at = math.inf
        """From when on the final checkpoint is wanted; never while it is in progress or complete."""

    # -- what it is told ------------------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Every subtask runs. Told once."""
        if self._interval is not None:
            self._due = min(self._due, now + self._interval)

    def output_begins(self, now: float) -> None:
        """There is output that waits for a checkpoint."""
        if self._early and self._interval is not None and not self._last_barrier:
            self._due = min(self._due, now + FIRST_OUTPUT_PAUSE)

    def ask(self, last_barrier: int) -> None:
        """A source asks whose last barrier is `last_barrier`."""
        if last_barrier >= self._last_barrier:
            self._asked = True

    def request(self, kind: CheckpointKind, token: str) -> None:
        """A user asks."""
        if kind is CheckpointKind.SAVEPOINT:
            self._savepoint_tokens.append(token)
        else:
            self._checkpoint_tokens.append(token)

    def end_input(self) -> None:
        """All input has ended."""
        if not self._input_ended:
            self._input_ended = True
            self._final_at = -math.inf

    def triggered(self, checkpoint_id: int, now: float) -> tuple[str, ...]:
        """An ordinary checkpoint is being triggered: the tokens of the requests that it answers."""
        self._last_barrier = checkpoint_id
        self._asked = False
        self._final_at = math.inf
        if self._interval is not None:
            self._due = now + self._interval
        tokens = tuple(self._checkpoint_tokens)
        self._checkpoint_tokens.clear()
        return tokens

    def completed(self, now: float) -> None:
        """An ordinary checkpoint is complete."""
        self._failed_at = None
        self._paused_until = now + self._min_pause

    def failed(self, kind: CheckpointKind, now: float) -> None:
        """An ordinary checkpoint has failed."""
        self._failed_at = now
        self._paused_until = now + self._min_pause
        if kind is CheckpointKind.FINAL:
            self._final_at = now + max(RETRY_PAUSE, self._min_pause)

    def take_savepoint(self) -> str:
        """The token of the savepoint that was requested first: it is being triggered."""
        return self._savepoint_tokens.popleft()

    def take_requests(self) -> list[str]:
        """The tokens of all requests that wait: they will not be served."""
        tokens = [*self._savepoint_tokens, *self._checkpoint_tokens]
        self._savepoint_tokens.clear()
        self._checkpoint_tokens.clear()
        return tokens

    # -- what follows ---------------------------------------------------------------------------------------------

    @property
    def savepoint_waits(self) -> bool:
        return bool(self._savepoint_tokens)

    @property
    def next_kind(self) -> CheckpointKind:
        """Kind of the next ordinary checkpoint."""
        return CheckpointKind.FINAL if self._input_ended else CheckpointKind.CHECKPOINT

    @property
    def ready_at(self) -> float:
        """When the next ordinary checkpoint may be triggered, as far as time goes; `inf` = none is wanted."""
        return self._final_at if self._input_ended else max(self._wanted_at, self._paused_until)

    def put_off(self, now: float) -> str | None:
        """Why a checkpoint that is wanted has to wait for a time after `now`, in words; `None` = none does."""
        left = self.ready_at - now
        if not 0 < left < math.inf:
            return None
        if self._input_ended:
            return f"the final checkpoint has failed and is tried again in {left:.1f} s"
        if self._wanted_at <= now:
            return f"min pause: {left:.1f} s left"
        if self._asked:
            return f"the last checkpoint failed, so the next one waits for the interval: {left:.1f} s left"
        return None

    @property
    def _wanted_at(self) -> float:
        """From when on an ordinary checkpoint is wanted: `-inf` = already, `inf` = not at all."""
        if self._checkpoint_tokens or (self._asked and self._failed_at is None):
            return -math.inf
        if self._asked and self._failed_at is not None and self._interval is None:
            return self._failed_at + RETRY_PAUSE
        return self._due
