"""What an async step has taken and not emitted yet, and what of it may be emitted next (pure)."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar

R = TypeVar("R")
"""A record that was taken."""
C = TypeVar("C")
"""What is no record and may not overtake any: a watermark, an idle status, the end of an input."""


class QueuedRecord(Generic[R]):
    """One record in the queue."""

    __slots__ = ("done", "lane", "outcome", "record", "segment")

    def __init__(self, record: R, lane: Hashable, segment: _Segment[R, Any]) -> None:
        self.record = record
        self.lane = lane
        self.segment = segment
        self.done = False
        self.outcome: Any = None
        """What became of its request, once it is done."""


class _Segment(Generic[R, C]):
    """The records between two controls, and the controls behind them."""

    __slots__ = ("controls", "lanes", "places", "ready")

    def __init__(self) -> None:
        self.places: dict[QueuedRecord[R], None] = {}
        """Not emitted, in the order of the input."""
        self.lanes: dict[Hashable, deque[QueuedRecord[R]]] = {}
        """Not ready, by lane."""
        self.ready: deque[QueuedRecord[R]] = deque()
        """Done, and all in front of them in their lane are ready, too."""
        self.controls: deque[C] = deque()


class ElementQueue(Generic[R, C]):
    """Records keep their order within a lane. A control comes behind all records that were in front of it, and in
    front of all that were behind it. Between two controls records of different lanes go on as they are done.
    """

    def __init__(self) -> None:
        self._segments: deque[_Segment[R, C]] = deque([_Segment()])
        self.records = 0
        """How many records are not emitted, whether their requests are done or not."""

    def add(self, record: R, lane: Hashable = None) -> QueuedRecord[R]:
        """A record was taken.

        Args:
            lane: records of one lane stay in order; `None` = it is in no lane.
        """
        last = self._segments[-1]
        if last.controls:
            last = _Segment()
            self._segments.append(last)
        place = QueuedRecord(record, lane, last)
        last.places[place] = None
        if lane is not None:
            last.lanes.setdefault(lane, deque()).append(place)
        self.records += 1
        return place

    def add_control(self, control: C) -> None:
        self._segments[-1].controls.append(control)

    def done(self, place: QueuedRecord[R], outcome: Any) -> None:
        """A record's request is done.

        Raises:
            ValueError: it was before.
        """
        if place.done:
            raise ValueError("a request can be done only once")
        place.done, place.outcome = True, outcome
        segment = place.segment
        if place.lane is None:
            segment.ready.append(place)
            return
        lane = segment.lanes[place.lane]
        while lane and lane[0].done:
            segment.ready.append(lane.popleft())
        if not lane:
            del segment.lanes[place.lane]

    @property
    def ready(self) -> bool:
        """Whether `take` or `take_control` would give something."""
        first = self._segments[0]
        return bool(first.ready or (first.controls and not first.places))

    def take(self) -> QueuedRecord[R] | None:
        """The record to be emitted next; `None` if there is none, or a control comes first."""
        first = self._segments[0]
        if not first.ready:
            return None
        place = first.ready.popleft()
        del first.places[place]
        self.records -= 1
        return place

    def take_control(self) -> C | None:
        """The control whose turn it is; `None` if it is no control's."""
        first = self._segments[0]
        if first.places or not first.controls:
            return None
        control = first.controls.popleft()
        if not first.controls and len(self._segments) > 1:
            self._segments.popleft()
        return control

    def rest(self) -> Iterator[tuple[R | None, C | None]]:
        """All that was taken and not emitted, in the order of the input: a record or a control each time."""
        for segment in self._segments:
            for place in segment.places:
                yield place.record, None
            for control in segment.controls:
                yield None, control

    @property
    def controls_wait(self) -> bool:
        """Whether a control waits for records."""
        return any(segment.controls for segment in self._segments)

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return bool(self.records or self._segments[0].controls)
