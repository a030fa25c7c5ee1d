"""A stream of which some records come too late."""

from __future__ import annotations

from pipeline.by_event_time import LATE
from pipeline.streams.stream import Stream, T


class StreamWithLate(Stream[T]):
    """What a step emits that leaves records out which come too late by event time."""

    def late(self) -> Stream[T]:
        """The records that came too late, each once."""
        return self.side_output(LATE)
