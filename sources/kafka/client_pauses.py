"""When a closed source pauses its consumer, and when it merely leaves the queue alone. Pure."""

from __future__ import annotations

from typing import Final

PAUSE_AFTER_S: Final = 1.0
"""A gate that closes again and again for less than this never costs a fetch."""
REFETCH_SHARE: Final = 0.1
"""At most this share of what was delivered is fetched a second time."""


class PausePolicy:
    """`pause()` makes the client throw away what it has fetched ahead, and fetch it again later.

    Leaving the queue alone stops fetching just as well: it is bounded, and no group evicts a consumer that is
    silent. So a closing becomes a pause only when it lasts, and only once the last pause's refetch is paid off by
    what was delivered since. A slow job, which delivers less between two closings than the client fetches ahead,
    would otherwise fetch many times what it delivers.
    """

    def __init__(self, prefetch_bytes: int) -> None:
        self._cost = prefetch_bytes
        self._delivered = 0
        self._closed_at: float | None = None

    @property
    def closed(self) -> bool:
        return self._closed_at is not None

    def close(self, now: float) -> None:
        if self._closed_at is None:
            self._closed_at = now

    def open(self) -> None:
        self._closed_at = None

    def delivered(self, size: int) -> None:
        """Count bytes handed to the runtime."""
        self._delivered += size

    def due(self, now: float) -> bool:
        """Whether the consumer should be paused now."""
        return (
            self._closed_at is not None
            and now - self._closed_at >= PAUSE_AFTER_S
            and self._cost <= self._delivered * REFETCH_SHARE
        )

    def paused(self) -> None:
        """The consumer was paused."""
        self._delivered = 0
