"""Networks over real loopback sockets: in one process, and in processes of their own."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from deadlines import PATIENCE

from checkpoint.barriers.events import Barrier
from checkpoint.elements import BarrierElement, Data, EndOfInput, IdleStatus, Watermark
from pipeline.buffers import BufferConfig
from pipeline.runtime.auth import AuthenticationError, ClientHandshake, new_secret
from pipeline.runtime.encryption import Encryption
from pipeline.runtime.network.frames import ChannelId
from pipeline.runtime.network.network import Network

SECRET = new_secret()
BUFFERS = BufferConfig(debloat=False, max_bytes=100_000, frame_bytes=10_000)
"""Seconds after which a test gives up; nothing here takes one."""


either = pytest.mark.parametrize("subtasks", ["plain", "encrypted"], indirect=True)


@dataclass
class Subtask:
    """A network and a task thread's part in it, played by the test."""

    index: int
    network: Network
    woken: threading.Event = field(default_factory=threading.Event)
    errors: queue.Queue = field(default_factory=queue.Queue)
    announced: queue.Queue = field(default_factory=queue.Queue)
    outputs: list = field(default_factory=list)

    def poll(self):
        while (polled := self.network.inputs.poll()) is None:
            assert self.woken.wait(PATIENCE), "neither input nor a wake-up came"
            self.woken.clear()
        return polled

    def poll_data(self, count):
        return [(index, bytes(element.payload)) for index, element in (self.poll() for _ in range(count))]

    def send(self, output, element):
        """As a task does: wait for room before the next record."""
        channel = self.outputs[output]
        while not channel.has_room:
            assert self.woken.wait(PATIENCE), "no room, and no wake-up came"
            self.woken.clear()
        channel.send(element)


@pytest.fixture
def subtasks(request):
    """Makes networks that are started, and closes them."""
    made = []
    encryption = Encryption(SECRET) if getattr(request, "param", "plain") == "encrypted" else None

    def make(index, secret=SECRET, buffers=BUFFERS, **options):
        subtask = Subtask(index, None)
        subtask.network = Network(
            secret,
            "127.0.0.1",
            subtask.woken.set,
            subtask.errors.put,
            lambda *announced: subtask.announced.put(announced),
            buffers,
            **{"encryption": encryption, **options},
        )
        subtask.network.start()
        made.append(subtask)
        return subtask

    yield make
    for subtask in made:
        subtask.network.close()


def join(*subtasks, edges):
    """Make channels along `edges` (edge number, upstream, downstream) and connect everything."""
    peers = {subtask.index: subtask.network.address for subtask in subtasks}
    for subtask in subtasks:
        for edge in map(ChannelId._make, edges):
            if edge.upstream == subtask.index:
                subtask.outputs.append(subtask.network.add_output(edge))
            if edge.downstream == subtask.index:
                subtask.network.add_input(edge)
    for subtask in subtasks:
        subtask.network.connect(peers, subtask.index)


def batch(payload):
    return Data(pa.py_buffer(payload), len(payload), rows=1)


@either
def test_elements_of_all_kinds_arrive_in_order(subtasks):
    up, down = subtasks(0), subtasks(1)
    join(up, down, edges=[(0, 0, 1)])
    up.send(0, batch(b"abc"))
    up.send(0, Watermark(5))
    up.send(0, IdleStatus(True))
    up.send(0, BarrierElement(Barrier(8, age=1.0)))
    up.send(0, batch(b""))
    up.send(0, EndOfInput())
    polled = [down.poll() for _ in range(6)]

    assert [index for index, _ in polled] == [0] * 6
    kinds = [Data, Watermark, IdleStatus, BarrierElement, Data, EndOfInput]
    assert [type(element) for _, element in polled] == kinds
    assert bytes(polled[0][1].payload) == b"abc"
    barrier = polled[3][1].barrier
    assert barrier.checkpoint_id == 8
    assert 1.0 <= barrier.age < 1.0 + PATIENCE
    assert down.announced.get(timeout=PATIENCE)[0] == 0


@either
def test_many_frames_of_random_sizes_keep_their_order_on_every_channel(subtasks):
    up, left, right = subtasks(0), subtasks(1), subtasks(2)
    join(up, left, right, edges=[(0, 0, 1), (1, 0, 1), (0, 0, 2)])
    chance = random.Random(1)
    sent = {0: [], 1: [], 2: []}
    received = {(1, 0): [], (1, 1): [], (2, 0): []}

    def read(down, count):
        for index, payload in down.poll_data(count):
            received[down.index, index].append(payload)

    # one frame in twenty is larger than a channel's whole budget, or than a kernel buffer
    sizes = [chance.choice((200_000, 1_000_000)) if i % 20 == 0 else chance.randrange(60_000) for i in range(300)]
    outputs = [chance.randrange(3) for _ in sizes]
    readers = [
        threading.Thread(target=read, args=(left, sum(output < 2 for output in outputs))),
        threading.Thread(target=read, args=(right, sum(output == 2 for output in outputs))),
    ]
    for reader in readers:
        reader.start()
    for number, (output, size) in enumerate(zip(outputs, sizes, strict=True)):
        payload = number.to_bytes(4, "big") + chance.randbytes(size)
        sent[output].append(payload)
        up.send(output, batch(payload))
    for reader in readers:
        reader.join(PATIENCE)

    assert received == {(1, 0): sent[0], (1, 1): sent[1], (2, 0): sent[2]}
    put = [output.statistics() for output in up.outputs]
    taken = [one for down in (left, right) for one in down.network.inputs.statistics().channels]
    for channels in (put, taken):
        assert sum(one.records for one in channels) == 300
        assert sum(one.bytes for one in channels) == sum(len(one) for payloads in sent.values() for one in payloads)
        assert sum(one.queued_bytes for one in channels) == 0


@either
def test_a_channel_that_nobody_reads_holds_up_no_other_on_the_same_connection(subtasks):
    up, down = subtasks(0), subtasks(1)
    join(up, down, edges=[(0, 0, 1), (1, 0, 1)])
    down.network.inputs.block(0)
    for _ in range(30):
        up.outputs[0].send(batch(bytes(10_000)))
    for number in range(200):
        up.send(1, batch(bytes([number]) * 5_000))

        assert down.poll_data(1) == [(1, bytes([number]) * 5_000)]
    assert not up.outputs[0].has_room
    assert 0 < down.network.inputs.channels[0].queued_bytes <= 50_000
    assert up.outputs[0].queued_bytes + down.network.inputs.channels[0].queued_bytes == 300_000

    down.network.inputs.unblock(0)
    assert down.poll_data(30) == [(0, bytes(10_000))] * 30


def test_barriers_are_announced_while_they_are_queued_behind_data(subtasks):
    up, down = subtasks(0), subtasks(1)
    join(up, down, edges=[(0, 0, 1)])
    up.send(0, batch(bytes(1_000)))
    up.send(0, BarrierElement(Barrier(3)))
    channel, element = down.announced.get(timeout=PATIENCE)
    assert (channel, element.barrier.checkpoint_id) == (0, 3)
    assert type(down.poll()[1]) is Data


@either
def test_an_unaligned_barrier_overtakes_frames_that_wait_for_credit(subtasks):
    up, down = subtasks(0), subtasks(1)
    join(up, down, edges=[(0, 0, 1)])
    for number in range(100):
        up.outputs[0].send(batch(bytes([number]) * 10_000))
    first = down.poll()[1]
    recorded = []
    up.outputs[0].overtake(BarrierElement(Barrier(1, alignment_timeout=0.0)), recorded.append)
    overtaken = recorded[0][1]
    assert down.announced.get(timeout=PATIENCE)[1].barrier.checkpoint_id == 1  # and nobody reads on
    polled = [first, *(down.poll()[1] for _ in range(100))]
    place = next(i for i, element in enumerate(polled) if isinstance(element, BarrierElement))
    assert place >= 100 - len(overtaken) > 0
    numbers = [element.payload[0] for element in polled if isinstance(element, Data)]
    assert numbers == list(range(100))
    # all behind the barrier was overtaken, and is what a checkpoint records; what it followed had left the queue
    assert [bytes(element.payload)[0] for element in overtaken][-(100 - place) :] == numbers[place:]


def test_a_peer_may_connect_before_the_other_has_any_channels(subtasks):
    up, down = subtasks(0), subtasks(1)
    channel = ChannelId(0, 0, 1)
    output = up.network.add_output(channel)
    up.network.connect({1: down.network.address}, 0)
    output.send(Watermark(1))
    # a second connection, accepted after the first one, shows that the first is set up
    other = subtasks(2)
    second = other.network.add_output(ChannelId(0, 2, 1))
    other.network.connect({1: down.network.address}, 2)
    second.send(Watermark(2))
    assert [down.network.add_input(channel), down.network.add_input(ChannelId(0, 2, 1))] == [0, 1]
    down.network.connect({}, 1)
    assert sorted([down.poll(), down.poll()], key=lambda polled: polled[0]) == [(0, Watermark(1)), (1, Watermark(2))]


def test_a_channel_that_the_receiver_does_not_have_is_an_error_on_both_sides(subtasks):
    up, down = subtasks(0), subtasks(1)
    down.network.add_input(ChannelId(7, 0, 1))
    up.network.add_output(ChannelId(0, 0, 1))
    down.network.connect({}, 1)
    up.network.connect({1: down.network.address}, 0)
    error = down.errors.get(timeout=PATIENCE)
    assert isinstance(error, ConnectionError)
    assert "subtask 0" in str(error)
    assert "no input of subtask 1" in str(error)
    assert "subtask 1" in str(up.errors.get(timeout=PATIENCE))


def test_a_peer_can_not_open_a_channel_of_another_subtask(subtasks):
    up, down = subtasks(0), subtasks(1)
    down.network.add_input(ChannelId(0, 5, 1))
    up.network.add_output(ChannelId(0, 5, 1))
    down.network.connect({}, 1)
    up.network.connect({1: down.network.address}, 0)
    assert "broke the protocol" in str(down.errors.get(timeout=PATIENCE))


def test_peers_with_another_secret_are_refused_by_name(subtasks):
    up, down = subtasks(0, secret=new_secret()), subtasks(1)
    join(up, down, edges=[(0, 0, 1)])
    error = up.errors.get(timeout=PATIENCE)
    assert isinstance(error, ConnectionError)
    assert "can't connect to subtask 1" in str(error)
    assert "another job" in str(error)
    assert isinstance(error.__cause__, AuthenticationError)
    assert down.errors.empty()


@either
def test_a_peer_that_is_not_there_is_an_error_after_the_timeout(subtasks):
    up = subtasks(0, connect_timeout=0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    up.network.add_output(ChannelId(0, 0, 1))
    up.network.connect({1: address}, 0)
    assert "can't connect to subtask 1" in str(up.errors.get(timeout=PATIENCE))


@either
def test_a_peer_that_comes_late_is_waited_for(subtasks):
    up = subtasks(0)
    with socket.create_server(("127.0.0.1", 0)) as place:
        address = place.getsockname()
    output = up.network.add_output(ChannelId(0, 0, 1))
    up.network.connect({1: address}, 0)
    with socket.create_server(address) as impostor:  # accepts, hangs up: like a listener that is being replaced
        impostor.settimeout(PATIENCE)
        impostor.accept()[0].close()
        impostor.accept()[0].close()
    assert up.errors.empty()
    assert output.queued_bytes == 0


@either
def test_a_peer_that_is_there_and_too_busy_to_answer_is_not_given_up(subtasks):
    """The time to connect counts from its last sign of life; how long it may be busy is the driver's to say."""
    up = subtasks(0, connect_timeout=0.9, handshake_timeout=0.1)
    with socket.create_server(("127.0.0.1", 0)) as busy, contextlib.ExitStack() as stack:
        busy.settimeout(PATIENCE)
        up.network.add_output(ChannelId(0, 0, 1))
        up.network.connect({1: busy.getsockname()}, 0)
        for _ in range(5):  # the fifth one comes after more than a second
            stack.enter_context(busy.accept()[0])
        assert up.errors.empty()


@either
def test_strangers_disturb_nobody(subtasks):
    up, down = subtasks(0), subtasks(1, handshake_timeout=0.5)
    strangers = [socket.create_connection(down.network.address) for _ in range(12)]
    with contextlib.ExitStack() as stack:
        for stranger in strangers:
            stack.enter_context(stranger)
            stranger.settimeout(PATIENCE)
        silent, half, *others = strangers
        half.sendall(ClientHandshake(SECRET, "data 0").begin()[:20])
        for number, other in enumerate(others):
            with contextlib.suppress(OSError):  # dropped in the middle of what it sends
                other.sendall(random.Random(number).randbytes(100_000))
        control, wrong = (socket.create_connection(down.network.address) for _ in range(2))
        stack.enter_context(control)
        stack.enter_context(wrong)
        wrong.settimeout(PATIENCE)
        with contextlib.suppress(OSError):  # perhaps it is dropped by then, too
            wrong.sendall(ClientHandshake(new_secret(), "data 0").begin())
            wrong.sendall(bytes(32))

        join(up, down, edges=[(0, 0, 1)])
        for number in range(50):
            up.send(0, batch(bytes([number]) * 1_000))
            assert down.poll_data(1) == [(0, bytes([number]) * 1_000)]
        # all of them are dropped, the silent ones at the timeout
        for stranger in (silent, half, wrong, *others):
            with contextlib.suppress(ConnectionResetError):
                while stranger.recv(1 << 16):
                    pass
        up.send(0, batch(b"still here"))
        assert down.poll_data(1) == [(0, b"still here")]
    assert down.errors.empty()
    assert up.errors.empty()


@either
def test_a_flood_of_connections_keeps_nobody_out_and_is_bounded(subtasks):
    up, down = subtasks(0), subtasks(1, handshake_timeout=600)
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(socket.create_connection(down.network.address)) for _ in range(300)]
        join(up, down, edges=[(0, 0, 1)])
        up.send(0, batch(b"through"))
        assert down.poll_data(1) == [(0, b"through")]
        strangers[0].settimeout(PATIENCE)
        assert strangers[0].recv(1) == b""  # dropped for the ones that came later


@either
def test_closing_delivers_what_is_queued_and_is_no_error_once_all_input_has_ended(subtasks):
    buffers = BufferConfig(debloat=False, max_bytes=5_000_000, frame_bytes=50_000)
    up, down = subtasks(0, buffers=buffers), subtasks(1, buffers=buffers)
    join(up, down, edges=[(0, 0, 1)])
    for number in range(90):
        up.outputs[0].send(batch(bytes([number]) * 50_000))
    up.outputs[0].send(EndOfInput())
    up.outputs[0].send(BarrierElement(Barrier(1)))  # the final checkpoint's
    up.network.close(flush_timeout=PATIENCE)

    assert down.poll_data(90) == [(0, bytes([number]) * 50_000) for number in range(90)]
    assert type(down.poll()[1]) is EndOfInput
    assert type(down.poll()[1]) is BarrierElement
    down.network.close()
    assert down.errors.empty()
    assert up.errors.empty()


@either
def test_closing_says_what_could_not_be_delivered(subtasks):
    up, down = subtasks(0, handshake_timeout=600), subtasks(1)
    stranger = socket.create_connection(up.network.address)  # whose deadline is later than the one for the flush
    join(up, down, edges=[(3, 0, 1)])
    for _ in range(20):
        up.outputs[0].send(batch(bytes(20_000)))
    with pytest.raises(TimeoutError, match=r"ChannelId\(edge=3, upstream=0, downstream=1\)"):
        up.network.close(flush_timeout=0.3)
    stranger.close()


@either
def test_a_connection_that_ends_before_its_input_is_an_error_that_names_the_peer(subtasks):
    up, down = subtasks(0), subtasks(1)
    join(up, down, edges=[(0, 0, 1)])
    up.send(0, batch(b"a"))
    down.poll()
    up.network.close()
    error = down.errors.get(timeout=PATIENCE)
    assert isinstance(error, ConnectionError)
    assert "lost the connection to subtask 0 (upstream)" in str(error)


def test_channels_are_added_before_connecting(subtasks):
    up, down = subtasks(0), subtasks(1)
    join(up, down, edges=[(0, 0, 1)])
    with pytest.raises(RuntimeError, match="before connect"):
        up.network.add_output(ChannelId(1, 0, 1))
    with pytest.raises(RuntimeError, match="before connect"):
        down.network.add_input(ChannelId(1, 0, 1))


def test_connecting_without_the_address_of_a_downstream_subtask_is_refused(subtasks):
    up = subtasks(0)
    up.network.add_output(ChannelId(0, 0, 4))
    with pytest.raises(ValueError, match=r"\[4\]"):
        up.network.connect({}, 0)


def test_a_failing_callback_is_reported_and_not_swallowed(subtasks):
    up, down = subtasks(0), subtasks(1)
    down.announced = None  # has no `put`: a defect
    join(up, down, edges=[(0, 0, 1)])
    up.send(0, BarrierElement(Barrier(1)))
    assert isinstance(down.errors.get(timeout=PATIENCE), AttributeError)


# -- processes of their own -----------------------------------------------------------------------------------

_WORKER = """
import sys, threading
from pipeline.buffers import BufferConfig
from checkpoint.elements import Data, EndOfInput
from pipeline.runtime.network.frames import ChannelId
from pipeline.runtime.network.network import Network

own, secret, role = int(sys.argv[1]), bytes.fromhex(sys.argv[2]), sys.argv[3]
woken, errors = threading.Event(), []
def fail(error):
    errors.append(error)
    woken.set()
network = Network(secret, "127.0.0.1", woken.set, fail, lambda *_: None, BufferConfig(max_bytes=400_000))
network.start()
print(*network.address, flush=True)
upstream, downstream, port = map(int, sys.stdin.readline().split())

def wait():
    woken.wait()
    woken.clear()
    if errors:
        print(type(errors[0]).__name__, errors[0], flush=True)
        sys.exit(3)

output = None
if role != "sink":
    output = network.add_output(ChannelId(0, own, downstream))
if role != "source":
    network.add_input(ChannelId(0, upstream, own))
network.connect({downstream: ("127.0.0.1", port)}, own)
n = 0
while True:
    if output is not None and not output.has_room:
        wait()
    elif role == "source":
        if n == 400:
            output.send(EndOfInput())
            break
        payload = n.to_bytes(4, "big") * (1 + n * 7919 % 30_000)
        output.send(Data(payload, len(payload), 1))
        n += 1
        if n == 200 and len(sys.argv) > 4:
            print("half", flush=True)
            sys.stdin.readline()
    elif (polled := network.inputs.poll()) is None:
        wait()
    elif role == "relay":
        output.send(polled[1])
        if isinstance(polled[1], EndOfInput):
            break
    else:
        if isinstance(polled[1], EndOfInput):
            print("received", n, flush=True)
            break
        payload = bytes(polled[1].payload)
        assert payload == n.to_bytes(4, "big") * (1 + n * 7919 % 30_000), n
        n += 1
network.close(flush_timeout=30)
assert not errors
"""


@pytest.fixture
def workers():
    """Starts a chain source 0 → relay 1 → sink 2, each a process."""
    started = []

    def start(*source_options):
        for index, role in enumerate(("source", "relay", "sink")):
            options = source_options if role == "source" else ()
            command = [sys.executable, "-c", _WORKER, str(index), SECRET.hex(), role, *options]
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        ports = [int(worker.stdout.readline().split()[1]) for worker in started]
        for index, worker in enumerate(started):
            downstream = min(index + 1, 2)
            worker.stdin.write(f"{index - 1} {downstream} {ports[downstream]}\n")
            worker.stdin.flush()
        return started

    yield start
    for worker in started:
        with worker:
            worker.kill()


def test_frames_pass_through_three_processes_complete_and_in_order(workers):
    source, relay, sink = workers()
    assert sink.stdout.readline() == "received 400\n"
    assert [worker.wait(PATIENCE) for worker in (source, relay, sink)] == [0, 0, 0]


@pytest.mark.parametrize("killed", [0, 1, 2])
def test_the_neighbours_of_a_killed_process_fail_with_its_index(workers, killed):
    trio = workers("halt")
    source = trio[0]
    assert source.stdout.readline() == "half\n"
    os.kill(trio[killed].pid, signal.SIGKILL)
    source.stdin.write("\n" * 2)
    with contextlib.suppress(BrokenPipeError):
        source.stdin.flush()
    for neighbour in {killed - 1, killed + 1} & {0, 1, 2}:
        line = trio[neighbour].stdout.readline()
        assert line.startswith("Connection")
        assert f"lost the connection to subtask {killed}" in line
        assert trio[neighbour].wait(PATIENCE) == 3
