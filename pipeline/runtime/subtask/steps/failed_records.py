"""What becomes of records that a step fails on, if it has the option `on_error`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from checkpoint.codec import EncodingError, decode, encode
from checkpoint.errors import Explained, NotOfTheRecord, PermanentFailure
from checkpoint.failure_rate import AtMost, FailureRate
from checkpoint.metrics import MetricSink
from formats.letters import class_of
from pipeline.on_error import DeadLetter, Skip
from pipeline.runtime import error_text
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.record_in_progress import RecordInProgress

_LOG = logging.getLogger(f"weir.{__name__}")

_LOG_EVERY_S: Final = 1.0
_REASON: Final = 1000
_TRACE: Final = 8000
"""Characters in a letter."""
NEVER: Final = (PermanentFailure, NotOfTheRecord, MemoryError)
"""What no `on_error` applies to: another record would fare no better."""


class TooManyFailures(Explained, RuntimeError):
    """More records have failed than `at_most` allows."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A record that may fail, as it was before the step got it."""

    record: bytes | None
    """Encoded, if anybody wants to know."""
    key: Any
    timestamp: int | None
    original: dict[str, Any] | None
    """Of the source's record, if the step is chained to a source that tells it."""
    timer: int | None = None
    """It is no record but a timer of this time."""


class FailedRecords:
    """The policy of one step in one subtask. Used by the task thread only."""

    def __init__(
        self,
        step: str,
        on_error: Skip | DeadLetter,
        context: Context,
        record: RecordInProgress,
        emit: Callable[[Any], None] | None,
        metrics: MetricSink,
        clock: Callable[[], float],
    ) -> None:
        """
        Args:
            emit: takes what is told of each failed record; `None`: nobody reads it.
            clock: seconds, monotonic.
        """
        self._step = step
        self._context = context
        self._record = record
        self._emit = emit
        self._metrics = metrics
        metrics.count("recordsFailed", 0)  # of a counter that begins with the first failures no growth shows
        self._clock = clock
        at_most = on_error.at_most
        self._becomes = "is left out" if isinstance(on_error, Skip) else f"goes to {on_error.topic}"
        self._rate = FailureRate(at_most) if isinstance(at_most, AtMost) else None
        self._untold = 0
        self._told_at = float("-inf")

    def count(self) -> None:
        """A record comes, or a timer fires."""
        if self._rate is not None:
            self._rate.record(self._clock())

    def begin(self, value: Any) -> bytes | None:
        """A record comes, which the step may change. Returns what `note` takes."""
        if self._rate is not None:
            self._rate.record(self._clock())
        if self._emit is None:
            return None
        try:
            return encode(value)
        except EncodingError:  # a source that is chained may emit what no channel could carry
            return None

    def note(self, encoded: bytes | None, timer: int | None = None) -> Noted:
        """The record in progress, for those that fail on it later (see `handle`)."""
        record = self._record
        if self._emit is None:
            return Noted(None, None, record.timestamp, None, timer)
        rows = record.source_rows
        original = None if rows is None else getattr(rows[record.row], "original", None)
        return Noted(encoded, self._context.key, record.timestamp, original, timer)

    def handle(self, error: Exception, noted: Noted, raised: BaseException | None = None) -> None:
        """The step has failed on a record, or on a timer, of which nothing is left. Returns if the job goes on. The
        record in progress is that record, or has its key and timestamp.

        Args:
            raised: what the user's code has raised, where `error` tells of it; `None` = `error`.

        Raises:
            TooManyFailures: it is one too many.
        """
        self._metrics.count("recordsFailed")
        self._metrics.gauge("lastFailure", f"{self._step!r}: {error_text.first_line(error_text.summary(error))}")
        exceeded = None if self._rate is None else self._rate.failure()
        if exceeded is not None:
            raise TooManyFailures(
                f"step {self._step!r}: {exceeded}. The last one: {error_text.summary(error)}"
            ) from error
        self._tell(error, noted)
        if self._emit is not None:
            self._emit(self._letter(error, noted, error if raised is None else raised))

    def _tell(self, error: Exception, noted: Noted) -> None:
        self._untold += 1
        now = self._clock()
        if now - self._told_at < _LOG_EVERY_S:
            return
        more = f" ({self._untold - 1:,} more since the last message)" if self._untold > 1 else ""
        what = "a record" if noted.timer is None else "a timer"
        _LOG.warning(
            "step %r: %s failed and %s%s: %s\n%s",
            self._step,
            what,
            self._becomes,
            more,
            error_text.summary(error),
            error_text.trace(error),
        )
        self._untold, self._told_at = 0, now

    def _letter(self, error: Exception, noted: Noted, raised: BaseException) -> dict[str, Any]:
        letter = {
            "step": self._step,
            "subtask": self._context.subtask,
            "error": class_of(raised),
            "reason": error_text.cut(error_text.message(error), _REASON),
            "traceback": error_text.cut(error_text.trace(error), _TRACE),
            "key": noted.key,
            "timestamp": noted.timestamp,
            "timer": noted.timer,
            "original": noted.original,
        }
        if noted.record is not None:
            letter["record"] = decode(noted.record)
        return letter
