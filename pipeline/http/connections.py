"""Connections of clients that ask too slowly."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

PATIENCE: Final = 10.0
"""Seconds that a request may take to come. Without a bound, whoever reaches the port could hold all connections without
a token, and a probe would find the job dead."""


class ImpatientProtocol(H11Protocol):
    """Ends a connection whose next request has not begun to be answered within one to two times `PATIENCE`."""

    _seen: Any = None
    """The newest request at the last look."""
    _next_look: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_look.cancel()
        super().connection_lost(exc)

    def _look_later(self) -> None:
        self._next_look = asyncio.get_running_loop().call_later(PATIENCE, self._look)

    def _look(self) -> None:
        newest = self.cycle
        under_way = newest is not None and not newest.response_complete
        if newest is self._seen and not under_way:
            self.transport.close()
        else:
            self._seen = newest
            self._look_later()
