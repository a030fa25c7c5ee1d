"""What an async step has taken and not emitted yet, and what of it may be emitted next (pure)."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar

R = TypeVar("R")
"""A record that was taken."""
C = TypeVar("C")
"""What is no record and may not overtake any: a watermark, an idle status, the end of an input."""


class Place(Generic[R]):
    """One record's place in the line."""

    __slots__ = ("done", "lane", "outcome", "record", "stretch")

    def __init__(self, record: R, lane: Hashable, stretch: _Stretch[R, Any]) -> None:
        self.record = record
        self.lane = lane
        self.stretch = stretch
        self.done = False
        self.outcome: Any = None
        """What became of its request, once it is done."""


class _Stretch(Generic[R, C]):
    """The records between two controls, and the controls behind them."""

    __slots__ = ("controls", "lanes", "places", "ready")

    def __init__(self) -> None:
        self.places: dict[Place[R], None] = {}
        """Not emitted, in the order of the input."""
        self.lanes: dict[Hashable, deque[Place[R]]] = {}
        """Not ready, by lane."""
        self.ready: deque[Place[R]] = deque()
        """Done, and all in front of them in their lane are ready, too."""
        self.controls: deque[C] = deque()


class Line(Generic[R, C]):
    """Records keep their order within a lane. A control comes behind all records that were in front of it, and in
    front of all that were behind it. Between two controls records of different lanes go on as they are done.
    """

    def __init__(self) -> None:
        self._stretches: deque[_Stretch[R, C]] = deque([_Stretch()])
        self.records = 0
        """How many records are not emitted, whether their requests are done or not."""

    def add(self, record: R, lane: Hashable = None) -> Place[R]:
        """A record was taken.

        Args:
            lane: records of one lane stay in order; `None` = it is in no lane.
        """
        last = self._stretches[-1]
        if last.controls:
            last = _Stretch()
            self._stretches.append(last)
        place = Place(record, lane, last)
        last.places[place] = None
        if lane is not None:
            last.lanes.setdefault(lane, deque()).append(place)
        self.records += 1
        return place

    def add_control(self, control: C) -> None:
        self._stretches[-1].controls.append(control)

    def done(self, place: Place[R], outcome: Any) -> None:
        """A record's request is done.

        Raises:
            ValueError: it was before.
        """
        if place.done:
            raise ValueError("a request can be done only once")
        place.done, place.outcome = True, outcome
        stretch = place.stretch
        if place.lane is None:
            stretch.ready.append(place)
            return
        lane = stretch.lanes[place.lane]
        while lane and lane[0].done:
            stretch.ready.append(lane.popleft())
        if not lane:
            del stretch.lanes[place.lane]

    @property
    def ready(self) -> bool:
        """Whether `take` or `take_control` would give something."""
        first = self._stretches[0]
        return bool(first.ready or (first.controls and not first.places))

    def take(self) -> Place[R] | None:
        """The record to be emitted next; `None` if there is none, or a control comes first."""
        first = self._stretches[0]
        if not first.ready:
            return None
        place = first.ready.popleft()
        del first.places[place]
        self.records -= 1
        return place

    def take_control(self) -> C | None:
        """The control whose turn it is; `None` if it is no control's."""
        first = self._stretches[0]
        if first.places or not first.controls:
            return None
        control = first.controls.popleft()
        if not first.controls and len(self._stretches) > 1:
            self._stretches.popleft()
        return control

    def rest(self) -> Iterator[tuple[R | None, C | None]]:
        """All that was taken and not emitted, in the order of the input: a record or a control each time."""
        for stretch in self._stretches:
            for place in stretch.places:
                yield place.record, None
            for control in stretch.controls:
                yield None, control

    @property
    def controls_wait(self) -> bool:
        """Whether a control waits for records."""
        return any(stretch.controls for stretch in self._stretches)

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return bool(self.records or self._stretches[0].controls)
