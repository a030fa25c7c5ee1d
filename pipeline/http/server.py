"""A job's web server: one thread of its own, from the job's start to its end."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from pipeline.errors import PipelineError
from pipeline.http.address import Address, token_for

try:
    import prometheus_client as _  # noqa: F401  # needed later, when nothing may be missing any more
    import uvicorn

    from pipeline.http.access import Access
    from pipeline.http.app import make_app
    from pipeline.http.connections import ImpatientProtocol
    from pipeline.http.guard import LOGIN
    from pipeline.http.long_requests import LongRequests
except ImportError as error:
    raise PipelineError(
        f"http=… needs libraries of which one can't be imported ({error}); pip install 'weir-streams[http]', on the "
        "driver"
    ) from error

from pipeline.http.watched_job import FRESH, WatchedJob

if TYPE_CHECKING:
    from pipeline.handle import JobHandle
    from pipeline.http.tls import Certificate

_LOG = logging.getLogger(f"weir.{__name__}")
_LAST_ANSWERS: Final = 5
"""Seconds that the last answers may take once the job has ended; a request that is still being sent has one more."""
_AT_ONCE: Final = 64
"""Connections; more are answered by 503."""


class HttpServer:
    """Listens from the beginning, and answers from `start` on.

    Args:
        certificate: with it the server speaks TLS, and nothing else.

    Raises:
        PipelineError: the address can't be listened at, or other hosts reach it and there is no token of the user's.
    """

    def __init__(
        self, address: Address, ready_within: float | None = None, certificate: Certificate | None = None
    ) -> None:
        self.token = token_for(address)
        self._ready_within = ready_within
        self._certificate = certificate
        try:
            self._listener = _listen(address)
        except (OSError, UnicodeError) as error:
            raise PipelineError(
                f"http={str(address)!r} can't be listened at: {error}. Choose another port (0: the system chooses "
                "one), or end who has it"
            ) from error
        self._port = self._listener.getsockname()[1]
        scheme = "http" if certificate is None else "https"
        own = Address(address.host, self._port)
        self.url = f"{scheme}://{own}"
        self._for_browser = f"{scheme}://{own.for_browser}"
        self._access = Access(self.token, address.is_loopback)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._requests = LongRequests()
        self._blind = False

    def start(self, name: str, handle: JobHandle) -> None:
        """Answer for this job, in a thread that keeps no process alive."""
        job = WatchedJob(name, handle, self._ready_within)
        certificate = self._certificate
        config = uvicorn.Config(
            make_app(job, self._access, self._port, self._requests),
            http=ImpatientProtocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="error",  # warnings are about clients, and strangers could fill the log of the job with them
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_AT_ONCE,
            ssl_context_factory=None if certificate is None else lambda *_: certificate.context,
        )
        self._server = uvicorn.Server(config)
        run = self._run(self._server, job)
        self._thread = threading.Thread(target=lambda: asyncio.run(run), name=f"weir-http-{name}", daemon=True)
        self._thread.start()

    def new_link(self) -> str:
        """A link for a browser of this host, which can be used once within two minutes."""
        return f"{self._for_browser}{LOGIN}?code={self._access.new_code()}"

    def close(self) -> None:
        """The job has ended, or doesn't start: give the last answers; returns at once."""
        self._closing.set()
        if self._thread is None:
            self._listener.close()

    def asks_here(self) -> bool:
        """Whether this thread answers a request: it must not wait for its own end."""
        return threading.current_thread() is self._thread or self._requests.asks_here()

    def await_close(self) -> None:
        """Wait until the last answers are given. Not for long."""
        if self._thread is not None:
            self._thread.join(2 * _LAST_ANSWERS)

    async def _run(self, server: uvicorn.Server, job: WatchedJob) -> None:
        serving = asyncio.create_task(server.serve([self._listener]))
        looked = time.monotonic()
        while not self._closing.is_set() and not serving.done():
            await asyncio.sleep(0.1)
            if time.monotonic() - looked >= FRESH:
                looked = time.monotonic()
                self._look(job)
                if self._certificate is not None:
                    self._certificate.renew()
        self._look(job)
        until = time.monotonic() + _LAST_ANSWERS
        while self._requests.owes_answers and time.monotonic() < until and not serving.done():
            await asyncio.sleep(0.1)
        self._requests.over = True
        server.config.timeout_graceful_shutdown = max(1, round(until - time.monotonic()))
        server.should_exit = True
        await serving

    def _look(self, job: WatchedJob) -> None:
        """A look that fails must not end the server: probes would find a dead process. Requests about the job look
        themselves, and are answered by 500."""
        try:
            job.look()
        except Exception:
            if not self._blind:
                _LOG.exception("the web server of job %s can't tell how the job is doing", job.name)
            self._blind = True
        else:
            self._blind = False


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    return socket.create_server((address.host, address.port), family=family)
