"""Which records of a key are in one window (pure). All times are in milliseconds."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from pipeline.errors import PipelineError
from pipeline.joins.options import clamped
from pipeline.windows import Session, Sliding, Tumbling
from pipeline.windows.days import Days
from pipeline.windows.durations import later_by
from pipeline.windows.grid import Grid, Panes


class DueWindow(NamedTuple):
    """A window, as a join needs it."""

    first: int
    last: int
    """The first and the last time in it."""
    closes: int
    """At this watermark no record can come into it any more. Its results have that as their timestamp."""
    frees: int
    """Records before this are in no later window."""
    end: int
    """The first time behind it, as results tell it: of a session a gap behind its last record."""


class WindowAssigner(Protocol):
    """How time is cut into windows."""

    frees: str
    """What the watermark has to pass for a record to go."""

    @property
    def gap(self) -> int | None:
        """Records of which each is no further than that behind the one before are in one window; `None` = windows begin
        and end without regard to records."""

    def closes(self, at: int, watermark: int | None) -> int | None:
        """When the first window closes that a record of that time comes into; `None` = all have."""

    def due(self, earliest: int, last: int, after: int) -> DueWindow:
        """The first window with records of which some end behind `after`.

        Args:
            earliest: the time of the first record of both inputs.
            last: with a gap, the time of the last one that is in the same window.
            after: no window that closed at this time or before is meant.
        """


def assigner_of(who: str, window: object) -> WindowAssigner:
    """
    Raises:
        PipelineError: there is no join by such windows.
    """
    if isinstance(window, Tumbling):
        return _Tumbling(window.grid())
    if isinstance(window, Sliding):
        return _Sliding(window.panes())
    if isinstance(window, Session):
        return _Sessions(window.gap_ms())
    raise PipelineError(f"{who}: window is Tumbling(…), Sliding(…) or Session(…), not {window!r}")


class _Tumbling:
    frees = "the end of its window"
    gap = None

    def __init__(self, grid: Grid | Days) -> None:
        self._grid = grid

    def closes(self, at: int, watermark: int | None) -> int | None:
        closes = clamped(self._grid.bounds(at)[1] - 1)
        return closes if watermark is None or closes > watermark else None

    def due(self, earliest: int, last: int, after: int) -> DueWindow:
        # What has closed has no records any more.
        start, end = self._grid.bounds(earliest)
        return DueWindow(start, end - 1, clamped(end - 1), end, end)


class _Sliding:
    frees = "the end of its last window"
    gap = None

    def __init__(self, panes: Panes) -> None:
        self._panes = panes

    def closes(self, at: int, watermark: int | None) -> int | None:
        pane = self._panes.pane(at)
        end = self._panes.first_end(pane)
        if watermark is not None:
            end = max(end, self._panes.end_from(watermark + 2))
            if end > self._panes.last_end(pane) or clamped(end - 1) <= watermark:
                return None
        return clamped(end - 1)

    def due(self, earliest: int, last: int, after: int) -> DueWindow:
        panes = self._panes
        end = max(panes.first_end(panes.pane(earliest)), panes.end_from(after + 2))
        start = end - panes.size
        return DueWindow(start, end - 1, clamped(end - 1), start + panes.slide, end)


class _Sessions:
    """A session closes when no record can touch it any more: one exactly a gap behind its last one still would."""

    def __init__(self, gap: int) -> None:
        self.gap = gap
        self.frees = later_by("the last time of its session", gap)

    def closes(self, at: int, watermark: int | None) -> int | None:
        closes = clamped(at + self.gap)
        return closes if watermark is None or closes > watermark else None

    def due(self, earliest: int, last: int, after: int) -> DueWindow:
        return DueWindow(earliest, last, clamped(last + self.gap), last + 1, last + self.gap)
