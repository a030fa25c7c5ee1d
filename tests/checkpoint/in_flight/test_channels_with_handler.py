"""Output queues, wires, input queues and a receiver's barrier handler: nothing is lost or doubled between them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from receiver import Receiver, Unit, units

from checkpoint.barriers.events import Barrier
from checkpoint.elements import BarrierElement, CancelMarker, Data, Element, IdleStatus, InFlight, Watermark
from checkpoint.in_flight.output_queue import Captured, OutputQueue


@dataclass
class Sender:
    """The upstream end of one channel."""

    channel: int
    overtakes: bool
    wire: deque[Element] = field(default_factory=deque)
    sent: list[InFlight] = field(default_factory=list)
    in_front: dict[int, list[Unit]] = field(default_factory=dict)
    """By checkpoint: what was sent before its barrier."""
    captured: Captured = field(default_factory=dict)
    last_id: int = 0

    def __post_init__(self) -> None:
        self.queue = OutputQueue(self.overtakes)

    def send(self, which: int) -> None:
        number = len(self.sent)
        element: InFlight
        if which < 4:
            element = Data(f"{self.channel}:{number}".encode(), size=1, rows=1 + which % 3)
        else:
            element = Watermark(number) if which == 4 else IdleStatus(which % 2 == 0)
        self.sent.append(element)
        self.queue.append(element)

    def checkpoint(self, timeout: float | None, unaligned: bool) -> None:
        self.last_id += 1
        self.in_front[self.last_id] = units(self.sent)
        if unaligned:
            self._record(self.queue.overtake(BarrierElement(Barrier(self.last_id, alignment_timeout=0.0))))
        else:
            self.queue.append(BarrierElement(Barrier(self.last_id, alignment_timeout=timeout)))

    def cancel(self) -> None:
        self.last_id += 1
        self.queue.append(CancelMarker(self.last_id))

    def make_unaligned(self, n: int) -> None:
        self._record(self.queue.make_unaligned(n))

    def _record(self, captured: Captured) -> None:
        assert not captured.keys() & self.captured.keys()
        self.captured.update(captured)


@dataclass(frozen=True)
class Setting:
    broadcast: frozenset[int]
    channels: int
    timeouts: list[float | None]
    """Alignment timeout of each checkpoint."""


@st.composite
def settings_of_jobs(draw: st.DrawFn) -> Setting:
    channels = draw(st.integers(1, 3))
    broadcast = frozenset(c for c in range(channels) if draw(st.integers(0, 3)) == 0)
    timeouts = draw(st.lists(st.sampled_from([None, 0.0, 3.0, 6.0]), min_size=1, max_size=3))
    return Setting(broadcast, channels, timeouts)


class Network:
    def __init__(self, setting: Setting, cancels: bool, aborts: bool) -> None:
        self.setting = setting
        self.cancels = cancels
        self.aborts = aborts
        self.receiver = Receiver(setting.channels, setting.broadcast)
        self.senders = [Sender(c, overtakes=c not in setting.broadcast) for c in range(setting.channels)]

    def step(self, what: str, channel: int, which: int) -> bool:
        """Returns whether something moved on."""
        receiver, sender = self.receiver, self.senders[channel % self.setting.channels]
        channel = sender.channel
        match what:
            case "send":
                sender.send(which)
            case "barrier" if sender.last_id < len(self.setting.timeouts):
                timeout = self.setting.timeouts[sender.last_id]
                if which == 0 and self.cancels:
                    sender.cancel()
                else:
                    sender.checkpoint(timeout, unaligned=timeout == 0.0 or (timeout is not None and which == 1))
                return True
            case "turn":
                sender.make_unaligned(1 + which % 3)
            case "transmit" if sender.queue:
                sender.wire.append(sender.queue.pop())
                return True
            case "deliver" if sender.wire:
                receiver.deliver(channel, sender.wire.popleft())
                return True
            case "announcement" if receiver.announced[channel]:
                receiver.read_announcement(channel)
                return True
            case "process" if ready := receiver.ready():
                receiver.process(ready[which % len(ready)])
                return True
            case "wait":
                receiver.now += which / 2
                receiver.tick()
            case "abort" if self.aborts:
                receiver.abort(1 + which % 3)
        return False

    def finish(self) -> None:
        moves = ("barrier", "transmit", "deliver", "announcement", "process")
        while sum(self.step(what, channel, 5) for channel in range(self.setting.channels) for what in moves):
            pass

    def everywhere(self, n: int) -> bool:
        return all(n in sender.in_front for sender in self.senders)


STEPS = ["send"] * 4 + ["barrier"] * 2 + ["transmit"] * 5 + ["deliver"] * 5 + ["announcement"] * 3 + ["process"] * 5
Order = list[tuple[str, int, int]]
orders = st.lists(
    st.tuples(st.sampled_from([*STEPS, "turn", "wait", "abort"]), st.integers(0, 2), st.integers(0, 5)),
    max_size=80,
)


def run(setting: Setting, order: Order, cancels: bool, aborts: bool) -> Network:
    """The network after everything was sent and processed; each checkpoint holds what was sent before its barriers."""
    network = Network(setting, cancels, aborts)
    for what, channel, which in order:
        network.step(what, channel, which)
    network.finish()
    receiver = network.receiver
    for n in range(1, len(setting.timeouts) + 1):
        if not network.everywhere(n):
            receiver.abort(n)
        elif n not in receiver.aborted:
            assert n in receiver.taken
    network.finish()
    assert receiver.idle
    for sender in network.senders:
        assert receiver.processed[sender.channel] == units(sender.sent)
    for n in receiver.taken:
        if not network.everywhere(n) or n in receiver.dropped:
            continue
        for sender in network.senders:
            overtaken = units(sender.captured.get(n, []))
            assert receiver.state_of(n, sender.channel) + overtaken == sender.in_front[n]
    return network


@given(settings_of_jobs(), orders)
@settings(max_examples=400)
def test_what_was_processed_and_the_channel_state_is_all_that_was_sent_before_the_barrier(
    setting: Setting, order: Order
) -> None:
    network = run(setting, order, cancels=False, aborts=False)
    assert list(network.receiver.taken) == list(range(1, len(setting.timeouts) + 1))
    assert not network.receiver.cancelled


@given(settings_of_jobs(), orders)
@settings(max_examples=400)
def test_it_is_so_too_among_checkpoints_that_are_cancelled_and_aborted(setting: Setting, order: Order) -> None:
    emitted = run(setting, order, cancels=True, aborts=True).receiver.emitted
    assert emitted == sorted(set(emitted))
