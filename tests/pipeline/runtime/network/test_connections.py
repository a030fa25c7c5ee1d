"""Frames survive any fragmentation of the stream."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.elements import Data, EndOfInput, Watermark
from pipeline.runtime.network.connections import FrameReader, FrameWriter
from pipeline.runtime.network.frames import FrameError, decode_element, encode_element

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
        assert stream.received == []
        stream.feed(data[-1:])
        assert stream.received == [Data(b"x" * 200, 200, 1)]
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
