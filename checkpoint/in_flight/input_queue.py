"""The receiving end of a channel: a queue that can record what comes in front of a barrier that is not here yet."""

from __future__ import annotations

from collections import deque

from checkpoint.elements import BarrierElement, CancelMarker, Element, InFlight, RestoreBarrier, is_in_flight

_NEEDS_NO_ROOM = frozenset({BarrierElement, CancelMarker, RestoreBarrier})


class InputQueue:
    """Pure; the owner sees to it that one thread uses it at a time.

    A capture begins with what is queued and ends when the checkpoint's barrier arrives. That barrier isn't queued any
    more: it has done its work. Several captures may be open at once, each for its own checkpoint.
    """

    def __init__(self) -> None:
        self._queue: deque[Element] = deque()
        self._captures: dict[int, list[InFlight]] = {}
        """Open captures by checkpoint id."""

    def arrive(self, element: Element) -> list[InFlight] | None:
        """Queue an element.

        Returns:
            If the element is the barrier that an open capture has waited for: what was captured.
        """
        if type(element) is BarrierElement:
            captured = self._captures.pop(element.barrier.checkpoint_id, None)
            if captured is not None:
                return captured
        elif self._captures and is_in_flight(element):
            for capture in self._captures.values():
                capture.append(element)
        self._queue.append(element)
        return None

    def take(self, data: bool = True) -> Element | None:
        """The next element; with `data` false only if it needs no room downstream: barriers and what is like them."""
        if not self._queue or not (data or type(self._queue[0]) in _NEEDS_NO_ROOM):
            return None
        return self._queue.popleft()

    def put_back(self, element: InFlight) -> None:
        """Undo `take`, in part if the element is what is left of a batch. Open captures have it already."""
        self._queue.appendleft(element)

    def capture(self, checkpoint_id: int) -> list[InFlight] | None:
        """Record what is queued, and what still arrives, in front of the checkpoint's barrier.

        Returns:
            What was captured, if the barrier is queued already (it is removed); else `arrive` returns it later.

        Raises:
            ValueError: it is being captured already.
        """
        if checkpoint_id in self._captures:
            raise ValueError(f"checkpoint {checkpoint_id} is being captured on this channel already")
        captured: list[InFlight] = []
        for index, element in enumerate(self._queue):
            if isinstance(element, BarrierElement):
                if element.barrier.checkpoint_id == checkpoint_id:
                    del self._queue[index]
                    return captured
            elif is_in_flight(element):
                captured.append(element)
        self._captures[checkpoint_id] = captured
        return None

    def cancel(self, checkpoint_id: int) -> None:
        """The checkpoint is given up: capture no more for it."""
        self._captures.pop(checkpoint_id, None)

    def __len__(self) -> int:
        return len(self._queue)
