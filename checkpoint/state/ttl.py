"""Time to live: what users ask for, the clocks that it goes by, and when an entry is over.

An entry is a value, an item of a list or an entry of a map. It is stamped with the time of its last write (or read),
and over once its clock says that time plus the time to live.

What has no time of its own is stamped `UNKNOWN`: entries of a run in which the state had no time to live, or one by the
other clock, and what was written before event time was known. It counts from when the clock began in this run.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from checkpoint.options import Seconds, named_options, one_of, seconds

ClockName: TypeAlias = Literal["processing", "event"]

UNKNOWN: Final = -(2**63)
"""A stamp that is below all others."""
_NOTHING: Final = UNKNOWN - 1
"""A bound that no stamp is at or below."""
_STAMP: Final = 8
"""Bytes of a stamp in a file."""


@named_options
@dataclass(frozen=True)
class TTL:
    """After how long an entry of keyed state is gone: `ValueState(ttl=TTL(3600, time="event"))`.

    `ttl=3600` is the same as `ttl=TTL(3600)`.

    Args:
        after: seconds or `timedelta`, to the millisecond. An entry is gone once this has passed since its last refresh.
        time: `"processing"` (the default): by the clock of the host, while no job runs, too. `"event"`: by the
            watermark; an entry counts from its record's timestamp, or from the watermark where that is further.
        refresh: what lets an entry live on: writing it (`"write"`, the default), or reading it, too
            (`"read_and_write"`). A change in place is a read.
    """

    after: Seconds
    time: ClockName = "processing"
    refresh: Literal["write", "read_and_write"] = "write"

    def __post_init__(self) -> None:
        """
        Raises:
            ValueError: an option has a value that it can't have.
        """
        seconds(self.after, "after", 0.001, finite=True)
        one_of(self.time, "time of a TTL", ("processing", "event"))
        one_of(self.refresh, "refresh of a TTL", ("write", "read_and_write"))

    @property
    def milliseconds(self) -> int:
        return round(seconds(self.after, "after") * 1000)


def ttl_of(given: TTL | Seconds | None) -> TTL | None:
    """The `ttl` option of a state.

    Raises:
        ValueError: it is no time to live.
    """
    if given is None or isinstance(given, TTL):
        return given
    seconds(given, "ttl", 0.001, finite=True)
    return TTL(given)


class RecordTime(Protocol):
    """The record in progress."""

    timestamp: int | None


class Clock:
    """The time that entries live by, in milliseconds. Never goes back."""

    __slots__ = ("_lifetimes", "began", "now")

    def __init__(self) -> None:
        self.now: int | None = None
        """`None` = not known yet: nothing is over."""
        self.began: int | None = None
        """From here on counts what has no time of its own."""
        self._lifetimes: list[Lifetime] = []

    def lifetime(self, ttl: TTL) -> Lifetime:
        """Of the entries of one state."""
        lifetime = Lifetime(ttl, self)
        self._lifetimes.append(lifetime)
        return lifetime

    def advance(self, to: int) -> None:
        """It is `to`, if it was not later before."""
        if self.now is not None and to <= self.now:
            return
        self.now = to
        if self.began is None:
            self.began = to
        for lifetime in self._lifetimes:
            lifetime.look()

    def stamp(self) -> int:
        """What is written now is stamped with this."""
        raise NotImplementedError


class ProcessingClock(Clock):
    """The clock of the host, as processing timers see it.

    When a job starts again, timers may be due that belong in front of the end of entries which are over by now. They
    fire first, in order, and see those entries: until then the clock goes from timer to timer.
    """

    __slots__ = ("_behind", "latest")

    def __init__(self) -> None:
        super().__init__()
        self.latest: int | None = None
        """What the host's clock said."""
        self._behind = False

    def begin(self, wall: int, timers_due: bool) -> None:
        """
        Args:
            wall: what the host's clock says as the subtask starts.
            timers_due: processing timers are due now.
        """
        self._behind = timers_due
        self.read(wall)

    def read(self, wall: int) -> None:
        """The host's clock says `wall`."""
        if self.latest is None or wall > self.latest:
            self.latest = wall
        if self.began is None:
            self.began = wall
        if not self._behind:
            self.advance(self.latest)

    def fires(self, at: int) -> None:
        """A timer fires."""
        if self._behind and self.latest is not None:
            self.advance(min(at, self.latest))

    def all_fired(self) -> None:
        """No timer is due any more."""
        if self._behind and self.latest is not None:
            self._behind = False
            self.advance(self.latest)

    def stamp(self) -> int:
        return UNKNOWN if self.latest is None else self.latest


class EventClock(Clock):
    """Event time: the watermark, and while it moves on, from one timer to the next.

    So what a timer sees doesn't depend on how far the watermark moved at once. The end of input is no time: what lives
    then is in the last checkpoint.
    """

    __slots__ = ("record",)

    END: Final = 2**63 - 1

    def __init__(self) -> None:
        super().__init__()
        self.record: RecordTime | None = None
        """Whose timestamp is that of what is written."""

    def passed(self, watermark: int) -> None:
        """All timers up to the watermark have fired."""
        if watermark != self.END:
            self.advance(watermark)

    def fires(self, at: int, reached: int) -> None:
        """A timer fires, since event time has `reached` it."""
        if at == self.END:
            return
        if self.began is None and reached != self.END:
            self.began = reached
        self.advance(at)

    def stamp(self) -> int:
        now = UNKNOWN if self.now is None else self.now
        timestamp = None if self.record is None else self.record.timestamp
        return now if timestamp is None or timestamp < now else timestamp


class Lifetime:
    """When the entries of one state are over.

    `bound` and `over` are for the task thread. Most entries are above the bound, so that is asked first.
    """

    __slots__ = ("_clock", "_unknown_over", "bound", "clock_name", "refreshed_by_reads", "span", "stamp")

    def __init__(self, ttl: TTL, clock: Clock) -> None:
        self._clock = clock
        self.clock_name = ttl.time
        self.refreshed_by_reads = ttl.refresh == "read_and_write"
        self.span = ttl.milliseconds
        self.stamp = clock.stamp
        self.bound = _NOTHING
        """Entries with stamps up to here are over, but for those with none of their own."""
        self._unknown_over = False
        self.look()

    def look(self) -> None:
        """The clock has moved."""
        now, began = self._clock.now, self._clock.began
        if now is not None and began is not None:
            self.bound = now - self.span
            self._unknown_over = began <= self.bound

    @property
    def now(self) -> int | None:
        return self._clock.now

    @property
    def began(self) -> int:
        """When the clock did, in this run. Only where `now` is known."""
        assert self._clock.began is not None
        return self._clock.began

    def over(self, stamp: int) -> bool:
        return stamp <= self.bound and (stamp != UNKNOWN or self._unknown_over)

    def frozen(self) -> FrozenLifetime:
        """As it is at a barrier."""
        return FrozenLifetime(self.clock_name, self.bound, self._unknown_over, self._clock.began)


@dataclass(frozen=True, slots=True)
class FrozenLifetime:
    """A `Lifetime` at a barrier, for the thread that writes the snapshot.

    What is over by the subtask's own clock is left out. It was not seen any more, and what isn't in the snapshot can't
    come back where the watermark, or another host's clock, is behind. What is not over stays, whatever other clocks
    say.
    """

    clock_name: ClockName
    bound: int
    unknown_over: bool
    began: int | None

    def over(self, stamp: int) -> bool:
        return stamp <= self.bound and (stamp != UNKNOWN or self.unknown_over)

    def packed(self, stamps: Sequence[int]) -> bytes:
        """Stamps as a file holds them; those without a time of their own have the clock's beginning, if it is known."""
        if self.began is not None and UNKNOWN in stamps:
            stamps = [self.began if stamp == UNKNOWN else stamp for stamp in stamps]
        return struct.pack(f"<{len(stamps)}q", *stamps)


def unpacked(data: bytes, count: int) -> tuple[int, ...] | None:
    """`count` stamps; `None` if the bytes are others."""
    return struct.unpack(f"<{count}q", data) if len(data) == count * _STAMP else None
