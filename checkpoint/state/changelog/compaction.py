"""Which files of a log of changes are merged (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

MOST_FILES: Final = 32
"""More files are merged whatever their sizes are, since each costs a restore a request."""


class Weight(NamedTuple):
    """Of a file."""

    size: int
    """Bytes."""
    rows: int
    missing: int
    """How many of its rows say that a key has no value any more: such a row is small, and makes another one void."""


def next_merge(files: Sequence[Weight]) -> slice | None:
    """The neighbours that are to become one file, up to the newest; `None`: none.

    A file is merged once those behind it are together as large as it is, or have as many rows, where a key that has no
    value any more counts twice. So each file is larger than all behind it together: a list has at most about
    log₂(oldest / newest) + 2 files, a restore reads at most twice what the oldest has, at least half of whose rows
    count, and a byte is written again about as often as the list has files.

    Args:
        files: oldest first.
    """
    size = rows = 0
    first = None
    for i in range(len(files) - 1, -1, -1):
        if i < len(files) - 1 and (size >= files[i].size or rows >= files[i].rows > 0):
            first = i
        size += files[i].size
        rows += files[i].rows + files[i].missing
    if first is None and len(files) > MOST_FILES:
        first = len(files) - MOST_FILES // 2
    return None if first is None else slice(first, len(files))
