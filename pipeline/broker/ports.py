"""Free loopback ports for servers that must come back on the port they had."""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path

_LOWEST = 15_000


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` different ports that nothing listens on now.

    They lie below the range of ephemeral ports: out of that range a client that reconnects while the server is down
    could be given the server's own port (TCP even lets it connect to itself), and the server could not come back.

    Raises:
        RuntimeError: no free ports were found.
    """
    upper = max(_LOWEST + 1_000, _first_ephemeral())
    ports: list[int] = []
    for port in random.sample(range(_LOWEST, upper), min(500, upper - _LOWEST)):
        if is_free(host, port):
            ports.append(port)
            if len(ports) == count:
                return ports
    raise RuntimeError(f"no {count} free ports on {host} between {_LOWEST} and {upper}")


def _first_ephemeral() -> int:
    setting = Path("/proc/sys/net/ipv4/ip_local_port_range")
    return int(setting.read_text().split()[0]) if setting.exists() else 32_768


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    return obstacle(host, port) is None


def obstacle(host: str, port: int) -> str | None:
    """Why no server can listen there now, and what to do; `None`: one can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Kafka does: TIME_WAIT is no obstacle
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"port {port} of {host} is taken by another server; choose another port"
            if error.errno in (errno.EACCES, errno.EPERM):
                return f"port {port} is not for this user; choose one above 1023"
            return f"{host} is no address of this machine ({error.strerror or error}); choose one of its own"
    return None
