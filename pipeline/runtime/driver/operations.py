"""What can be asked of a running job from outside its process: a server beside it.

One request on each connection: the client shows that it knows the job's secret, sends what it wants, and gets one
answer. A request has a thread of its own, so one that takes long holds up nobody. The server listens on loopback only.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from pipeline.errors import PipelineError
from pipeline.runtime import running_jobs
from pipeline.runtime.auth import AuthenticationError, authenticate_server, new_secret
from pipeline.runtime.driver.operations_client import HANDSHAKE, LEAST_SECRET, OPEN_HERE, SECRET_VARIABLE
from pipeline.runtime.driver.status.job_status import diagnosis_of, graph_of, status_of
from pipeline.runtime.encryption import Encryption
from pipeline.runtime.network.tls_socket import Socket
from pipeline.runtime.wire import ConnectionLost, ControlConnection, Message, shut_down

if TYPE_CHECKING:
    from pipeline.handle import JobHandle
    from pipeline.http.server import HttpServer
    from pipeline.key_state import At

_LOG = logging.getLogger(f"weir.{__name__}")

_HOST: Final = "127.0.0.1"
_LAST_ANSWERS: Final = 5.0
"""Seconds that the answers of the last requests may take once the job has ended."""


class OperationsServer:
    """Answers requests about one job from its start to its end.

    Raises:
        PipelineError: the secret in WEIR_JOB_SECRET is too short.
    """

    def __init__(self, name: str, handle: JobHandle, http: HttpServer | None = None, encrypt: bool = False):
        self._name = name
        self._handle = handle
        self._http = http
        # Compose or a scheduler may give a job its secret, so that it is known where the job's file isn't.
        self._secret = os.environ.get(SECRET_VARIABLE) or new_secret().hex()
        if len(self._secret.encode()) < LEAST_SECRET:
            raise PipelineError(f"{SECRET_VARIABLE} must have at least {LEAST_SECRET} bytes; or unset it")
        self._encryption = Encryption(self._secret.encode()) if encrypt else None
        self._listener = socket.create_server((_HOST, 0))
        self.address = f"{_HOST}:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        """Guards what follows."""
        self._closing = False
        self._threads: set[threading.Thread] = set()
        self._waiting: set[Socket] = set()
        """Connections whose request hasn't come yet."""
        self._closed = threading.Event()
        OPEN_HERE.add(self.address)
        self._file = running_jobs.announce(
            name,
            self.address,
            self._secret,
            http="" if http is None else http.url,
            http_token="" if http is None else http.token,
            encrypted=encrypt,
        )
        self._acceptor = threading.Thread(target=self._accept, name=f"weir-operations-{name}", daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """Once the job has ended: let the last requests have their answers, and leave nothing behind."""
        with self._lock:
            self._closing = True
            waiting, threads = list(self._waiting), list(self._threads)
        for thing in (self._listener, *waiting):
            shut_down(thing)
        OPEN_HERE.discard(self.address)
        self._listener.close()
        if self._file is not None:
            running_jobs.withdraw(self._file)
        deadline = time.monotonic() + _LAST_ANSWERS
        for thread in (self._acceptor, *threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        self._closed.set()

    def asks_here(self) -> bool:
        """Whether this thread answers a request: it must not wait for its own end."""
        with self._lock:
            return threading.current_thread() in self._threads

    def await_close(self) -> None:
        """Wait until the last answers are sent: the process may end when its job has. Not for long."""
        self._closed.wait(2 * _LAST_ANSWERS)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            try:
                secured = sock if self._encryption is None else self._encryption.server(sock)
            except OSError:  # gone again
                continue
            thread = threading.Thread(target=self._serve, args=(secured,), name="weir-operations-peer", daemon=True)
            with self._lock:
                if self._closing:
                    secured.close()
                    return
                self._threads.add(thread)
                self._waiting.add(secured)
                thread.start()

    def _serve(self, sock: Socket) -> None:
        try:
            authenticate_server(sock, self._secret.encode(), HANDSHAKE)
            connection = ControlConnection(sock)
            request = connection.receive(HANDSHAKE)
            with self._lock:
                self._waiting.discard(sock)
            if request is not None:
                connection.send(**self._answer(request))
        except (AuthenticationError, ConnectionLost, OSError) as error:
            if not self._closing:
                _LOG.warning("job %s: a request from outside was refused or cut off: %s", self._name, error)
        finally:
            with self._lock:
                self._waiting.discard(sock)
                self._threads.discard(threading.current_thread())
            sock.close()

    def _answer(self, request: Message) -> Message:
        kind = request.pop("type")
        try:
            perform = _REQUESTS.get(kind)
            if perform is None:
                raise PipelineError(f"a job can't {kind}; there are {', '.join(_REQUESTS)}")
            return {"type": "done", "result": perform(self, **request)}
        except Exception as error:
            # Whatever went wrong is the asking side's to know.
            return {"type": "failed", "error": type(error).__name__, "message": str(error)}

    def _status(self) -> dict[str, Any]:
        metrics = self._handle.metrics()
        status = status_of(self._name, self.address, self._handle, metrics)
        seen = {**status, "graph": graph_of(self._handle), "subtasks": metrics["subtasks"]}
        return {**status, "diagnosis": [asdict(one) for one in diagnosis_of(self._handle, seen)]}


def _web_link(server: OperationsServer) -> str:
    if server._http is None:
        raise PipelineError(
            "the job has no web server: start it with `weir run --http 127.0.0.1:0`, start(http=…) or WEIR_HTTP"
        )
    return server._http.new_link()


def _cancel(server: OperationsServer) -> str:
    server._handle.cancel()
    return server._handle.status


def _checkpoint(server: OperationsServer, timeout: float | None) -> int:
    return server._handle.checkpoint(timeout)


def _metrics(server: OperationsServer) -> dict[str, Any]:
    return server._handle.metrics()


def _savepoint(server: OperationsServer, uri: str, timeout: float | None) -> str:
    return server._handle.savepoint(uri, timeout)


def _stop(server: OperationsServer, savepoint: str | None, drain: bool, timeout: float | None) -> str | None:
    return server._handle.stop(savepoint, drain, timeout)


def _rescale(server: OperationsServer, parallelism: int, step: str | None, timeout: float | None) -> str:
    return server._handle.rescale(parallelism, step, timeout)[-1].what


def _state(
    server: OperationsServer,
    step: str,
    state: str | None,
    key: bytes,
    map_key: bytes | None,
    at: At,
    timeout: float,
) -> dict[str, Any]:
    """Keys and values are encoded: whoever asks need not have the job's classes."""
    answered = server._handle.state(step).look_up(key, state, map_key, at, timeout)
    return {
        "states": dict(answered.found.states),
        "timers": {clock: list(times) for clock, times in answered.found.timers.items()},
        "as_of": answered.as_of,
        "checkpoint": answered.checkpoint,
    }


_REQUESTS: Final[dict[str, Callable[..., Any]]] = {
    "status": OperationsServer._status,
    "metrics": _metrics,
    "state": _state,
    "checkpoint": _checkpoint,
    "savepoint": _savepoint,
    "rescale": _rescale,
    "stop": _stop,
    "cancel": _cancel,
    "web_link": _web_link,
}
