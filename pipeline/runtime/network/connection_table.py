"""The connections of a network thread: new ones are taken over, channels opened on them, lost ones told.

One that is lost takes nothing else along: the others go on. Everything here runs on the network thread.
"""

from __future__ import annotations

import logging
import selectors
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final

from checkpoint.elements import BarrierElement
from pipeline.runtime.network.connections import STAGING_BYTES, DataConnection, IncomingConnection, OutgoingConnection
from pipeline.runtime.network.frames import ChannelId, FrameError
from pipeline.runtime.network.input_channels import InputChannel, InputChannels
from pipeline.runtime.network.output_channel import OutputChannel
from pipeline.runtime.network.sockets import Sockets
from pipeline.runtime.network.tls_socket import Socket

_log = logging.getLogger(f"weir.{__name__}")

ROLE_PREFIX: Final = "data "
"""Begins the role that a process has when it connects; its subtask index follows."""


class ConnectionTable:
    """By peer: at most one connection to each process downstream, and those that came from upstream."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        sockets: Sockets,
        outputs: Mapping[ChannelId, OutputChannel],
        on_announcement: Callable[[int, BarrierElement], None],
        on_lost: Callable[[ConnectionError], None],
        clock: Callable[[], float],
    ) -> None:
        """
        Args:
            outputs: the output channels; complete before the first connection is dialled.
            on_announcement: as of `Network`.
            on_lost: gets an error that names the peer, unless its end was expected.
            clock: monotonic seconds.
        """
        self._selector = selector
        self._sockets = sockets
        self._outputs = outputs
        self._on_announcement = on_announcement
        self._on_lost = on_lost
        self._clock = clock
        self._staging = memoryview(bytearray(STAGING_BYTES))
        self._outgoing: dict[int, OutgoingConnection] = {}
        self._incoming: dict[IncomingConnection, None] = {}
        self._senders: dict[InputChannel, tuple[IncomingConnection, int]] = {}
        """Where the credit of a channel goes."""
        self._inputs: InputChannels | None = None
        self._own_index: int | None = None
        self._unopened: list[tuple[IncomingConnection, int, ChannelId]] = []
        """Channels that peers have opened before `open_channels`."""
        self.closing = False
        """Any end of a connection is expected."""

    def accepted(self, sock: Socket, role: str, address: str) -> None:
        """An authenticated peer has connected."""
        peer = role.removeprefix(ROLE_PREFIX)
        if not role.startswith(ROLE_PREFIX) or not peer.isdecimal():
            _log.warning("dropped a connection from %s: it is for %r, not for data", address, role)
            sock.close()
            return
        connection = IncomingConnection(sock, int(peer), self._staging, self._open, self._on_announcement, self._clock)
        self._incoming[connection] = None
        self._register(connection)

    def dialled(self, peer: int, sock: Socket) -> None:
        """The connection to a peer downstream is there."""
        channels = [output for output in self._outputs.values() if output.id.downstream == peer]
        connection = OutgoingConnection(sock, peer, self._staging, channels, self._clock)
        self._outgoing[peer] = connection
        self._register(connection)
        self._guarded(connection, connection.flush)

    def open_channels(self, inputs: InputChannels, own_index: int) -> None:
        """The input channels are there: open those that peers have asked for, and from now on at once.

        Args:
            own_index: the index of this subtask.
        """
        self._inputs, self._own_index = inputs, own_index
        unopened, self._unopened = self._unopened, []
        for connection, number, channel_id in unopened:
            self._guarded(connection, partial(self._bind, inputs, connection, number, channel_id))

    def send(self, inputs: Iterable[InputChannel], outputs: Iterable[OutputChannel]) -> None:
        """Send what there is for these channels."""
        touched: dict[DataConnection, None] = {}
        for channel in inputs:
            if channel in self._senders:  # else the first credit goes out when the channel is opened
                sender, number = self._senders[channel]
                sender.add_credit(number)
                touched[sender] = None
        for output in outputs:
            output.unschedule()
            if output.id.downstream in self._outgoing:
                touched[self._outgoing[output.id.downstream]] = None
        for connection in touched:
            self._guarded(connection, connection.flush)

    def flushed(self, dialling: Collection[int]) -> bool:
        """End connections on which all is sent.

        Args:
            dialling: peers that are not connected yet.

        Returns:
            Whether everything is sent.
        """
        for connection in list(self._outgoing.values()):
            if connection.drained and not connection.shut:
                self._guarded(connection, connection.shut_down)
        return not self._outgoing and all(o.empty for o in self._outputs.values() if o.id.downstream in dialling)

    def close(self) -> None:
        """Close all sockets."""
        for connection in (*self._outgoing.values(), *self._incoming):
            connection.sock.close()

    # -- inside -------------------------------------------------------------------------------------------------

    def _open(self, connection: IncomingConnection, number: int, channel_id: ChannelId) -> None:
        if self._inputs is None:
            self._unopened.append((connection, number, channel_id))
        else:
            self._bind(self._inputs, connection, number, channel_id)

    def _bind(self, inputs: InputChannels, connection: IncomingConnection, number: int, channel_id: ChannelId) -> None:
        channel = next((channel for channel in inputs.channels if channel.id == channel_id), None)
        if channel is None or channel_id.upstream != connection.peer:
            raise FrameError(f"it opened {channel_id}, which is no input of subtask {self._own_index} from there")
        if channel in self._senders:
            raise FrameError(f"it opened {channel_id} twice")
        connection.bind(number, channel, inputs)
        self._senders[channel] = (connection, number)
        connection.flush()

    def _register(self, connection: DataConnection) -> None:
        sock = connection.sock
        self._sockets.connected(sock)
        self._selector.register(sock, selectors.EVENT_READ, lambda mask: self._on_ready(connection, mask))

    def _on_ready(self, connection: DataConnection, mask: int) -> None:
        def step() -> None:
            if mask & selectors.EVENT_READ and not connection.on_readable():
                self._lost(connection, None)
            elif mask & selectors.EVENT_WRITE:
                connection.flush()

        self._guarded(connection, step)

    def _guarded(self, connection: DataConnection, step: Callable[[], None]) -> None:
        """Run a step of a connection; if that loses the connection, the others go on."""
        if not self._is_open(connection):  # lost by an earlier event of this round
            return
        try:
            step()
        except OSError as error:
            self._lost(connection, error)
        if self._is_open(connection):
            interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.wants_write else 0)
            key = self._selector.get_key(connection.sock)
            if key.events != interest:
                self._selector.modify(connection.sock, interest, key.data)

    def _is_open(self, connection: DataConnection) -> bool:
        return connection in self._incoming or self._outgoing.get(connection.peer) is connection

    def _lost(self, connection: DataConnection, error: OSError | None) -> None:
        self._selector.unregister(connection.sock)
        connection.sock.close()
        if isinstance(connection, IncomingConnection):
            del self._incoming[connection]
            for channel in connection.channels.values():
                del self._senders[channel]
            direction = "upstream"
        else:
            del self._outgoing[connection.peer]
            direction = "downstream"
        protocol = isinstance(error, FrameError)
        if self.closing or (connection.orderly and not protocol):
            _log.debug("the connection to subtask %d ended", connection.peer)
            return
        what = "it broke the protocol" if protocol else "its process has ended, or the network is down"
        failure = ConnectionError(
            f"lost the connection to subtask {connection.peer} ({direction}): {error or 'closed by the peer'}; {what}"
        )
        failure.__cause__ = error
        self._on_lost(failure)
