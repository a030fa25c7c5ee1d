"""What users write: `window(Tumbling(60))`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import gcd
from typing import Final
from zoneinfo import ZoneInfo

from checkpoint.options import Seconds, flag, limit, named_options, whole_number
from pipeline.errors import PipelineError
from pipeline.windows.days import Days
from pipeline.windows.durations import milliseconds
from pipeline.windows.grid import Grid, Panes

_DAY: Final = 86_400_000
_MOST_PANES: Final = 1_000_000
"""Of a window: each result may be made of as many."""


class Window:
    """A kind of windows, for `key_by(…).window(…)`."""

    @property
    def shown(self) -> str:
        """What makes its windows, with one text for equal ones."""
        raise NotImplementedError


@named_options
@dataclass(frozen=True)
class Tumbling(Window):
    """Windows of one size, one behind the other: `Tumbling(60)`, `Tumbling(86_400, time_zone="Europe/Paris")`.

    They begin at the epoch, 1970-01-01 00:00 UTC (a Thursday), plus any number of sizes. With a time zone they are
    whole days by its clock: a day on which clocks are changed has 23 or 25 hours.

    Args:
        size: seconds or `timedelta`.
        offset: by how much windows begin later: with `offset=6 * 3600` days go from 6 to 6 o'clock. May be negative.
        time_zone: an IANA name; `None` (the default) = UTC.
    """

    size: Seconds
    offset: Seconds = 0
    time_zone: str | None = None

    def __post_init__(self) -> None:
        """
        Raises:
            PipelineError: an option has a value that it can't have.
        """
        self.grid()

    @property
    def shown(self) -> str:
        size, offset = milliseconds(self.size, "size"), milliseconds(self.offset, "offset", None)
        zone = "" if self.time_zone is None else f", time_zone={self.time_zone!r}"
        return f"Tumbling({size / 1000}, offset={offset % size / 1000}{zone})"

    def grid(self) -> Grid | Days:
        """The windows' bounds."""
        size = milliseconds(self.size, "Tumbling: size")
        offset = milliseconds(self.offset, "Tumbling: offset", None)
        if self.time_zone is None:
            return Grid(size, offset)
        if size % _DAY:
            raise PipelineError(
                f"Tumbling: with a time_zone a window has whole days, and {self.size!r} are none: leave time_zone out "
                "for shorter windows"
            )
        days = size // _DAY
        if days > 10_000:
            raise PipelineError(f"Tumbling: with a time_zone a window has 10,000 days at most, not {days}")
        return Days(_zone(self.time_zone), days, timedelta(milliseconds=offset % size))


@named_options
@dataclass(frozen=True)
class Sliding(Window):
    """Windows of one size that overlap: `Sliding(3600, 60)` has those of an hour, and each minute one begins.

    A record is added once, however many windows it is in: it goes to a *pane* as long as the greatest common divisor of
    size and slide, and a window's result is made of its panes. `slide` must not be above `size`, or there would be
    records in no window.

    Args:
        size: seconds or `timedelta`.
        slide: from one begin to the next; seconds or `timedelta`.
        offset: by how much windows begin later than at the epoch plus any number of slides. May be negative.
    """

    size: Seconds
    slide: Seconds
    offset: Seconds = 0

    def __post_init__(self) -> None:
        """
        Raises:
            PipelineError: an option has a value that it can't have.
        """
        self.panes()

    @property
    def shown(self) -> str:
        size, slide = milliseconds(self.size, "size"), milliseconds(self.slide, "slide")
        offset = milliseconds(self.offset, "offset", None)
        return f"Sliding({size / 1000}, {slide / 1000}, offset={offset % slide / 1000})"

    def panes(self) -> Panes:
        """The windows' bounds and panes."""
        size = milliseconds(self.size, "Sliding: size")
        slide = milliseconds(self.slide, "Sliding: slide")
        offset = milliseconds(self.offset, "Sliding: offset", None)
        if slide > size:
            raise PipelineError(
                f"Sliding: slide ({self.slide!r}) is above size ({self.size!r}), so the records in between would be in "
                "no window; filter them out before, if that is meant"
            )
        panes = Panes(size, slide, offset)
        number = size // panes.width
        if number > _MOST_PANES:
            raise PipelineError(
                f"Sliding: a window of {self.size!r} each {self.slide!r} is made of {number:,} panes of "
                f"{panes.width / 1000:g} s, and {_MOST_PANES:,} are the most; take a slide that is longer, and divides "
                "size"
            )
        return panes


@named_options
@dataclass(frozen=True)
class Session(Window):
    """Windows without a fixed size: `Session(1800)` ends once a key has had no record for half an hour.

    A session goes from its first record to `gap` behind its last one. Records come in any order: one that comes between
    two sessions, no further than `gap` from both, makes one of them. One exactly `gap` away belongs to it, too (as in
    Flink, where touching sessions are merged).

    Args:
        gap: seconds or `timedelta`.
    """

    gap: Seconds

    def __post_init__(self) -> None:
        """
        Raises:
            PipelineError: `gap` is no duration.
        """
        self.gap_ms()

    @property
    def shown(self) -> str:
        return f"Session({self.gap_ms() / 1000})"

    def gap_ms(self) -> int:
        """`gap` in milliseconds."""
        return milliseconds(self.gap, "Session: gap")


@named_options
@dataclass(frozen=True)
class CountWindow(Window):
    """Windows of so many records of a key, in the order in which they come: `CountWindow(100)`.

    With a `slide` there is a result each time that many have come, of the last `size` ones (of fewer, as long as there
    were fewer). Records that fill no window by the end of input give no result. They need no timestamps.

    Args:
        size: records in a window.
        slide: records from one begin to the next. `None` (the default): windows don't overlap.
    """

    size: int
    slide: int | None = None

    def __post_init__(self) -> None:
        """
        Raises:
            PipelineError: an option has a value that it can't have.
        """
        try:
            whole_number(self.size, "CountWindow: size", 1, unit="records")
            whole_number(self.slide_or_size, "CountWindow: slide", 1, self.size)
        except ValueError as error:
            raise PipelineError(str(error)) from None

    @property
    def slide_or_size(self) -> int:
        return self.size if self.slide is None else self.slide

    @property
    def pane(self) -> int:
        """Records of a pane."""
        return gcd(self.size, self.slide_or_size)

    @property
    def shown(self) -> str:
        return f"CountWindow({self.size}, {self.slide_or_size})"


@named_options
@dataclass(frozen=True)
class Global(Window):
    """One window for all records of a key: `Global(count=1000)`, `Global(every=60, clear=True)`.

    It has a result when it is triggered, which is `final` only if the window begins anew behind it (`clear`). Its
    records need no timestamps.

    Args:
        count: triggers when so many records have come since the last result. `None` (the default): no number does.
        every: triggers so often by the clock of the host (seconds or `timedelta`), if records have come. `None` (the
            default): no time does.
        clear: whether each result is of the records since the last one only. Default: `False`.
    """

    count: int | None = None
    every: Seconds | None = None
    clear: bool = False

    def __post_init__(self) -> None:
        """
        Raises:
            PipelineError: an option has a value that it can't have, or nothing would trigger the window.
        """
        if (self.count is None) == (self.every is None):
            raise PipelineError("Global: say what triggers its results, count=… or every=…, one of them")
        try:
            limit(self.count, "Global: count")
            flag(self.clear, "Global: clear")
        except ValueError as error:
            raise PipelineError(str(error)) from None
        self.every_ms  # noqa: B018  # is checked

    @property
    def every_ms(self) -> int | None:
        """`every` in milliseconds."""
        return None if self.every is None else milliseconds(self.every, "Global: every")

    @property
    def shown(self) -> str:
        return f"Global(clear={self.clear})"


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (TypeError, ValueError, LookupError, OSError) as error:
        raise PipelineError(
            f"there is no time zone {name!r} here ({error}): give an IANA name such as Europe/Paris; where the system "
            "has no time zones, install the package tzdata"
        ) from error
