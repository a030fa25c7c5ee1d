"""Watermarks made from the timestamps of records, split by split (pure)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final

from checkpoint.watermarks import MAX_WATERMARK

PERIOD: Final = 0.2
"""Seconds between two watermarks."""
NO_RECORD: Final = -(2**63)
"""The largest timestamp of a split without records."""


class SplitTime:
    """What the generator knows of one split. The record loop writes to it directly, as a call a record costs too much:
    it raises `largest`, and on the first record since the last `on_clock` (`touched` is false) calls `touch`.
    """

    __slots__ = ("counts", "idle", "largest", "quiet_since", "touched")

    def __init__(self, largest: int, clock: float) -> None:
        self.largest = largest
        """Largest timestamp so far, milliseconds since the epoch."""
        self.touched = False
        """Records have come since the last `on_clock`."""
        self.counts = True
        """It is read."""
        self.idle = False
        self.quiet_since = clock


class WatermarkGenerator:
    """The watermark lies `lateness` behind the largest timestamp of the split that is furthest behind.

    A split without records yet holds it back. A split whose source tells that it isn't read any more does not, nor does
    one that had no records for `idle_after` seconds. That clock stands still while the reader of the splits is held up:
    it would find records if it looked. After a restore it begins anew.

    Args:
        lateness: milliseconds.
        idle_after: seconds; `None` = splits are never idle.
        now: monotonic clock, seconds.
    """

    def __init__(self, lateness: int, idle_after: float | None, now: float) -> None:
        self._lateness = lateness
        self._idle_after = idle_after
        self._now = now
        self._clock = 0.0
        """Seconds in which the splits could be read."""
        self._next = now
        self._splits: dict[Hashable, SplitTime] = {}
        self._restored: dict[Hashable, int] = {}
        """Largest timestamps of restored splits that weren't asked for yet."""
        self._told = False
        """Somebody said which splits there are."""
        self.emitted: int | None = None
        """The last watermark that was sent."""

    def split(self, id: Hashable) -> SplitTime:
        """The split's times; a split that wasn't there is from now on."""
        found = self._splits.get(id)
        if found is None:
            found = self._splits[id] = SplitTime(self._restored.pop(id, NO_RECORD), self._clock)
        return found

    def set_splits(self, ids: Iterable[Hashable]) -> None:
        """The splits that are read now; others count no more, until a record comes from them."""
        self._told = True
        wanted = set(ids)
        for id in wanted:
            split = self.split(id)
            if not split.counts:
                split.counts, split.quiet_since = True, self._clock
        for id, split in self._splits.items():
            if id not in wanted:
                split.counts = split.touched = False

    def touch(self, split: SplitTime) -> None:
        """A record came."""
        split.touched = split.counts = True
        split.idle = False

    @property
    def idle(self) -> bool:
        """There is no split from which records are expected."""
        reading = self._reading()
        return all(split.idle for split in reading) and (self._told or bool(reading))

    def _reading(self) -> list[SplitTime]:
        return [split for split in self._splits.values() if split.counts]

    def on_clock(self, now: float, held_up: bool) -> int | None:
        """Time has passed.

        Args:
            held_up: the splits were not read since the last call, whatever lies in them.

        Returns:
            The next watermark, if it has advanced and the period since the last one is over.
        """
        if not held_up:
            self._clock += now - self._now
        self._now = now
        for split in self._reading():
            if split.touched:
                split.touched = False
                split.quiet_since = self._clock
            elif self._idle_after is not None and self._clock - split.quiet_since >= self._idle_after:
                split.idle = True
        return self._news() if now >= self._next else None

    def passed(self, timestamp: int, now: float) -> None:
        """The watermark was sent."""
        if self.emitted is None or timestamp > self.emitted:
            self.emitted = timestamp
            self._next = now + PERIOD

    def _news(self) -> int | None:
        lowest = min((split.largest for split in self._reading() if not split.idle), default=NO_RECORD)
        if lowest == NO_RECORD:
            return None
        watermark = max(lowest - self._lateness - 1, NO_RECORD)
        return watermark if self.emitted is None or watermark > self.emitted else None

    def seconds_to_next(self, now: float) -> float:
        """How long until `on_clock` may have something to say, if no record comes before."""
        until = [max(0.0, self._next - now)] if self._news() is not None else []
        if self._idle_after is not None:
            until += [
                max(0.0, split.quiet_since + self._idle_after - self._clock)
                for split in self._reading()
                if not split.idle
            ]
        return min(until, default=float("inf"))

    # -- checkpoints --------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """State that `restore` takes."""
        splits = [
            [id, split.largest] for id, split in self._splits.items() if split.counts and split.largest != NO_RECORD
        ]
        return {"splits": splits, "emitted": self.emitted}

    def restore(self, states: Iterable[Mapping[str, Any]], own: Mapping[str, Any] | None) -> None:
        """Take over what old subtasks knew, before anything else is called.

        Args:
            states: of all subtasks whose splits may be read here now. Where two tell of one split, the lower counts.
            own: the state of this very subtask, where the parallelism is the same; `None` = it is another.
        """
        states = list(states)
        for id, largest in (one for state in states for one in state["splits"]):
            self._restored[id] = min(largest, self._restored.get(id, MAX_WATERMARK))
        for id, split in self._splits.items():
            split.largest = self._restored.pop(id, split.largest)
        emitted = [state["emitted"] for state in (states if own is None else [own])]
        if emitted and None not in emitted:
            self.emitted = min(emitted)
