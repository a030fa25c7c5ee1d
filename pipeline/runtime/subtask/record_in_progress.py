"""The record that a subtask is working on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class RecordInProgress:
    """One for each subtask, shared by its steps. Whoever begins with a record, or with a timer, sets what holds for it.

    A step that hands on what is no longer this record (`assign_timestamps`, `map_batches`) puts back what it has
    changed here, since steps in front of it may not be done with theirs.
    """

    __slots__ = ("decoded", "key_bytes", "key_group", "muted", "row", "source_rows", "source_splits", "timestamp")

    def __init__(self) -> None:
        self.timestamp: int | None = None
        """Milliseconds since the epoch; `None` = none is known."""
        self.key_bytes: bytes | None = None
        """The encoded key; `None` = it has none."""
        self.key_group = 0
        """The group of `key_bytes`; meaningless without a key."""
        self.row = 0
        """Its place in `source_rows` and `source_splits`."""
        self.source_rows: Sequence[Any] | None = None
        """What the source knows of each record of its batch."""
        self.source_splits: Any = None
        """The splits of the source's batch: a list with that of each record, or the one of all."""
        self.muted = False
        """See `mute`."""
        self.decoded: dict[bytes, Any] = {}
        """Keys that were decoded before, by `key_bytes`."""

    def leave(self) -> None:
        """There is neither a record nor a timer any more."""
        self.timestamp = self.key_bytes = None

    @contextmanager
    def mute(self) -> Iterator[None]:
        """While an operator is told something beside records and timers, what it emits to side outputs is dropped."""
        self.muted = True
        try:
            yield
        finally:
            self.muted = False
