"""The sockets of a network thread. A simulation has others."""

from __future__ import annotations

import selectors
import socket
from typing import Any, Final

from pipeline.runtime.network.establish import Endpoint, Establisher
from pipeline.runtime.network.tcp_keepalive import fail_when_peer_is_gone
from pipeline.runtime.network.tls_socket import Socket

_BACKLOG: Final = 128


class Sockets:
    """The system's own."""

    def listen(self, host: str) -> socket.socket:
        """A listener on a free port.

        Raises:
            OSError: the host can't be bound to.
        """
        endpoint = Endpoint.resolve(host, 0)
        listener = socket.socket(endpoint.family, socket.SOCK_STREAM)
        try:
            listener.bind(endpoint.sockaddr)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        listener.setblocking(False)
        return listener

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """Two that are connected to each other, with which a thread wakes another one."""
        waker, woken = socket.socketpair()
        waker.setblocking(False)
        woken.setblocking(False)
        return waker, woken

    def selector(self) -> selectors.BaseSelector:
        return selectors.DefaultSelector()

    def establisher(self, *args: Any, **kwargs: Any) -> Establisher:
        """Makes connections; arguments as of `Establisher`."""
        return Establisher(*args, **kwargs)

    def resolve(self, host: str, port: int) -> Endpoint:
        """
        Raises:
            OSError: the name is unknown.
        """
        return Endpoint.resolve(host, port)

    def connected(self, sock: Socket) -> None:
        """A connection is there: prepare it for frames."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        fail_when_peer_is_gone(sock)


SOCKETS: Final = Sockets()
