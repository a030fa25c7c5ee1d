"""Virtual sockets: bytes go over a wire that keeps their order, takes time and cuts them anywhere."""

from __future__ import annotations

import selectors
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from virtual.scheduler import Process, Scheduler
from virtual.system import _Waiters

_BUFFER = 4096
"""Bytes that may be on the wire and unread; small, so that senders have to wait."""


class Socket:
    """One end of a connection, non-blocking."""

    def __init__(self, scheduler: Scheduler, process: Process, name: str) -> None:
        self.name = name
        self.process = process
        self._scheduler = scheduler
        self.peer: Socket
        self.unread = bytearray()
        self.on_wire = 0
        self.ended = False
        """The other side has closed its end, and all that it sent is in `unread`."""
        self.closed = False
        self.shut = False
        self._travelling: deque[bytes | None] = deque()
        self._under_way = False
        self.selector: Selector | None = None
        process.at_end.append(self.close)

    # what the runtime calls

    def setblocking(self, flag: bool) -> None: ...

    def setsockopt(self, *_: Any) -> None: ...

    def sendmsg(self, buffers: Iterable[memoryview]) -> int:
        self._check()
        if self.peer.closed:
            raise BrokenPipeError(32, "the peer has closed the connection")
        room = _BUFFER - self.peer.on_wire - len(self.peer.unread)
        if room <= 0:
            raise BlockingIOError
        sent = bytearray()
        for buffer in buffers:
            sent += buffer[: room - len(sent)]
            if len(sent) >= room:
                break
        self._travel(bytes(sent))
        return len(sent)

    def recv_into(self, buffer: memoryview) -> int:
        return self.recvmsg_into([buffer])[0]

    def recvmsg_into(self, buffers: list[memoryview]) -> tuple[int]:
        self._check()
        if not self.unread:
            if self.ended:
                return (0,)
            raise BlockingIOError
        count = 0
        for buffer in buffers:
            part = self.unread[: len(buffer)]
            buffer[: len(part)] = part
            del self.unread[: len(part)]
            count += len(part)
        self.peer.look()
        return (count,)

    def shutdown(self, how: int) -> None:
        if not self.shut:
            self.shut = True
            self._travel(None)

    def close(self) -> None:
        if not self.closed:
            self.shutdown(0)
            self.closed = True
            self.peer.look()

    # the wire

    def _check(self) -> None:
        if self.closed:
            raise OSError(9, "the socket is closed")
        if self.peer.closed and not self.unread and self.ended:
            return
        if self.peer.closed and not self.peer.process.alive and not self.unread and not self._incoming:
            raise ConnectionResetError(104, "the peer is gone")

    @property
    def _incoming(self) -> bool:
        return bool(self.peer._travelling)

    def _travel(self, data: bytes | None) -> None:
        self._travelling.append(data)
        if data:
            self.peer.on_wire += len(data)
        if not self._under_way:
            self._under_way = True
            self._schedule()

    def _schedule(self) -> None:
        pace = self._scheduler.pace_of(self.name)
        self._scheduler.after(2.0 * pace * self._scheduler.rng.random(), self._arrive)

    def _arrive(self) -> None:
        """Some of what is on the wire gets to the other side."""
        data = self._travelling.popleft()
        peer = self.peer
        if data is None:
            peer.ended = True
        else:
            if len(data) > 1 and self._scheduler.rng.random() < 0.1:
                cut = self._scheduler.rng.randrange(1, len(data))
                self._travelling.appendleft(data[cut:])
                data = data[:cut]
            peer.on_wire -= len(data)
            peer.unread += data
        if self._travelling:
            self._schedule()
        else:
            self._under_way = False
        peer.look()

    @property
    def readiness(self) -> int:
        if self.closed:
            return 0
        found = 0
        if self.unread or self.ended:
            found |= selectors.EVENT_READ
        if _BUFFER - self.peer.on_wire - len(self.peer.unread) > 0 or self.peer.closed:
            found |= selectors.EVENT_WRITE
        return found

    def look(self) -> None:
        if self.selector is not None:
            self.selector.changed(self)


class Waker:
    """What a network thread wakes itself with."""

    def __init__(self) -> None:
        self.selector: Selector | None = None
        self.set = False

    def send(self, data: bytes) -> int:
        self.set = True
        if self.selector is not None:
            self.selector.changed(self)
        return len(data)

    def recv(self, size: int) -> bytes:
        self.set = False
        return b"\0"

    @property
    def readiness(self) -> int:
        return selectors.EVENT_READ if self.set else 0

    def setblocking(self, flag: bool) -> None: ...

    def close(self) -> None: ...


class Selector:
    """`selectors.BaseSelector` over virtual sockets."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._keys: dict[Any, selectors.SelectorKey] = {}
        self._waiters = _Waiters(scheduler)

    def register(self, sock: Any, events: int, data: Any = None) -> None:
        self._keys[sock] = selectors.SelectorKey(sock, 0, events, data)
        sock.selector = self
        self.changed(sock)

    def modify(self, sock: Any, events: int, data: Any = None) -> None:
        self._keys[sock] = selectors.SelectorKey(sock, 0, events, data)
        self.changed(sock)

    def unregister(self, sock: Any) -> None:
        del self._keys[sock]
        sock.selector = None

    def get_key(self, sock: Any) -> selectors.SelectorKey:
        return self._keys[sock]

    def close(self) -> None:
        self._keys.clear()

    def changed(self, sock: Any) -> None:
        key = self._keys.get(sock)
        if key is not None and sock.readiness & key.events:
            self._waiters.wake()

    def select(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        found = self._ready()
        if found or timeout == 0:
            return found
        self._waiters.wait(None if timeout is None else self._scheduler.now + timeout)
        return self._ready()

    def _ready(self) -> list[tuple[selectors.SelectorKey, int]]:
        return [(key, mask) for sock, key in self._keys.items() if (mask := sock.readiness & key.events)]


class Listener:
    """Where connections to a network thread arrive."""

    def __init__(self, host: Host, port: int) -> None:
        self.host = host
        self.port = port
        self.selector: Selector | None = None
        self.arrived: deque[tuple[Socket, str]] = deque()
        self.closed = False

    @property
    def readiness(self) -> int:
        return selectors.EVENT_READ if self.arrived else 0

    def arrive(self, sock: Socket, role: str) -> None:
        self.arrived.append((sock, role))
        if self.selector is not None:
            self.selector.changed(self)

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    def close(self) -> None:
        self.closed = True
        self.host.listeners.pop(self.port, None)


class Host:
    """Where all virtual processes run: it knows who listens where."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.listeners: dict[int, Listener] = {}
        self.processes: dict[int, Process] = {}
        self._port = 1000

    def listen(self, process: Process) -> Listener:
        self._port += 1
        listener = self.listeners[self._port] = Listener(self, self._port)
        self.processes[self._port] = process
        process.at_end.append(listener.close)
        return listener


class Sockets:
    """What `pipeline.runtime.network.sockets.Sockets` is to a real network thread."""

    def __init__(self, host: Host, process: Process) -> None:
        self._host = host
        self._process = process

    def listen(self, host: str) -> Listener:
        return self._host.listen(self._process)

    def pair(self) -> tuple[Waker, Waker]:
        waker = Waker()
        return waker, waker

    def selector(self) -> Selector:
        return Selector(self._host.scheduler)

    def establisher(
        self,
        selector: Selector,
        secret: bytes,
        role: Callable[[], str],
        on_accepted: Callable[[Any, str, str], None],
        on_dialled: Callable[[int, Any], None],
        on_failed: Callable[[ConnectionError], None],
        handshake_timeout: float,
        encryption: None,
    ) -> Establisher:
        return Establisher(self._host, self._process, role, on_accepted, on_dialled, on_failed)

    def resolve(self, host: str, port: int) -> int:
        return port

    def connected(self, sock: Any) -> None: ...


class Establisher:
    """Connects at once, or says that nobody is there."""

    def __init__(
        self,
        host: Host,
        process: Process,
        role: Callable[[], str],
        on_accepted: Callable[[Any, str, str], None],
        on_dialled: Callable[[int, Any], None],
        on_failed: Callable[[ConnectionError], None],
    ) -> None:
        self._host = host
        self._process = process
        self._role = role
        self._on_accepted = on_accepted
        self._on_dialled = on_dialled
        self._on_failed = on_failed

    def accept(self, listener: Listener) -> None:
        sock, role = listener.arrived.popleft()
        self._on_accepted(sock, role, "virtual")

    def dial(self, peer: int, endpoint: int, timeout: float) -> None:
        listener = self._host.listeners.get(endpoint)
        if listener is None:
            self._on_failed(ConnectionError(f"can't connect to subtask {peer}: nobody listens"))
            return
        scheduler = self._host.scheduler
        theirs = self._host.processes[endpoint]
        here = Socket(scheduler, self._process, f"wire {self._process.name}>{theirs.name}")
        there = Socket(scheduler, theirs, f"credit {theirs.name}>{self._process.name}")
        here.peer, there.peer = there, here
        self._on_dialled(peer, here)
        listener.arrive(there, self._role())

    @property
    def dialling(self) -> set[int]:
        return set()

    def next_deadline(self) -> float | None:
        return None

    def on_time(self) -> None: ...

    def close(self) -> None: ...
