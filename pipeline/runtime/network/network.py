"""The data plane of one subtask: a network thread that owns all its sockets.

A process connects to each process downstream of it; all channels between the two share that connection.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from checkpoint.elements import BarrierElement
from pipeline.buffers import BufferConfig
from pipeline.runtime.network.connection_table import ROLE_PREFIX, ConnectionTable
from pipeline.runtime.network.frames import ChannelId
from pipeline.runtime.network.input_channels import InputChannel, InputChannels
from pipeline.runtime.network.output_channel import OutputChannel
from pipeline.runtime.network.sockets import SOCKETS, Sockets
from pipeline.runtime.system import SYSTEM, System

if TYPE_CHECKING:
    from pipeline.runtime.encryption import Encryption

T = TypeVar("T")

_log = logging.getLogger(f"weir.{__name__}")

_JOIN_GRACE: Final = 5.0
"""Seconds beyond the flush timeout that the network thread may take to end."""


class Network:
    """Channels to and from other subtasks.

    In this order: `start` (the address is known then), `add_input` and `add_output` for every channel of the subtask,
    `connect`. Peers may connect at any time after `start`; their channels are opened once `connect` was called.

    All callbacks run on the network thread and must return at once; `on_wake` may be called without need.
    """

    def __init__(
        self,
        secret: bytes,
        bind_host: str,
        on_wake: Callable[[], None],
        on_error: Callable[[BaseException], None],
        on_announcement: Callable[[int, BarrierElement], None],
        buffers: BufferConfig,
        *,
        connect_timeout: float = 30.0,
        handshake_timeout: float = 10.0,
        encryption: Encryption | None = None,
        system: System = SYSTEM,
        sockets: Sockets = SOCKETS,
    ) -> None:
        """
        Args:
            secret: shared by all subtasks of one attempt of a job, and by nobody else.
            on_wake: there is input again after `InputChannels.poll` gave none, or room again after
                `OutputChannel.has_room` was false.
            on_error: a peer is lost (`ConnectionError` that names it; once for each connection), or the network
                thread has failed. Processing can't go on.
            on_announcement: the index of an input channel, and a barrier that has arrived on it; it may be queued
                behind data.
            connect_timeout: seconds until a peer that can't be connected to is given up.
            handshake_timeout: seconds that the authentication of one connection may take.
            encryption: of all connections; `None`: they are in plain text.
            system, sockets: of this process.
        """
        self._secret = secret
        self._system = system
        self._clock = system.monotonic
        self._sockets = sockets
        self._bind_host = bind_host
        self._on_wake = on_wake
        self._on_error = on_error
        self._on_announcement = on_announcement
        self._buffers = buffers
        self._connect_timeout = connect_timeout
        self._handshake_timeout = handshake_timeout
        self._encryption = encryption
        self._input_ids: list[ChannelId] = []
        self._outputs: dict[ChannelId, OutputChannel] = {}
        self._own_index: int | None = None
        self._inputs: InputChannels | None = None
        self._thread: threading.Thread | None = None
        # from other threads to the network thread: first the fact, then `_wake`
        self._commands: deque[Callable[[], None]] = deque()
        self._outputs_due: deque[OutputChannel] = deque()
        self._credits_due: deque[InputChannel] = deque()
        self._sleeping = False
        """The network thread is about to wait, or waits, and needs a byte to be woken."""
        # network thread only
        self._flush_until: float | None = None
        """Set once the network is closing."""
        self._undelivered: list[ChannelId] = []

    # -- set-up -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Bind to a free port and start the network thread.

        Raises:
            OSError: the host can't be bound to.
        """
        self._listener = self._sockets.listen(self._bind_host)
        self._address: tuple[str, int] = self._listener.getsockname()[:2]
        self._waker, self._woken = self._sockets.pair()
        self._selector = self._sockets.selector()
        self._connections = ConnectionTable(
            self._selector, self._sockets, self._outputs, self._on_announcement, self._on_lost, self._clock
        )
        self._establisher = self._sockets.establisher(
            self._selector,
            self._secret,
            role=lambda: f"{ROLE_PREFIX}{self._own_index}",
            on_accepted=self._connections.accepted,
            on_dialled=self._connections.dialled,
            on_failed=self._on_lost,
            handshake_timeout=self._handshake_timeout,
            encryption=self._encryption,
        )
        self._thread = self._system.thread(self._run, "weir-network")
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that this subtask is bound to; known after `start`."""
        return self._address

    def add_input(self, channel: ChannelId) -> int:
        """Returns the index of the channel in `inputs.channels`."""
        self._require_unconnected()
        if channel in self._input_ids:
            raise ValueError(f"input {channel} was added twice")
        self._input_ids.append(channel)
        return len(self._input_ids) - 1

    def add_output(self, channel: ChannelId, overtakes: bool = True) -> OutputChannel:
        """`overtakes`: whether unaligned barriers overtake data on it."""
        self._require_unconnected()
        if channel in self._outputs:
            raise ValueError(f"output {channel} was added twice")
        output = OutputChannel(channel, self._buffers, self._schedule_output, self._on_wake, overtakes)
        self._outputs[channel] = output
        return output

    def _require_unconnected(self) -> None:
        if self._own_index is not None:
            raise RuntimeError("channels must be added before connect()")

    def connect(self, peers: Mapping[int, tuple[str, int]], own_index: int) -> None:
        """Open the channels. Doesn't wait for the peers; those that can't be reached are reported to `on_error`.

        Args:
            peers: host and port by subtask index, for those downstream of this one at least.
            own_index: the index of this subtask, by which peers know it.

        Raises:
            ValueError: the address of a downstream subtask is missing.
            OSError: the name of a peer's host is unknown.
        """
        self._require_unconnected()
        if self._thread is None:
            raise RuntimeError("connect() needs a started network")
        downstream = sorted({channel.downstream for channel in self._outputs})
        if missing := [peer for peer in downstream if peer not in peers]:
            raise ValueError(f"no address is known for the downstream subtasks {missing}")
        endpoints = {peer: self._sockets.resolve(*peers[peer]) for peer in downstream}
        self._own_index = own_index
        inputs = self._inputs = InputChannels(
            self._input_ids, self._buffers, self._schedule_credit, self._on_wake, self._clock
        )

        def begin() -> None:
            self._connections.open_channels(inputs, own_index)
            for peer, endpoint in endpoints.items():
                self._establisher.dial(peer, endpoint, self._connect_timeout)

        self._command(begin)

    @property
    def inputs(self) -> InputChannels:
        """The inputs of the subtask; there is one after `connect`."""
        if self._inputs is None:
            raise RuntimeError("the input channels are made by connect()")
        return self._inputs

    def close(self, flush_timeout: float = 0.0) -> None:
        """Close all connections and end the network thread. From now on `on_error` is not called.

        With a `flush_timeout` what is queued is sent first. Peers accept the end of a connection without an error
        only when all its channels have delivered their end of input. Not to be called on the network thread.

        Raises:
            TimeoutError: a flush was asked for, and not everything could be sent in time.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        until = self._clock() + flush_timeout

        def begin() -> None:
            self._flush_until = until
            self._connections.closing = True

        self._command(begin)
        thread.join(flush_timeout + _JOIN_GRACE)
        if thread.is_alive():
            raise TimeoutError("the network thread didn't end: one of its callbacks blocks")
        if flush_timeout > 0 and self._undelivered:
            raise TimeoutError(f"not all output was taken within {flush_timeout:g} s: {self._undelivered}")

    # -- waking the network thread ----------------------------------------------------------------------------

    def _schedule_output(self, channel: OutputChannel) -> None:
        self._outputs_due.append(channel)
        self._wake()

    def _schedule_credit(self, channel: InputChannel) -> None:
        self._credits_due.append(channel)
        self._wake()

    def _command(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        self._wake()

    def _wake(self) -> None:
        if self._sleeping:
            self._sleeping = False
            # a full socket wakes just as well, and a closed one belongs to a thread that has ended
            with contextlib.suppress(OSError):
                self._waker.send(b"\0")

    # -- network thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._selector.register(self._listener, selectors.EVENT_READ, self._on_accept)
            self._selector.register(self._woken, selectors.EVENT_READ, self._on_woken)
            while not self._flushed():
                self._sleeping = True
                due = self._commands or self._outputs_due or self._credits_due
                events = self._selector.select(0 if due else self._timeout())
                self._sleeping = False
                for key, mask in events:
                    key.data(mask)
                while self._commands:
                    self._commands.popleft()()
                self._connections.send(_emptied(self._credits_due), _emptied(self._outputs_due))
                self._establisher.on_time()
        except BaseException as error:
            _log.exception("the network thread failed")
            if self._flush_until is None:
                self._on_error(error)
        finally:
            self._undelivered = [output.id for output in self._outputs.values() if not output.empty]
            self._establisher.close()
            self._connections.close()
            self._selector.close()
            for sock in (self._listener, self._waker, self._woken):
                sock.close()

    def _timeout(self) -> float | None:
        deadline = self._establisher.next_deadline()
        if self._flush_until is not None:
            deadline = min(deadline, self._flush_until) if deadline is not None else self._flush_until
        return None if deadline is None else max(0.0, deadline - self._clock())

    def _flushed(self) -> bool:
        """Whether the thread may end."""
        if self._flush_until is None:
            return False
        return self._clock() >= self._flush_until or self._connections.flushed(self._establisher.dialling)

    def _on_lost(self, error: ConnectionError) -> None:
        if self._flush_until is None:
            self._on_error(error)

    def _on_accept(self, _mask: int) -> None:
        self._establisher.accept(self._listener)

    def _on_woken(self, _mask: int) -> None:
        self._woken.recv(4096)


def _emptied(due: deque[T]) -> Iterator[T]:
    """Takes everything out, also what another thread adds meanwhile."""
    while due:
        yield due.popleft()
