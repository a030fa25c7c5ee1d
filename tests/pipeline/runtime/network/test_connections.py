"""Frames survive any fragmentation of the stream; the two ends of a connection."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.barriers.events import Barrier
from checkpoint.elements import BarrierElement, Data, EndOfInput, RestoreBarrier, Watermark
from pipeline.buffers import MIN_FRAME_BYTES, BufferConfig
from pipeline.runtime.network.connections import (
    STAGING_BYTES,
    FrameReader,
    FrameWriter,
    IncomingConnection,
    OutgoingConnection,
)
from pipeline.runtime.network.frames import (
    ChannelId,
    Credit,
    FrameError,
    decode_element,
    encode_backlog,
    encode_credit,
    encode_element,
    read_header,
)
from pipeline.runtime.network.input_channels import InputChannels
from pipeline.runtime.network.output_channel import OutputChannel

elements = st.lists(
    st.one_of(
        st.builds(Watermark, st.integers(0, 2**60)),
        st.just(EndOfInput()),
        st.binary(max_size=300).map(lambda payload: Data(payload, len(payload), 1)),
    ),
    max_size=20,
)


class Stream:
    """What a reader makes of the bytes that are written to the other end of its socket."""

    def __init__(self, staging=64):
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.reader = FrameReader(memoryview(bytearray(staging)))
        self.begun, self.received = 0, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ours.close()
        self.theirs.close()

    def begin(self, header):
        self.begun += 1

    def complete(self, header, body):
        element = decode_element(header, body, now=0.0)
        self.received.append(Data(bytes(body), element.size, 1) if isinstance(element, Data) else element)

    def receive(self):
        return self.reader.receive(self.ours, self.begin, self.complete)

    def feed(self, data):
        """Deliver a fragment, received in as many calls as the staging area requires."""
        self.theirs.sendall(data)
        for _ in range(2 + len(data) // 20):
            assert self.receive()


def stream_of(elements):
    frames = [encode_element(element, 3, i, now=0.0) for i, element in enumerate(elements)]
    return b"".join(head + (payload or b"") for head, payload in frames)


@settings(max_examples=200)
@given(elements, st.lists(st.integers(1, 90), min_size=1), st.sampled_from([40, 64, 1000]))
def test_any_fragmentation_gives_the_same_elements(elements, cuts, staging):
    data = stream_of(elements)
    with Stream(staging) as stream:
        position, turn = 0, 0
        while position < len(data):
            size = cuts[turn % len(cuts)]
            stream.feed(data[position : position + size])
            position, turn = position + size, turn + 1
        assert stream.received == elements
        assert not stream.reader.mid_frame


def test_a_frame_begins_with_its_header_and_is_complete_with_its_last_byte():
    data = stream_of([Data(b"x" * 200, 200, 1)])
    with Stream() as stream:
        stream.feed(data[:10])
        assert (stream.begun, stream.reader.mid_frame) == (0, True)
        stream.feed(data[10:25])
        assert (stream.begun, stream.received) == (1, [])
        stream.feed(data[25:-1])
        assert (stream.received, stream.reader.mid_frame) == ([], True)
        stream.feed(data[-1:])
        assert (stream.received, stream.reader.mid_frame) == ([Data(b"x" * 200, 200, 1)], False)
        stream.theirs.close()
        assert not stream.receive()


def test_nothing_to_read_is_no_end_of_the_stream():
    with Stream() as stream:
        assert stream.receive()


def test_garbage_is_a_violation():
    with Stream() as stream, pytest.raises(FrameError):
        stream.feed(b"\xff" * 40)


def test_a_writer_goes_on_where_the_socket_stopped_taking():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        writer = FrameWriter()
        payloads = [bytes([i]) * 50_000 for i in range(40)]
        for i, payload in enumerate(payloads):
            writer.add(bytes([i]), memoryview(payload))
        writer.add(b"", b"")
        expected = b"".join(bytes([i]) + payload for i, payload in enumerate(payloads))
        received = bytearray()
        rounds = 0
        while not writer.flush(ours):
            rounds += 1
            received += theirs.recv(30_000)
        while len(received) < len(expected):
            received += theirs.recv(1 << 20)
        assert rounds > 1
        assert writer.pending_bytes == 0
        assert received == expected


# -- the two ends of a connection -----------------------------------------------------------------------------


class Pair:
    """A connection between subtasks 1 and 2 with some channels, and what the receiver does with them."""

    def __init__(self, channels: int, budget: int = 10_000) -> None:
        config = BufferConfig(debloat=False, max_bytes=budget * channels, frame_bytes=MIN_FRAME_BYTES)
        self.ids = [ChannelId(edge, 1, 2) for edge in range(channels)]
        self.outputs = [OutputChannel(id, config, lambda _: None, lambda: None) for id in self.ids]
        self.inputs = InputChannels(self.ids, config, lambda _: None, lambda: None)
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
        staging = memoryview(bytearray(STAGING_BYTES))
        self.sender = OutgoingConnection(ours, 2, staging, self.outputs, time.monotonic)
        self.announced: list[tuple[int, BarrierElement]] = []
        self.receiver = IncomingConnection(
            theirs, 1, staging, self.open, lambda *announced: self.announced.append(announced), time.monotonic
        )

    def open(self, connection: IncomingConnection, number: int, channel: ChannelId) -> None:
        connection.bind(number, self.inputs.channels[self.ids.index(channel)], self.inputs)

    def pump(self) -> None:
        for _ in range(5):
            self.sender.flush()
            assert self.receiver.on_readable()
            assert self.sender.on_readable()

    def polled(self) -> list[tuple[int, Any]]:
        found = []
        while (one := self.inputs.poll()) is not None:
            found.append(one)
        return found

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.sender.sock.close()
        self.receiver.sock.close()


def frame(size: int) -> Data:
    return Data(bytes(size), size, 1)


def test_both_ends_may_part_once_all_channels_have_ended_and_not_before() -> None:
    with Pair(2) as pair:
        pair.pump()
        assert (pair.sender.orderly, pair.receiver.orderly, pair.sender.drained) == (False, False, True)
        pair.outputs[0].send(EndOfInput())
        pair.pump()
        assert (pair.sender.orderly, pair.receiver.orderly) == (False, False)
        pair.outputs[1].send(EndOfInput())
        assert (pair.sender.orderly, pair.sender.drained) == (False, False)
        pair.pump()
        assert (pair.sender.orderly, pair.receiver.orderly, pair.sender.drained) == (True, True, True)


def test_what_is_between_queue_and_socket_is_neither_sent_nor_orderly() -> None:
    with Pair(1) as pair:
        pair.pump()
        pair.outputs[0].send(EndOfInput())
        pair.pump()
        assert (pair.sender.orderly, pair.sender.drained) == (True, True)
        pair.sender.writer.add(b"", b"x" * (64 << 20))  # more than a socket takes
        pair.sender.flush()
        assert pair.sender.wants_write
        assert (pair.sender.orderly, pair.sender.drained) == (False, False)


def test_a_stream_that_ends_within_a_frame_is_not_orderly() -> None:
    with Pair(1) as pair:
        pair.pump()
        pair.outputs[0].send(EndOfInput())
        pair.pump()
        assert pair.receiver.orderly
        pair.sender.sock.send(b"\0")
        assert pair.receiver.on_readable()
        assert not pair.receiver.orderly


def test_frames_are_taken_from_the_channels_in_turn_also_from_those_behind_an_empty_one() -> None:
    with Pair(4) as pair:
        pair.pump()
        for channel in (0, 1, 3):
            for size in (10 + channel, 20 + channel):
                pair.outputs[channel].send(frame(size))
        pair.sender._gather()
        heads = [bytes(buffer) for buffer in pair.sender.writer._buffers][::2]
        assert [read_header(memoryview(head), 0).channel for head in heads] == [0, 1, 3, 0, 1, 3]
        pair.pump()
        assert sorted((index, element.size) for index, element in pair.polled()) == [
            (channel, size + channel) for channel in (0, 1, 3) for size in (10, 20)
        ]


def test_a_frame_that_only_an_empty_receiver_admits_comes_once_it_is_empty() -> None:
    with Pair(1, budget=MIN_FRAME_BYTES) as pair:
        pair.pump()
        for size in (MIN_FRAME_BYTES // 4, 10 * MIN_FRAME_BYTES):
            pair.outputs[0].send(frame(size))
        pair.pump()
        assert [element.size for _, element in pair.polled()] == [MIN_FRAME_BYTES // 4]
        channel = pair.inputs.channels[0]
        assert channel._starved  # it was told that such a frame waits
        pair.receiver.add_credit(0)
        pair.receiver.flush()
        pair.pump()
        assert [element.size for _, element in pair.polled()] == [10 * MIN_FRAME_BYTES]


def test_barriers_are_announced_with_the_index_of_their_channel_and_restore_barriers_are_counted() -> None:
    with Pair(2) as pair:
        pair.pump()
        for element in (RestoreBarrier(), BarrierElement(Barrier(7)), Watermark(5)):
            pair.outputs[1].send(element)
        pair.pump()
        assert [(index, one.barrier.checkpoint_id) for index, one in pair.announced] == [(1, 7)]
        assert [(index, type(one)) for index, one in pair.polled()] == [
            (1, RestoreBarrier),
            (1, BarrierElement),
            (1, Watermark),
        ]


def test_what_the_protocol_does_not_allow_is_a_violation_on_either_side() -> None:
    with Pair(1) as pair:
        pair.pump()
        with pytest.raises(FrameError, match="opened twice"):
            pair.receiver.bind(0, pair.inputs.channels[0], pair.inputs)
        pair.sender.sock.send(encode_element(Watermark(1), 1, 0, 0.0)[0])
        with pytest.raises(FrameError, match="WATERMARK on channel number 1, never opened"):
            pair.receiver.on_readable()
        for wrong in (encode_credit(1, Credit(1, 0, 1, 1)), encode_backlog(0)):
            pair.receiver.sock.send(wrong)
            with pytest.raises(FrameError, match="unexpected frame"):
                pair.sender.on_readable()
