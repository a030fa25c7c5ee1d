"""An encrypted connection beside a plain one: whoever uses either sees the same."""

from __future__ import annotations

import random
import select
import socket
import ssl
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_parts import connected_pair, encrypted_pair

from pipeline.runtime.auth import new_secret
from pipeline.runtime.network.tls_socket import RECORD_BYTES, Socket

SECRET = new_secret()
Pair = Callable[[], tuple[Socket, Socket]]


def plain() -> tuple[Socket, Socket]:
    one, other = connected_pair()
    one.setblocking(False)
    other.setblocking(False)
    return one, other


def encrypted() -> tuple[Socket, Socket]:
    return encrypted_pair(SECRET)


class End:
    """Sends and receives as connections do: `sendmsg` of what is left, receives into two buffers or one."""

    def __init__(self, sock: Socket, chance: random.Random, sizes: list[int]) -> None:
        self.sock = sock
        self._chance = chance
        self._buffers = [memoryview(chance.randbytes(size)) for size in sizes]
        self.sent = b"".join(self._buffers)
        self.received = bytearray()
        self.blocked = 0
        self._shut = self.ended = False
        self._staging = memoryview(bytearray(4 * RECORD_BYTES))

    def send(self) -> None:
        if not self._buffers:
            if not self._shut:
                self.sock.shutdown(socket.SHUT_WR)
                self._shut = True
            return
        # As many as before or more: what is queued behind may grow between two tries.
        try:
            written = self.sock.sendmsg(self._buffers[:128])
        except BlockingIOError:
            self.blocked += 1
            return
        while written:
            head = self._buffers[0]
            self._buffers[0] = head[written:]
            written -= len(head) - len(self._buffers[0])
            if not self._buffers[0]:
                self._buffers.pop(0)

    def receive(self) -> None:
        first = self._staging[: self._chance.choice([1, 100, RECORD_BYTES])]
        try:
            if self._chance.random() < 0.5:
                n = self.sock.recv_into(self._staging)
                self.received += self._staging[:n]
            else:
                missing = memoryview(bytearray(len(first)))
                n = self.sock.recvmsg_into([missing, self._staging])[0]
                self.received += missing[:n]
                self.received += self._staging[: max(0, n - len(missing))]
        except BlockingIOError:
            return
        self.ended = n == 0


SIZES = st.lists(
    st.sampled_from([1, 2, 24, 1000, RECORD_BYTES - 1, RECORD_BYTES, RECORD_BYTES + 1, 300_000]), max_size=12
)


@pytest.mark.parametrize("pair", [plain, encrypted])
@settings(max_examples=30, deadline=None)
@given(left=SIZES, right=SIZES, small_buffers=st.booleans(), seed=st.integers(0, 1000))
def test_all_bytes_come_in_order_both_ways_at_once_and_then_the_end(
    pair: Pair, left: list[int], right: list[int], small_buffers: bool, seed: int
) -> None:
    chance = random.Random(seed)
    one, other = pair()
    if small_buffers:
        for sock in (one, other):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ends = End(one, chance, left), End(other, chance, right)
    try:
        while not all(end.ended for end in ends):
            end = chance.choice(ends)
            if chance.random() < 0.5:
                end.send()
            elif not end.ended and select.select([end.sock], [], [], 0)[0]:  # as a selector tells
                end.receive()
        assert (ends[0].received, ends[1].received) == (ends[1].sent, ends[0].sent)
    finally:
        one.close()
        other.close()


@pytest.mark.parametrize("pair", [plain, encrypted])
def test_what_the_system_does_not_take_is_tried_again_with_more_behind_it(pair: Pair) -> None:
    one, other = pair()
    end, receiver = End(one, random.Random(1), [300_000] * 60), End(other, random.Random(2), [])
    while not end.blocked:
        end.send()
    end._buffers.append(memoryview(b"and more"))
    end.sent += b"and more"
    while not receiver.ended:
        receiver.receive()
        end.send()
    assert receiver.received == end.sent
    assert end.blocked > 1
    one.close()
    other.close()


@pytest.mark.parametrize("pair", [plain, encrypted])
def test_one_direction_can_end_before_the_other(pair: Pair) -> None:
    one, other = pair()
    buffer = memoryview(bytearray(2 * RECORD_BYTES))
    one.shutdown(socket.SHUT_WR)
    select.select([other], [], [])
    assert [other.recv_into(buffer), other.recv_into(buffer)] == [0, 0]
    assert other.sendmsg([memoryview(b"credit")]) == 6
    select.select([one], [], [])
    assert one.recv_into(buffer) == 6
    other.close()
    select.select([one], [], [])
    assert one.recv_into(buffer) == 0
    one.close()


@pytest.mark.parametrize("pair", [plain, encrypted])
def test_an_abrupt_end_leaves_what_came_before_it(pair: Pair) -> None:
    one, other = pair()
    end, receiver = End(one, random.Random(1), [300_000] * 60), End(other, random.Random(2), [])
    while not end.blocked:
        end.send()
    one.close()
    try:
        while not receiver.ended:
            select.select([other], [], [])
            receiver.receive()
    except ConnectionError:
        pass  # or so
    assert 0 < len(receiver.received) < len(end.sent)
    assert end.sent.startswith(receiver.received)
    other.close()


def test_bytes_that_somebody_changes_on_the_way_are_an_error() -> None:
    one, other = encrypted()
    with socket.socket(fileno=one.fileno()) as raw:
        raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))  # a record by its form
        select.select([other], [], [])
        with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
            other.recv_into(memoryview(bytearray(RECORD_BYTES)))
        raw.detach()
    one.close()
    other.close()


def test_one_thread_sends_while_another_one_receives_on_the_same_end() -> None:
    one, other = encrypted()
    for sock in (one, other):
        sock.settimeout(60)
    data = random.Random(3).randbytes(5_000_000)
    got: dict[Socket, bytearray] = {one: bytearray(), other: bytearray()}

    def receive(sock: Socket) -> None:
        while len(got[sock]) < len(data):
            got[sock] += sock.recv(1 << 16)

    threads = [threading.Thread(target=receive, args=(sock,)) for sock in (one, other)]
    threads += [threading.Thread(target=sock.sendall, args=(data,)) for sock in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got[one] == got[other] == data
    one.close()
    other.close()


def test_timeouts_are_those_of_a_socket() -> None:
    one, other = encrypted()
    one.settimeout(0.01)
    with pytest.raises(TimeoutError):
        one.recv(1)
    with pytest.raises(BlockingIOError):
        one.recv(1, socket.MSG_DONTWAIT)
    one.setblocking(False)
    with pytest.raises(BlockingIOError):
        one.recv(1)
    assert one.gettimeout() == 0.0
    one.close()
    other.close()
