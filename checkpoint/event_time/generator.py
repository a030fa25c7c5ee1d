"""Watermarks made from the timestamps of records, split by split (pure)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

from checkpoint.event_time.bounds import MAX_WATERMARK, NO_RECORD

PERIOD: Final = 0.2
"""Seconds between two watermarks."""
_FIRST_LOOK: Final = 1.0
"""Seconds of reading after a restore in which no split falls idle, however long it had been quiet: what has come in the
meantime takes a moment to be fetched."""
_SHORT_BREAK: Final = 60.0
"""Seconds between a checkpoint and its restore that count as quiet at least; after longer breaks quiet times begin
anew, since much may have come."""
_SURE: Final = 2
"""Records of a jump at the end of a split for which it is believed."""
_JUMP_HOLDS: Final = 1.0
"""Seconds of reading after which a jump of a split's timestamps is believed, if no record from before it came."""


class SplitTime:
    """What the generator knows of one split. The record loop writes to it directly, as a call a record costs too much:
    before it raises `largest` it makes sure that the step is no larger than `WatermarkGenerator.max_ahead` and the new
    value not above `WatermarkGenerator.horizon`, else it calls `jump`. On the first record since the last `on_clock`
    (`touched` is false) it calls `touch`.
    """

    __slots__ = (
        "counts", "id", "idle", "jump", "jump_records", "jump_since", "largest", "quiet_since", "touched", "waits"
    )  # fmt: skip

    def __init__(self, id: Hashable, largest: int, quiet_since: float) -> None:
        self.id = id
        self.largest = largest
        """Largest timestamp so far, milliseconds since the epoch."""
        self.touched = False
        """Records have come since the last `on_clock`."""
        self.counts = True
        """It is read."""
        self.idle = False
        self.waits = False
        """Records of it are there that have not been read."""
        self.quiet_since = quiet_since
        """On the generator's clock."""
        self.jump: int | None = None
        """A timestamp far ahead of `largest` that may be wrong, or where the split goes on."""
        self.jump_since = 0.0
        self.jump_records = 0


class WatermarkGenerator:
    """The watermark lies `lateness` behind the largest timestamp of the split that is furthest behind.

    A split without records yet holds it back. A split whose source tells that it isn't read any more does not, nor does
    one that had no records for `idle_after` seconds, unless its source knows of some that wait. When all splits that
    are read are idle, none holds others back: the one that is furthest counts. When no split had any for `quiet_after`
    seconds, the watermark goes on with the clock, from the largest timestamp of all. That clock stands still while the
    reader of the splits is held up: it would find records if it looked. How long splits have been quiet is state, with
    short breaks between a checkpoint and its restore.

    Args:
        lateness: milliseconds.
        idle_after: seconds; `None` = splits are never idle.
        now: monotonic clock, seconds.
        quiet_after: seconds; `None` = without records there are no watermarks.
        max_ahead: milliseconds by which a timestamp may be ahead of the host's clock, or of what its split has reached;
            `None` = any.
        wall_clock: seconds since the epoch.
    """

    def __init__(
        self,
        lateness: int,
        idle_after: float | None,
        now: float,
        quiet_after: float | None = None,
        max_ahead: int | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._lateness = lateness
        self._idle_after = min((one for one in (idle_after, quiet_after) if one is not None), default=None)
        self._quiet_after = quiet_after
        self.max_ahead = 2**65 if max_ahead is None else max_ahead
        """Milliseconds; more than any two timestamps differ by = no limit."""
        self.wall_clock = wall_clock
        self.period = PERIOD
        """Seconds between two watermarks."""
        self.horizon = MAX_WATERMARK if max_ahead is None else NO_RECORD
        """Timestamps up to it are surely not too far ahead of the host's clock."""
        self._now = now
        self._clock = 0.0
        """Seconds in which the splits could be read."""
        self._first_look_until = 0.0
        self._next = now
        self._splits: dict[Hashable, SplitTime] = {}
        self._restored: dict[Hashable, int] = {}
        """Largest timestamps of restored splits that weren't asked for yet."""
        self._restored_quiet: dict[Hashable, float] = {}
        """For how long they had been quiet, in seconds."""
        self._told = False
        """Somebody said which splits there are."""
        self.emitted: int | None = None
        """The last watermark that was sent."""
        self.ahead = 0
        """Records that were too far ahead to move the watermark."""
        self.last_ahead: tuple[Hashable, int] | None = None
        """Split and timestamp of the last one."""

    def split(self, id: Hashable) -> SplitTime:
        """The split's times; a split that wasn't there is from now on."""
        found = self._splits.get(id)
        if found is None:
            quiet_since = self._clock - self._restored_quiet.pop(id, 0.0)
            found = self._splits[id] = SplitTime(id, self._restored.pop(id, NO_RECORD), quiet_since)
        return found

    def set_splits(self, ids: Iterable[Hashable], waiting: Iterable[Hashable] = ()) -> None:
        """The splits that are read now; others count no more, until a record comes from them.

        Args:
            waiting: those of which records are there that have not been read: they aren't idle.
        """
        self._told = True
        wanted, waiting = set(ids), set(waiting)
        for id in wanted:
            split = self.split(id)
            if not split.counts:
                split.counts, split.quiet_since = True, self._clock
            split.waits = id in waiting
            split.idle = split.idle and not split.waits
        for id, split in self._splits.items():
            if id not in wanted:
                split.counts = split.touched = False

    # -- records ------------------------------------------------------------------------------------------------

    def touch(self, split: SplitTime, at: int | None = None) -> None:
        """A record came, with this timestamp."""
        split.touched = split.counts = True
        split.idle = False
        if split.jump is not None and at is not None and split.largest != NO_RECORD:
            if at - split.largest <= self.max_ahead:
                self._left_out(split)  # the split goes on where it was
            else:
                split.touched = False

    def jump(self, split: SplitTime, at: int) -> None:
        """A record came whose timestamp is more than `max_ahead` larger than the split's largest, or is above the
        horizon."""
        self.horizon = int(self.wall_clock() * 1000) + self.max_ahead
        split.quiet_since = self._clock
        if at > self.horizon:
            self.ahead += 1
            self.last_ahead = (split.id, at)
        elif split.largest != NO_RECORD and at - split.largest <= self.max_ahead:
            split.largest = at
        else:
            if split.jump is not None and at < split.jump - self.max_ahead:
                self._left_out(split)  # the nearer one is the likelier one
            if split.jump is not None and at - split.jump > self.max_ahead:
                # Records that are far apart each look like a jump; what goes on from one is believed.
                split.largest = max(split.largest, split.jump)
                split.jump, split.jump_records = None, 0
            if split.jump is None:
                split.jump, split.jump_since = at, self._clock
            split.jump = max(split.jump, at)
            split.jump_records += 1
            split.touched = False  # so that the next record is shown to `touch`

    def _left_out(self, split: SplitTime) -> None:
        """The jump was none."""
        assert split.jump is not None
        self.ahead += split.jump_records
        self.last_ahead = (split.id, split.jump)
        split.jump, split.jump_records = None, 0

    def _believe(self, split: SplitTime) -> None:
        if split.jump is not None and self._clock - split.jump_since >= _JUMP_HOLDS:
            split.largest = max(split.largest, split.jump)
            split.jump, split.jump_records = None, 0

    # -- time ---------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """There is no split from which records are expected."""
        reading = self._reading()
        return all(split.idle for split in reading) and (self._told or bool(reading))

    @property
    def follows_clock(self) -> bool:
        """All splits have been quiet for `quiet_after`, and there was a record."""
        reading = self._reading()
        return (
            self._quiet_after is not None
            and all(split.idle and self._quiet(split) >= self._quiet_after for split in reading)
            and any(split.largest != NO_RECORD for split in reading)
        )

    @property
    def newest(self) -> int | None:
        """The largest timestamp of all splits, those that have ended included."""
        return self._known(split.largest for split in self._splits.values())

    @property
    def end_of_data(self) -> int | None:
        """The largest timestamp, once nothing comes any more that could contradict a jump."""
        return self._known(
            split.largest if split.jump is None or split.jump_records < _SURE else split.jump
            for split in self._splits.values()
        )

    @staticmethod
    def _known(timestamps: Iterable[int]) -> int | None:
        largest = max(timestamps, default=NO_RECORD)
        return None if largest == NO_RECORD else largest

    @property
    def held_back(self) -> bool:
        """Some splits hold back others that are read."""
        return 0 < len(self.holding()) < len(self._reading())

    def holding(self) -> list[tuple[Hashable, int | None, float]]:
        """The splits that the watermark waits for: id, largest timestamp and seconds for which they have been quiet.
        Those without any record, else those that are furthest behind."""
        active = [split for split in self._reading() if not split.idle]
        lowest = min((split.largest for split in active), default=None)
        return [
            (split.id, None if lowest == NO_RECORD else lowest, self._quiet(split))
            for split in active
            if split.largest == lowest
        ]

    def _reading(self) -> list[SplitTime]:
        return [split for split in self._splits.values() if split.counts]

    def _quiet(self, split: SplitTime) -> float:
        """For how long it has been, in seconds."""
        return 0.0 if split.touched or split.waits else self._clock - split.quiet_since

    def on_clock(self, now: float, held_up: bool, most: float = math.inf) -> int | None:
        """Time has passed.

        Args:
            held_up: the splits were not read since the last call, whatever lies in them.
            most: seconds that count as read since the last call.

        Returns:
            The next watermark, if it has advanced and the period since the last one is over, or all splits have fallen
            idle, which is told behind it.
        """
        if not held_up:
            self._clock += min(now - self._now, most)
        self._now = now
        looked = self._clock >= self._first_look_until
        for split in self._reading():
            if split.jump is not None:
                self._believe(split)
            if split.touched or split.waits:
                split.touched = False
                split.quiet_since = self._clock
            elif looked and self._idle_after is not None and self._quiet(split) >= self._idle_after:
                split.idle = True
        return self._news() if now >= self._next or (self.idle and not self.follows_clock) else None

    def passed(self, timestamp: int, now: float) -> None:
        """The watermark was sent."""
        if self.emitted is None or timestamp > self.emitted:
            self.emitted = timestamp
            self._next = now + self.period

    def _news(self) -> int | None:
        reading = self._reading()
        if self.follows_clock:
            since = min(self._quiet(split) for split in reading if split.largest != NO_RECORD)
            reached = min(max(split.largest for split in reading) + int(since * 1000), MAX_WATERMARK - 1)
        else:
            furthest = max((split.largest for split in reading), default=NO_RECORD)
            reached = min((split.largest for split in reading if not split.idle), default=furthest)
            if reached == NO_RECORD:
                return None
        watermark = max(reached - self._lateness - 1, NO_RECORD)
        return watermark if self.emitted is None or watermark > self.emitted else None

    def seconds_to_next(self, now: float) -> float:
        """How long until `on_clock` may have something to say, if no record comes before."""
        reading = self._reading()
        until = [max(0.0, self._next - now)] if self._news() is not None else []
        ends = [split.jump_since + _JUMP_HOLDS for split in reading if split.jump is not None]
        if self._idle_after is not None:
            ends += [
                max(split.quiet_since + self._idle_after, self._first_look_until) for split in reading if not split.idle
            ]
        if self._quiet_after is not None and reading:
            quiet_at = max(split.quiet_since for split in reading) + self._quiet_after
            if self.follows_clock:
                until.append(max(PERIOD / 4, self._next - now))
            elif quiet_at > self._clock:
                ends.append(quiet_at)
        return min(until + [max(0.0, end - self._clock) for end in ends], default=float("inf"))

    # -- checkpoints --------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """State that `restore` takes."""
        reading = self._reading()
        return {
            "splits": [[split.id, split.largest] for split in reading if split.largest != NO_RECORD],
            "quiet": [[split.id, self._quiet(split)] for split in reading if self._quiet(split) > 0],
            "at": self.wall_clock(),
            "emitted": self.emitted,
        }

    def restore(self, states: Iterable[Mapping[str, Any]], own: Mapping[str, Any] | None) -> None:
        """Take over what old subtasks knew, before anything else is called.

        Args:
            states: of all subtasks whose splits may be read here now. Where two tell of one split, the lower counts.
            own: the state of this very subtask, where the parallelism is the same; `None` = it is another.
        """
        states = list(states)
        for id, largest in (one for state in states for one in state["splits"]):
            self._restored[id] = min(largest, self._restored.get(id, MAX_WATERMARK))
        for state in states:
            self._restore_quiet(state)
        for id, split in self._splits.items():
            split.largest = self._restored.pop(id, split.largest)
            split.quiet_since = self._clock - self._restored_quiet.pop(id, 0.0)
        self._first_look_until = self._clock + _FIRST_LOOK
        emitted = [state["emitted"] for state in (states if own is None else [own])]
        if emitted and None not in emitted:
            self.emitted = min(emitted)

    def _restore_quiet(self, state: Mapping[str, Any]) -> None:
        if "at" not in state:
            return  # of a version that didn't keep it
        break_ = max(0.0, self.wall_clock() - state["at"])  # clocks of hosts differ
        longest = max(_SHORT_BREAK, *(2 * (one or 0.0) for one in (self._idle_after, self._quiet_after)))
        if break_ > longest:
            return
        for id, quiet in state["quiet"]:
            self._restored_quiet[id] = min(quiet + break_, self._restored_quiet.get(id, quiet + break_))
