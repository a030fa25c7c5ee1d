"""Control messages over a real socket pair."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from checkpoint.codec import EncodingError, encode
from pipeline.runtime import wire
from pipeline.runtime.wire import ConnectionLost, ControlConnection


@dataclass
class Pair:
    left: ControlConnection
    right: ControlConnection
    raw: socket.socket
    """The left side's socket, to send what a `ControlConnection` never would."""


@pytest.fixture
def pair() -> Iterator[Pair]:
    a, b = socket.socketpair()
    pair = Pair(ControlConnection(a), ControlConnection(b), a)
    yield pair
    pair.left.close()
    pair.right.close()


def frame(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


def test_messages_arrive_whole_and_in_order(pair: Pair) -> None:
    pair.left.send("hello", pid=5, address=["127.0.0.1", 80])
    pair.left.send("state", state={1: b"bytes", "text": None, 2.5: [True]})
    assert pair.right.receive() == {"type": "hello", "pid": 5, "address": ["127.0.0.1", 80]}
    assert pair.right.receive() == {"type": "state", "state": {1: b"bytes", "text": None, 2.5: [True]}}


def test_no_message_within_the_timeout_is_none(pair: Pair) -> None:
    assert pair.right.receive(0.0) is None


def test_a_message_that_comes_in_pieces_is_put_together(pair: Pair) -> None:
    data = frame(encode({"type": "slow"}))
    for i in range(len(data) - 1):
        pair.raw.sendall(data[i : i + 1])
        assert pair.right.receive(0.0) is None
    pair.raw.sendall(data[-1:])
    assert pair.right.receive() == {"type": "slow"}


def test_a_large_message_passes(pair: Pair) -> None:
    large = b"x" * 5_000_000
    sender = threading.Thread(target=lambda: pair.left.send("large", data=large))
    sender.start()
    received = pair.right.receive()
    sender.join(60)
    assert received == {"type": "large", "data": large}


def test_senders_in_many_threads_do_not_mix_their_messages(pair: Pair) -> None:
    def send(thread: int) -> None:
        for i in range(50):
            pair.left.send("part", thread=thread, i=i, filler=b"y" * 3000)

    threads = [threading.Thread(target=send, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    received = [pair.right.receive(10) for _ in range(8 * 50)]
    for thread in threads:
        thread.join(60)
    for n in range(8):
        assert [m["i"] for m in received if m and m["thread"] == n] == list(range(50))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(frame(b"\xc1garbage"), id="no msgpack"),
        pytest.param(frame(encode(["type", "hello"])), id="no map"),
        pytest.param(frame(encode({"kind": "hello"})), id="no type"),
        pytest.param(struct.pack("!I", (1 << 30) + 1), id="too long"),
    ],
)
def test_what_is_no_message_ends_the_connection(pair: Pair, data: bytes) -> None:
    pair.raw.sendall(data)
    with pytest.raises(ConnectionLost):
        pair.right.receive(5)


def test_a_closed_side_is_noticed_by_the_other(pair: Pair) -> None:
    pair.left.send("last")
    pair.left.close()
    assert pair.right.receive(5) == {"type": "last"}
    with pytest.raises(ConnectionLost, match="closed"):
        pair.right.receive(5)


def test_sending_to_a_closed_side_says_what_could_not_be_sent(pair: Pair) -> None:
    pair.right.close()
    with pytest.raises(ConnectionLost, match="sending 'news' failed"):
        pair.left.send("news")


def test_closing_ends_a_receive_in_another_thread(pair: Pair) -> None:
    lost = threading.Event()

    def receive() -> None:
        with pytest.raises(ConnectionLost):
            pair.right.receive()
        lost.set()

    threading.Thread(target=receive, daemon=True).start()
    pair.left.close()
    assert lost.wait(60)


def test_a_message_above_the_limit_is_refused_at_its_sender(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_LARGEST", 1000)
    with pytest.raises(ValueError, match=r"control message 'ack' of 1,0.. bytes is larger than 1,000"):
        pair.left.send("ack", state=b"x" * 1000)
    pair.left.send("still", usable=True)
    assert pair.right.receive(5) == {"type": "still", "usable": True}


def test_a_field_that_cannot_travel_is_refused_and_nothing_of_it_sent(pair: Pair) -> None:
    with pytest.raises(EncodingError):
        pair.left.send("ack", state=1j)
    assert pair.right.receive(0.0) is None


def test_a_sign_of_life_is_heard_and_is_no_message(pair: Pair) -> None:
    before = pair.right.heard_at
    pair.left.send_sign_of_life()
    assert pair.right.receive(0.0) is None
    assert pair.right.heard_at > before
    pair.left.send_sign_of_life()
    pair.left.send("news")
    pair.left.send_sign_of_life()
    assert pair.right.receive(0.0) == {"type": "news"}
    assert pair.right.receive(0.0) is None


def test_a_sign_of_life_does_not_wait_where_nobody_takes_anything(pair: Pair) -> None:
    pair.raw.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            pair.raw.send(bytes(1 << 16))
    pair.left.send_sign_of_life()


def test_a_part_of_a_message_is_a_sign_of_life(pair: Pair) -> None:
    before = pair.right.heard_at
    pair.raw.sendall(frame(encode({"type": "slow"}))[:3])
    assert pair.right.receive(0.0) is None
    assert pair.right.heard_at > before


def test_a_large_message_may_take_longer_than_the_timeout_for_a_part_of_it() -> None:
    one, other = socket.socketpair()
    with one, other:
        connection = ControlConnection(one)
        one.settimeout(1.0)
        body = encode({"type": "deploy", "deployment": bytes(4_000_000)})
        got = bytearray()

        def read_slowly() -> None:
            while len(got) < len(body) + 4:
                time.sleep(0.005)
                got.extend(other.recv(1 << 14))

        thread = threading.Thread(target=read_slowly)
        thread.start()
        began = time.monotonic()
        connection.send("deploy", deployment=bytes(4_000_000))
        took = time.monotonic() - began
        thread.join()
    assert got == frame(body)
    assert took > 1.0, "the test proves nothing if it is over within the timeout"
