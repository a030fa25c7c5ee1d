"""`FakeService`: a service that a test controls, for what asks one."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from typing import Any, Final, Self
from weakref import WeakValueDictionary

from checkpoint.codec import copied
from checkpoint.options import Seconds, named_options, seconds
from pipeline.async_calls.function import AsyncFunction

_START_SECONDS: Final = 10.0


class ServiceError(Exception):
    """The service has answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}")
        self.status = status

    def __reduce__(self) -> Any:
        return ServiceError, (self.status, str(self).partition(" ")[2])


def _same(value: Any) -> Any:
    return value


@named_options
class FakeService:
    """Answers requests as a test says: how late, with what, which ones fail, and not before it lets them.

        with FakeService(lambda city: {"city": city, "temperature": 21}, delay=0.2) as service:
            orders.map_async(service.client(), capacity=1000)
            ...
            assert service.count("Paris") == 1

    In a job it is an HTTP server on loopback: a request is a POST of a JSON value, its answer another one. In the
    process of the test, such as in a `PipelineHarness`, `service.ask` does the same without a server.
    """

    def __init__(self, answer: Callable[[Any], Any] = _same, delay: Seconds = 0.0) -> None:
        """
        Args:
            answer: what the value of a request is answered with; what it raises becomes an error 500.
            delay: seconds that an answer takes.
        """
        self._answer = answer
        self._delay = seconds(delay, "delay", finite=True)
        self._lock = threading.Lock()
        self._requests: list[Any] = []
        self._open = 0
        self._most_open = 0
        self._failing: list[_Failing] = []
        self._held = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._port = 0

    def __reduce__(self) -> Any:
        """Copies of what asks it, such as those that subtasks have, ask the same service, in the same process."""
        _SERVICES[id(self)] = self
        return _service, (os.getpid(), id(self))

    # -- what tests say ---------------------------------------------------------------------------------------------

    @property
    def delay(self) -> float:
        """Seconds that an answer takes; may be set at any time, for the requests to come."""
        return self._delay

    @delay.setter
    def delay(self, delay: Seconds) -> None:
        self._delay = seconds(delay, "delay", finite=True)

    def fail(self, times: int | None = None, when: Callable[[Any], bool] = lambda value: True) -> None:
        """Answer requests with an error 503.

        Args:
            times: the next so many; `None` = all, until `recover`.
            when: only those with such a value.
        """
        with self._lock:
            self._failing.append(_Failing(times, when))

    def recover(self) -> None:
        """Fail no more."""
        with self._lock:
            self._failing.clear()

    def hold(self) -> None:
        """Answer nothing before `release`."""
        with self._lock:
            self._held = True

    def release(self) -> None:
        """Answer what has been held, and what comes."""
        with self._lock:
            self._held = False
            waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_let_go, future)

    # -- what tests see ---------------------------------------------------------------------------------------------

    @property
    def requests(self) -> list[Any]:
        """The values of all requests so far, in the order in which they came, failed ones included."""
        with self._lock:
            return list(self._requests)

    def count(self, value: Any) -> int:
        """How often it was asked for this value."""
        with self._lock:
            return self._requests.count(value)

    @property
    def in_flight(self) -> int:
        """Requests that have no answer yet."""
        with self._lock:
            return self._open

    @property
    def most_in_flight(self) -> int:
        """The most that there were at a time."""
        with self._lock:
            return self._most_open

    # -- the service ------------------------------------------------------------------------------------------------

    async def ask(self, value: Any) -> Any:
        """Its answer, in the process of the test.

        Raises:
            ServiceError: the request fails.
        """
        with self._lock:
            self._requests.append(copied(value))
            self._open += 1
            self._most_open = max(self._most_open, self._open)
            fails = sum(failing.takes(value) for failing in self._failing) > 0
            self._failing = [failing for failing in self._failing if failing.times != 0]
            future = None
            if self._held:
                future = asyncio.get_running_loop().create_future()
                self._waiting.append((asyncio.get_running_loop(), future))
        try:
            if future is not None:
                await future
            await asyncio.sleep(self._delay)
            if fails:
                raise ServiceError(503, "the test has it fail")
            try:
                return self._answer(value)
            except Exception as error:
                raise ServiceError(500, f"{type(error).__name__}: {error}") from error
        finally:
            with self._lock:
                self._open -= 1

    def client(self) -> ServiceClient:
        """What asks it from anywhere on this host: for `map_async` and `join_lookup`.

        Raises:
            RuntimeError: the service is not started.
        """
        if not self._port:
            raise RuntimeError("the service is not started: use it as a context manager, or call start()")
        return ServiceClient("127.0.0.1", self._port)

    def start(self) -> Self:
        """Listen on a free port of loopback."""
        started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop, started), name="fake-service", daemon=True)
        self._thread.start()
        if not started.wait(_START_SECONDS):
            raise TimeoutError(f"the fake service did not listen within {_START_SECONDS:g} s")
        return self

    def stop(self) -> None:
        """End; requests without an answer are cut off. Does nothing the second time."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_START_SECONDS)
            self._loop = self._thread = None
            self._port = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, loop: asyncio.AbstractEventLoop, started: threading.Event) -> None:
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=2048))
        self._port = server.sockets[0].getsockname()[1]
        started.set()
        try:
            loop.run_forever()
            server.close()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head, body = await _read_message(reader)
                if not head.startswith("POST "):
                    _write_message(writer, "HTTP/1.1 405 Method Not Allowed", b"")
                    continue
                try:
                    status, answer = "200 OK", await self.ask(json.loads(body))
                except ServiceError as error:
                    status, answer = f"{error.status} Error", str(error).partition(" ")[2]
                _write_message(writer, f"HTTP/1.1 {status}", json.dumps(answer).encode())
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has gone, or the service ends
        finally:
            writer.close()


_SERVICES: Final[WeakValueDictionary[int, FakeService]] = WeakValueDictionary()


def _service(process: int, number: int) -> FakeService:
    if process != os.getpid():
        raise RuntimeError("a FakeService itself is in the test's process: elsewhere, ask it by its client()")
    return _SERVICES[number]


class _Failing:
    def __init__(self, times: int | None, when: Callable[[Any], bool]) -> None:
        self.times = times
        self._when = when

    def takes(self, value: Any) -> bool:
        if self.times == 0 or not self._when(value):
            return False
        if self.times is not None:
            self.times -= 1
        return True


class ServiceClient(AsyncFunction):
    """Asks a `FakeService` over HTTP. One connection for each request at a time, kept for the next one."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def __call__(self, value: Any) -> Any:
        """
        Raises:
            ServiceError: the service says so.
            ConnectionError: it is gone.
        """
        reader, writer = self._free.pop() if self._free else await asyncio.open_connection(self._host, self._port)
        try:
            _write_message(writer, f"POST / HTTP/1.1\r\nHost: {self._host}", json.dumps(value).encode())
            head, body = await _read_message(reader)
        except asyncio.IncompleteReadError as error:
            writer.close()
            raise ConnectionError(f"the service at {self._host}:{self._port} has hung up") from error
        except BaseException:
            writer.close()
            raise
        self._free.append((reader, writer))
        status, answer = int(head.split(" ", 2)[1]), json.loads(body)
        if status != 200:
            raise ServiceError(status, answer)
        return answer

    async def close(self) -> None:
        for _, writer in self._free:
            writer.close()
        self._free.clear()


async def _read_message(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = next(
        (int(line.partition(":")[2]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0
    )
    return head, await reader.readexactly(length)


def _write_message(writer: asyncio.StreamWriter, head: str, body: bytes) -> None:
    writer.write(
        f"{head}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode("latin-1") + body
    )


def _let_go(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
