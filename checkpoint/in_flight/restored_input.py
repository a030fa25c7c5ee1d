"""What was in flight in the restored checkpoint and comes to this subtask: one sequence, in front of all else."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from checkpoint.elements import ChannelName, InFlight

InFlightEntry: TypeAlias = tuple[ChannelName, InFlight]
"""An element and the channel, of the attempt that captured it, that it was on."""


class RestoredInput:
    """A subtask processes all of it before anything new on any of its inputs, and what a later checkpoint still finds
    here is captured as the same one sequence, which comes first again at the next restore. Sorting it into the new
    channels would let a key's newer records overtake it.
    """

    def __init__(self, entries: Iterable[InFlightEntry] = ()) -> None:
        self._entries: deque[InFlightEntry] = deque(entries)

    @property
    def first(self) -> ChannelName | None:
        """The channel of what `take` would give."""
        return self._entries[0][0] if self._entries else None

    def take(self) -> InFlightEntry | None:
        return self._entries.popleft() if self._entries else None

    def put_back(self, channel: ChannelName, element: InFlight) -> None:
        """Undo `take`, in part if the element is what is left of a batch."""
        self._entries.appendleft((channel, element))

    def rest(self) -> list[InFlightEntry]:
        """What is not processed yet, in order; it stays."""
        return list(self._entries)

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
