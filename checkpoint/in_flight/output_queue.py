"""The sending end of a channel: a queue in which unaligned barriers overtake everything else."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TypeAlias

from checkpoint.elements import BarrierElement, CancelMarker, Element, InFlight, is_in_flight

Captured: TypeAlias = dict[int, list[InFlight]]
"""By checkpoint id: what its barrier overtook, in order."""


class OutputQueue:
    """Pure; the owner sees to it that one thread changes it at a time, or that `append` alone runs beside `pop`.

    Barriers and cancel markers keep the order of their ids: what would overtake an aligned barrier first makes that one
    unaligned, and takes older cancel markers along. Otherwise a receiver could see checkpoint n + 1 before n and would
    have to give n up, or, worse, would count what lies between the two as behind both.
    """

    def __init__(self, overtakes: bool = True) -> None:
        """`overtakes`: false on broadcast edges, where barriers stay behind the data (see `checkpoint.barriers`)."""
        self._overtakes = overtakes
        self._front: deque[Element] = deque()
        """Barriers that have overtaken the rest, and cancel markers, ids ascending."""
        self._queue: deque[Element] = deque()

    def append(self, element: Element) -> None:
        self._queue.append(element)

    def overtake(self, element: BarrierElement) -> Captured:
        """Put an unaligned barrier in front of everything but older barriers.

        Returns:
            What it and the aligned barriers that it made unaligned on its way have overtaken; all of it stays queued.
        """
        captured = self.make_unaligned(element.barrier.checkpoint_id)
        if self._overtakes:
            captured[element.barrier.checkpoint_id] = [e for e in self._queue if is_in_flight(e)]
            self._front.append(element)
        else:
            captured[element.barrier.checkpoint_id] = []
            self._queue.append(element)
        return captured

    def make_unaligned(self, checkpoint_id: int) -> Captured:
        """Turn the aligned barriers up to this id that still wait here unaligned.

        Returns:
            What they have overtaken; a barrier that has left already is not in it.
        """
        captured: Captured = {}
        if not any(_becomes_unaligned(e, checkpoint_id) or _goes_along(e, checkpoint_id) for e in self._queue):
            return captured
        kept: deque[Element] = deque()
        before: list[InFlight] = []
        for element in self._queue:
            if _becomes_unaligned(element, checkpoint_id):
                assert isinstance(element, BarrierElement)
                unaligned = replace(element, barrier=replace(element.barrier, alignment_timeout=0.0))
                if self._overtakes:
                    captured[element.barrier.checkpoint_id] = list(before)
                    self._front.append(unaligned)
                else:
                    captured[element.barrier.checkpoint_id] = []
                    kept.append(unaligned)
                continue
            if self._overtakes and _goes_along(element, checkpoint_id):
                self._front.append(element)
                continue
            kept.append(element)
            if is_in_flight(element):
                before.append(element)
        self._queue = kept
        return captured

    def peek(self) -> Element | None:
        """What `pop` would give."""
        if self._front:
            return self._front[0]
        return self._queue[0] if self._queue else None

    def pop(self) -> Element:
        return self._front.popleft() if self._front else self._queue.popleft()

    def __bool__(self) -> bool:
        return bool(self._front or self._queue)


def _becomes_unaligned(element: Element, checkpoint_id: int) -> bool:
    return (
        isinstance(element, BarrierElement)
        and element.barrier.checkpoint_id <= checkpoint_id
        and not element.barrier.unaligned
    )


def _goes_along(element: Element, checkpoint_id: int) -> bool:
    return isinstance(element, CancelMarker) and element.checkpoint_id <= checkpoint_id
