"""Noticing that a peer's host is gone: it sends no end of stream, and the kernel would retry for 15 minutes."""

from __future__ import annotations

import socket
from typing import Final

from pipeline.runtime.network.tls_socket import Socket

GONE_AFTER: Final = 30.0
"""Seconds after which a peer that doesn't answer, or takes nothing, counts as gone; the driver gives a silent subtask
as long. A network that is back sooner costs no restart."""
_PROBE_AFTER: Final = 10
"""Seconds without data before the kernel asks an idle peer whether it is there, ..."""
_PROBE_EVERY: Final = 5
"""... and seconds between two questions."""


def fail_when_peer_is_gone(sock: Socket, after: float = GONE_AFTER) -> None:
    """From now on the socket fails with `ETIMEDOUT` once its peer has been gone for about `after` seconds.

    That is so whether it is idle (keepalive) or has sent what nobody acknowledges (user timeout, on Linux).
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    probes = max(1, round((after - _PROBE_AFTER) / _PROBE_EVERY))
    options = {
        "TCP_KEEPIDLE": _PROBE_AFTER,
        "TCP_KEEPINTVL": _PROBE_EVERY,
        "TCP_KEEPCNT": probes,
        "TCP_USER_TIMEOUT": round(1000 * after),
    }
    for name, value in options.items():
        if hasattr(socket, name):  # not all systems have all of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
