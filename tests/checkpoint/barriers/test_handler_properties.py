"""Every order of what up to three channels carry: each snapshot and its channel state are one consistent cut."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from receiver import Receiver, Unit, units

from checkpoint.barriers.events import Barrier
from checkpoint.elements import (
    BarrierElement,
    CancelMarker,
    Data,
    Element,
    EndOfInput,
    IdleStatus,
    InFlight,
    Watermark,
    is_in_flight,
)


@dataclass(frozen=True)
class Scenario:
    channels: list[list[Element]]
    """What each carries, ids ascending."""
    broadcast: frozenset[int]

    @property
    def ids(self) -> list[int]:
        found = {_id_of(e) for channel in self.channels for e in channel}
        return sorted(n for n in found if n is not None)

    def carries(self, channel: int, n: int) -> bool:
        return any(isinstance(e, BarrierElement) and e.barrier.checkpoint_id == n for e in self.channels[channel])

    def cancels(self, channel: int, n: int) -> bool:
        return CancelMarker(n) in self.channels[channel]

    def everywhere(self, n: int) -> bool:
        return all(self.carries(channel, n) for channel in range(len(self.channels)))

    def in_front(self, channel: int, n: int) -> list[Unit]:
        front: list[InFlight] = []
        for element in self.channels[channel]:
            if isinstance(element, BarrierElement) and element.barrier.checkpoint_id == n:
                return units(front)
            if is_in_flight(element):
                front.append(element)  # type: ignore[arg-type]
        raise AssertionError(f"channel {channel} carries no barrier {n}")


def _id_of(element: Element) -> int | None:
    if isinstance(element, BarrierElement):
        return element.barrier.checkpoint_id
    return element.checkpoint_id if isinstance(element, CancelMarker) else None


@st.composite
def scenarios(draw: st.DrawFn, fates: tuple[str, ...], timeouts: tuple[float | None, ...]) -> Scenario:
    """Each channel carries, in order of the ids, a barrier, a cancel marker or nothing of each checkpoint.

    A barrier may have been turned unaligned on its way; each has an age of its own.
    """
    count = draw(st.integers(1, 3))
    last_id = draw(st.integers(1, 3))
    timeout = {n: draw(st.sampled_from(timeouts)) for n in range(1, last_id + 1)}
    may_turn = any(t is not None for t in timeout.values())
    channels = []
    for c in range(count):
        ends_before = draw(st.integers(1, last_id + 2))
        channel: list[Element] = []
        for n in range(1, last_id + 2):
            if n < ends_before:
                channel += draw(st.lists(_in_flight(), max_size=2))
            elif n == ends_before:
                channel.append(EndOfInput())
            if n > last_id:
                break
            match draw(st.sampled_from(fates)):
                case "barrier":
                    turned = may_turn and draw(st.integers(0, 4)) == 0
                    age = float(draw(st.integers(0, 6)))
                    channel.append(BarrierElement(Barrier(n, alignment_timeout=0.0 if turned else timeout[n], age=age)))
                case "cancel":
                    channel.append(CancelMarker(n))
        if ends_before == last_id + 2:
            channel.append(EndOfInput())
        channels.append([_named(e, c, position) for position, e in enumerate(channel)])
    return Scenario(channels, frozenset(c for c in range(count) if draw(st.integers(0, 3)) == 0))


def _in_flight() -> st.SearchStrategy[InFlight]:
    batches = st.builds(lambda rows: Data(b"", 1, rows), st.integers(1, 3))
    return st.one_of(batches, batches, batches, st.just(Watermark(0)), st.booleans().map(IdleStatus))


def _named(element: Element, channel: int, position: int) -> Element:
    """Every element its own, so that one is never taken for another."""
    if isinstance(element, Data):
        return replace(element, payload=f"{channel}:{position}".encode())
    return Watermark(1000 * channel + position) if isinstance(element, Watermark) else element


Choices = list[tuple[int, int]]
choices = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 11)), max_size=60)


@dataclass
class Run:
    """A scenario on its way through a receiver."""

    scenario: Scenario
    aborts: bool

    def __post_init__(self) -> None:
        self.receiver = Receiver(len(self.scenario.channels), self.scenario.broadcast)
        self.wires = [deque(channel) for channel in self.scenario.channels]

    def step(self, what: int, which: int) -> bool:
        """Returns whether there was anything to do."""
        receiver = self.receiver
        if what == 0 and self.aborts:
            receiver.abort(1 + which % 4)
        elif what <= 1:
            receiver.now += which / 4
        elif what == 2:
            receiver.tick()
        elif what <= 6:
            if not (waiting := [c for c, wire in enumerate(self.wires) if wire]):
                return False
            channel = waiting[which % len(waiting)]
            receiver.deliver(channel, self.wires[channel].popleft())
        elif what <= 9:
            if not (unread := [c for c, barriers in enumerate(receiver.announced) if barriers]):
                return False
            receiver.read_announcement(unread[which % len(unread)])
        else:
            if not (ready := receiver.ready()):
                return False
            receiver.process(ready[which % len(ready)])
        return True

    def play(self, order: Choices) -> None:
        """In the order that the choices say, then to the end."""
        for what, which in order:
            self.step(what, which)
        self._finish()
        for n in self.scenario.ids:
            if self.scenario.everywhere(n) and n not in self.receiver.aborted:
                assert n in self.receiver.taken, "nothing but an abort stops a checkpoint whose barriers are everywhere"
        # what some channel does not carry at all is given up by the coordinator in the end: it expires
        for n in self.scenario.ids:
            if not self.scenario.everywhere(n):
                self.receiver.abort(n)
        self._finish()

    def _finish(self) -> None:
        turn = 0
        while sum(self.step(what, turn) for what in (15, 6, 9)):
            turn += 1


def run(scenario: Scenario, order: Choices, aborts: bool) -> Receiver:
    """The receiver after everything was processed.

    Checks that nothing is stuck, and that each snapshot with its channel state is what lay in front of the barriers.
    """
    played = Run(scenario, aborts)
    played.play(order)
    receiver = played.receiver
    assert receiver.idle
    assert receiver.ended == set(range(receiver.channels))
    for channel, carried in enumerate(scenario.channels):
        assert receiver.processed[channel] == units([e for e in carried if is_in_flight(e)])  # type: ignore[misc]
    assert list(receiver.taken) == sorted(receiver.taken)
    for n in receiver.taken:
        if scenario.everywhere(n) and n not in receiver.dropped:
            for channel in range(receiver.channels):
                assert receiver.state_of(n, channel) == scenario.in_front(channel, n), f"checkpoint {n} on {channel}"
    return receiver


ANY = ("barrier", "barrier", "barrier", "cancel", "nothing")
TIMEOUTS = (None, 0.0, 4.0, 7.0)


@given(scenarios(("barrier",), (None,)), choices)
@settings(max_examples=100)
def test_aligned_checkpoints_capture_nothing_and_are_all_taken(scenario: Scenario, order: Choices) -> None:
    receiver = run(scenario, order, aborts=False)
    assert list(receiver.taken) == scenario.ids
    assert not receiver.captured
    assert not any(snapshot.unaligned for snapshot in receiver.taken.values())


@given(scenarios(("barrier",), TIMEOUTS), choices)
@settings(max_examples=300)
def test_checkpoints_of_any_alignment_are_all_taken(scenario: Scenario, order: Choices) -> None:
    receiver = run(scenario, order, aborts=False)
    assert list(receiver.taken) == scenario.ids
    assert not receiver.cancelled


@given(scenarios(ANY, TIMEOUTS), choices)
@settings(max_examples=500)
def test_any_order_of_barriers_data_cancels_ends_and_aborts(scenario: Scenario, order: Choices) -> None:
    receiver = run(scenario, order, aborts=True)
    assert receiver.emitted == sorted(set(receiver.emitted)), "barriers and cancel markers keep the order of the ids"
    for n in scenario.ids:
        if any(scenario.cancels(c, n) for c in range(len(scenario.channels))) and n not in receiver.dropped:
            assert n in receiver.emitted or any(m > n for m in receiver.emitted), "downstream hears of it"
