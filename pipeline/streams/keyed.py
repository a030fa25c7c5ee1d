"""A stream distributed by key, and what can be done with the records of a key."""

from __future__ import annotations

from pipeline.streams.stream import Stream, T


class KeyedStream(Stream[T]):
    """A stream distributed by key: its next step may be a `KeyedOperator`."""
