"""What a lookup join remembers of the service."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

from checkpoint.options import Seconds, named_options, seconds, whole_number

MISSING: Final = object()
"""The cache doesn't know of the key."""


@named_options
@dataclass(frozen=True)
class LookupCache:
    """How much a lookup join remembers of what it has found, in each subtask, and for how long.

    Args:
        size: keys; the one that was asked for longest ago goes first. Default: 10,000.
        ttl: seconds, or a `timedelta`, for which an answer is used. Default: 60 s.
        ttl_missing: the same of an answer that there is nothing; 0 = not at all. `None` (the default): as `ttl`.
    """

    size: int = 10_000
    ttl: Seconds = 60.0
    ttl_missing: Seconds | None = None

    def __post_init__(self) -> None:
        whole_number(self.size, "size", 1)
        seconds(self.ttl, "ttl")
        if self.ttl_missing is not None:
            seconds(self.ttl_missing, "ttl_missing")

    def make(self, clock: Callable[[], float]) -> Remembered:
        """An empty one; `clock` gives seconds."""
        ttl = seconds(self.ttl, "ttl")
        missing = ttl if self.ttl_missing is None else seconds(self.ttl_missing, "ttl_missing")
        return Remembered(self.size, ttl, missing, clock)


DEFAULT_CACHE: Final = LookupCache()


class Remembered:
    """Answers by key, bounded in number and time."""

    def __init__(self, size: int, ttl: float, ttl_missing: float, clock: Callable[[], float]) -> None:
        """
        Args:
            ttl: seconds for which an answer counts.
            ttl_missing: the same of `None`.
            clock: in seconds.
        """
        self._size = size
        self._ttl = ttl
        self._ttl_missing = ttl_missing
        self._clock = clock
        self._entries: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        """Until when it counts, and the answer; the one that was asked for longest ago first."""

    def get(self, key: Hashable) -> Any:
        """The answer, or `MISSING`."""
        entry = self._entries.get(key)
        if entry is None:
            return MISSING
        until, answer = entry
        if self._clock() >= until:
            del self._entries[key]
            return MISSING
        self._entries.move_to_end(key)
        return answer

    def put(self, key: Hashable, answer: Any) -> None:
        ttl = self._ttl_missing if answer is None else self._ttl
        if ttl <= 0:
            return
        self._entries[key] = (self._clock() + ttl, answer)
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)
