"""The connections of a network thread: cutting what arrives into frames, and gathering frames to send.

A connection joins two processes and is shared by all channels from the one to the other. Elements go one way, credit
the other. Connections own no thread: the network thread calls them when their socket is ready.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from checkpoint.elements import BarrierElement, Payload
from pipeline.runtime.network.frames import (
    HEADER_BYTES,
    ChannelId,
    FrameError,
    Header,
    Kind,
    decode_credit,
    decode_element,
    decode_open,
    encode_backlog,
    encode_credit,
    encode_element,
    encode_open,
    read_header,
)
from pipeline.runtime.network.input_channels import InputChannel, InputChannels
from pipeline.runtime.network.output_channel import OutputChannel
from pipeline.runtime.network.tls_socket import Socket

STAGING_BYTES: Final = 256 * 1024
_GATHER_BYTES: Final = 256 * 1024
"""What is handed to the socket in one call. It counts as sent, so nothing overtakes it any more."""
_GATHER_BUFFERS: Final = 128


class FrameReader:
    """Cuts the bytes of one connection into frames.

    One receive call per readiness: beside a busy task thread each call may cost a wait for the interpreter lock.
    A large payload is received straight into its own buffer, and what follows it into the staging area by the same
    call. The staging area is only used within a call, so all readers of a thread share one.
    """

    def __init__(self, staging: memoryview) -> None:
        self._staging = staging
        self._partial = b""
        """The beginning of a header."""
        self._header: Header | None = None
        self._body = memoryview(b"")
        self._missing = self._body
        """The part of `_body` that has not arrived."""

    @property
    def mid_frame(self) -> bool:
        return bool(self._partial) or self._header is not None

    def receive(
        self,
        sock: Socket,
        begin: Callable[[Header], None],
        complete: Callable[[Header, bytes | memoryview], None],
    ) -> bool:
        """Receive once; call `begin` for each header and `complete` for each frame that is in.

        Returns:
            False at the end of the stream.

        Raises:
            OSError: the connection broke, or (`FrameError`) the peer broke the protocol.
        """
        staging = self._staging
        header = self._header
        try:
            if header is not None:
                received = sock.recvmsg_into([self._missing, staging])[0]
                available = received - len(self._missing)
            else:
                kept = len(self._partial)
                staging[:kept] = self._partial
                received = sock.recv_into(staging[kept:])
                available = kept + received
        except BlockingIOError:
            return True
        if not received:
            return False
        if header is not None:
            if available < 0:
                self._missing = self._missing[received:]
                return True
            self._header = None
            complete(header, self._body)
        position = 0
        while available - position >= HEADER_BYTES:
            header = read_header(staging, position)
            position += HEADER_BYTES
            begin(header)
            here = available - position
            if here < header.length:
                self._header = header
                self._body = memoryview(bytearray(header.length))
                self._body[:here] = staging[position:available]
                self._missing = self._body[here:]
                self._partial = b""
                return True
            # a copy: the payload outlives the staging area, and starts at an aligned address
            complete(header, bytes(staging[position : position + header.length]))
            position += header.length
        self._partial = bytes(staging[position:available])
        return True


class FrameWriter:
    """Bytes on their way to a socket."""

    def __init__(self) -> None:
        self._buffers: deque[memoryview] = deque()
        self.pending_bytes = 0

    def add(self, head: bytes, payload: Payload | None = None) -> None:
        for part in (head, payload):
            if part is not None and len(buffer := memoryview(part).cast("B")):
                self._buffers.append(buffer)
                self.pending_bytes += len(buffer)

    def flush(self, sock: Socket) -> bool:
        """Write what the socket takes. Returns whether all of it is written."""
        while self._buffers:
            try:
                written = sock.sendmsg(islice(self._buffers, _GATHER_BUFFERS))
            except BlockingIOError:
                return False
            self.pending_bytes -= written
            while written:
                head = self._buffers[0]
                if written < len(head):
                    self._buffers[0] = head[written:]
                    break
                written -= len(head)
                self._buffers.popleft()
        return True


class DataConnection:
    """What both directions share. `peer` is the peer's subtask index."""

    def __init__(self, sock: Socket, peer: int, staging: memoryview, clock: Callable[[], float]) -> None:
        self.sock = sock
        self.peer = peer
        self._clock = clock
        self.reader = FrameReader(staging)
        self.writer = FrameWriter()

    @property
    def wants_write(self) -> bool:
        return self.writer.pending_bytes > 0

    @property
    def orderly(self) -> bool:
        """Whether the peer may close the connection now without anything being lost."""
        raise NotImplementedError

    def on_readable(self) -> bool:
        """Returns False at the end of the stream.

        Raises:
            OSError: the connection broke or the peer broke the protocol.
        """
        raise NotImplementedError

    def flush(self) -> None:
        """Send what may be sent."""
        raise NotImplementedError


class OutgoingConnection(DataConnection):
    """To a process downstream: sends elements, receives credit."""

    def __init__(
        self,
        sock: Socket,
        peer: int,
        staging: memoryview,
        channels: Sequence[OutputChannel],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(sock, peer, staging, clock)
        self._channels = tuple(channels)
        self._turn: deque[tuple[int, OutputChannel]] = deque(enumerate(self._channels))
        self.shut = False
        """All is sent and this side of the connection is closed."""
        for number, channel in enumerate(self._channels):
            self.writer.add(encode_open(number, channel.id))

    @property
    def orderly(self) -> bool:
        return not self.wants_write and all(channel.finished for channel in self._channels)

    @property
    def drained(self) -> bool:
        return not self.wants_write and all(channel.empty for channel in self._channels)

    def on_readable(self) -> bool:
        alive = self.reader.receive(self.sock, self._begin, self._complete)
        self.flush()
        return alive

    def _begin(self, header: Header) -> None:
        if header.kind != Kind.CREDIT or header.channel >= len(self._channels):
            raise FrameError(f"unexpected frame of kind {Kind(header.kind).name} on channel number {header.channel}")

    def _complete(self, header: Header, body: bytes | memoryview) -> None:
        self._channels[header.channel].grant(decode_credit(header, body))

    def flush(self) -> None:
        # frames are taken out of their queues as late as possible: what was taken can't be overtaken
        while self.writer.flush(self.sock) and self._gather():
            pass

    def _gather(self) -> bool:
        """Take frames from the channels in turn. Returns whether there was anything."""
        now = self._clock()
        idle = 0
        while idle < len(self._turn) and self.writer.pending_bytes < _GATHER_BYTES:
            number, channel = self._turn[0]
            self._turn.rotate(-1)
            taken = channel.take()
            if taken is None:
                idle += 1
                if channel.backlog():
                    self.writer.add(encode_backlog(number))
                continue
            idle = 0
            element, sequence = taken
            self.writer.add(*encode_element(element, number, sequence, now))
        return self.wants_write

    def shut_down(self) -> None:
        """Tell the peer that nothing more comes. The socket stays open until the peer has closed its side: closing
        it with credit unread would reset the connection, and the peer would lose what it has not read yet."""
        self.shut = True
        self.sock.shutdown(socket.SHUT_WR)


class IncomingConnection(DataConnection):
    """From a process upstream: receives elements, sends credit."""

    def __init__(
        self,
        sock: Socket,
        peer: int,
        staging: memoryview,
        open_channel: Callable[[IncomingConnection, int, ChannelId], None],
        on_announcement: Callable[[int, BarrierElement], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(sock, peer, staging, clock)
        self._open_channel = open_channel
        self._on_announcement = on_announcement
        self._inputs: InputChannels | None = None
        self.channels: dict[int, InputChannel] = {}
        """By the number that the sender gave them."""

    @property
    def orderly(self) -> bool:
        return not self.reader.mid_frame and all(channel.ended for channel in self.channels.values())

    def bind(self, number: int, channel: InputChannel, inputs: InputChannels) -> None:
        """The channel with this number is `channel`: grant its first credit."""
        if number in self.channels:
            raise FrameError(f"channel number {number} was opened twice")
        self.channels[number] = channel
        self._inputs = inputs
        self.add_credit(number)

    def add_credit(self, number: int) -> None:
        """Put the channel's grant among what is to be sent."""
        self.writer.add(encode_credit(number, self.channels[number].credit()))

    def on_readable(self) -> bool:
        alive = self.reader.receive(self.sock, self._begin, self._complete)
        self.flush()
        return alive

    def _begin(self, header: Header) -> None:
        if header.kind <= Kind.RESTORE:
            self._channel(header).receiving(header)

    def _complete(self, header: Header, body: bytes | memoryview) -> None:
        if header.kind == Kind.OPEN:
            self._open_channel(self, header.channel, decode_open(header, body))
        elif header.kind == Kind.BACKLOG:
            if self._channel(header).starve():
                self.add_credit(header.channel)
        else:
            channel = self._channel(header)
            element = decode_element(header, body, self._clock())
            if isinstance(element, BarrierElement):
                self._on_announcement(channel.index, element)
            assert self._inputs is not None  # set when the channel was bound
            self._inputs.put(channel, element)

    def _channel(self, header: Header) -> InputChannel:
        channel = self.channels.get(header.channel)
        if channel is None:
            raise FrameError(f"frame of kind {Kind(header.kind).name} on channel number {header.channel}, never opened")
        return channel

    def flush(self) -> None:
        self.writer.flush(self.sock)
