"""The driver's server: one authenticated control connection for each subtask."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

from pipeline.runtime.auth import AuthenticationError, authenticate_server
from pipeline.runtime.driver.attempt_events import AttemptEvent, Connected, Lost, Misunderstood, Received
from pipeline.runtime.encryption import Encryption
from pipeline.runtime.keepalive import KeepAlive
from pipeline.runtime.liveness import Limits
from pipeline.runtime.message_connection import MessageConnection, ProtocolError
from pipeline.runtime.network.tcp_keepalive import fail_when_peer_is_gone
from pipeline.runtime.network.tls_socket import Socket
from pipeline.runtime.protocol import TO_DRIVER, Job, ToDriver, ToSubtask
from pipeline.runtime.wire import ConnectionLost, ControlConnection, shut_down

_LOG = logging.getLogger(f"weir.{__name__}")
_Connection = MessageConnection[ToSubtask, ToDriver]
_HANDSHAKE = 60.0
"""Nobody waits for it, and a side that is held for a while is no stranger."""


class ControlServer:
    """Listens for the subtasks of one attempt; a thread for each connection posts what comes, and another one sends
    signs of life on all of them, from the first to the last."""

    def __init__(
        self,
        host: str,
        secret: bytes,
        limits: Limits,
        post: Callable[[AttemptEvent], None],
        encryption: Encryption | None = None,
    ):
        """
        Args:
            post: takes `Connected`, `Received`, `Lost` and `Misunderstood`, from those threads.
            encryption: of all connections; `None`: they are in plain text.
        """
        self._secret = secret
        self._encryption = encryption
        self._limits = limits
        self._post = post
        self._listener = socket.create_server((host, 0))
        self._connections: list[_Connection] = []
        self._lock = threading.Lock()
        self._closed = False
        self._job: Job | None = None
        self._thread = threading.Thread(target=self._accept, name="weir-control-server", daemon=True)
        self._keepalive = KeepAlive(self._there, limits.pace)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()[:2]
        return host, port

    def start(self, job: Job) -> None:
        """`job`: what every subtask is told before anything else."""
        self._job = job
        self._thread.start()
        self._keepalive.start()

    def stop_listening(self) -> None:
        """Refuse new connections; those there are stay."""
        shut_down(self._listener)
        self._listener.close()

    def close(self) -> None:
        self.stop_listening()
        with self._lock:
            self._closed = True
            connections = list(self._connections)
        self._keepalive.stop()
        for connection in connections:
            connection.close()

    def _there(self) -> list[_Connection]:
        with self._lock:
            return list(self._connections)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), name="weir-control-peer", daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        sock: Socket = accepted
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a trigger may follow a heartbeat at once
            fail_when_peer_is_gone(sock, self._limits.vanished)
            if self._encryption is not None:
                sock = self._encryption.server(accepted)
            name = authenticate_server(sock, self._secret, _HANDSHAKE)
        except (AuthenticationError, OSError) as error:
            _LOG.warning("refused a control connection: %s", error)
            sock.close()
            return
        connection: _Connection = MessageConnection(ControlConnection(sock), TO_DRIVER)
        assert self._job is not None
        try:
            connection.send(self._job)
        except (ConnectionLost, ValueError) as error:
            _LOG.warning("%s got no job: %s", name, error)
            connection.close()
            return
        with self._lock:
            if self._closed:
                connection.close()
                return
            self._connections.append(connection)
        self._post(Connected(connection, name))
        try:
            while True:
                message = connection.receive()
                assert message is not None
                self._post(Received(connection, message))
        except ProtocolError as error:
            self._drop(connection)
            self._post(Misunderstood(connection, str(error)))
        except (ConnectionLost, ValueError) as error:
            self._drop(connection)
            self._post(Lost(connection, str(error)))

    def _drop(self, connection: _Connection) -> None:
        with self._lock:
            if connection in self._connections:
                self._connections.remove(connection)
        connection.close()
