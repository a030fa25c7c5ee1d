"""Which files of a log of changes are merged (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MOST_FILES: Final = 32
"""More files are merged whatever their sizes are, since each costs a restore a request."""


def next_merge(sizes: Sequence[int]) -> slice | None:
    """The neighbours that are to become one file, up to the newest; `None`: none.

    A file is merged once those behind it are together as large as it is. So each is larger than all behind it together:
    a list has at most about log₂(oldest / newest) + 2 files, a restore reads at most twice what the oldest has, and
    a byte is written again about as often as the list has files. (The oldest may have more than the state: that keys
    have no value any more takes little room in newer files.)

    Args:
        sizes: in bytes, oldest first.
    """
    behind = 0
    first = None
    for i in range(len(sizes) - 1, -1, -1):
        if behind >= sizes[i] and i < len(sizes) - 1:
            first = i
        behind += sizes[i]
    if first is None and len(sizes) > MOST_FILES:
        first = len(sizes) - MOST_FILES // 2
    return None if first is None else slice(first, len(sizes))
