"""Gates, coordinator and barrier handler together, in virtual time, with everything that may go wrong around them.

sources (a rate each) → channels (bounded queues) → one sink subtask (a rate), aligned barriers
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from checkpoint.barriers.events import (
    Barrier,
    BarrierArrived,
    BlockChannel,
    CheckpointAborted,
    ForwardCancel,
    TakeSnapshot,
    UnblockChannel,
)
from checkpoint.barriers.handler import BarrierHandler
from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.config import CheckpointConfig
from checkpoint.coordination import coordinator_events as ce
from checkpoint.coordination.coordinator import CheckpointCoordinator
from checkpoint.coordination.coordinator_events import FailureReason
from checkpoint.gate import gate_events as ge
from checkpoint.gate.gate_options import GateOptions
from checkpoint.gate.source_gate import SourceGate

HEARTBEAT = 1.0
LATENCY = 0.002
SINK_RATE = 100.0
"""Records a second that a normal sink takes, from all sources together."""


@dataclass(frozen=True)
class Scenario:
    """Durations in seconds."""

    interval: float = 2.0
    min_pause: float = 0.0
    max_concurrent: int = 1
    timeout: float = 80.0
    duration: float = 120.0
    gate: bool = True
    halving: bool = True
    window: bool = False
    slow_storage_span: float = 0.0
    gates: type[SourceGate] = SourceGate
    max_span_records: int | None = None
    sources: int = 2
    fetch_rate: float = 600.0
    """Records a second that one source could emit."""
    shares: tuple[float, ...] = ()
    """What part of the rate each source has instead of all of it."""
    fetch_over_time: Callable[[float, int], float] = field(default=lambda now, source: 1.0)
    """Factor on the rate of a source; 0 = nothing."""
    sink_over_time: Callable[[float], float] = field(default=lambda now: 1.0)
    """Factor on the sink's rate."""
    sink_rate: float = SINK_RATE
    fetch_records: int = 10
    """Most records of one fetch."""
    queue_seconds: float = 1.0
    """What the queues of all sources together hold, in seconds of a normal sink's work."""
    stall: tuple[float, float] = (0.0, 0.0)
    """From when to when the sink takes nothing."""
    storage: Callable[[random.Random], float] = field(default=lambda rng: 0.05 * (0.8 + 0.4 * rng.random()))
    """Seconds that a snapshot takes to be written."""
    jitter: float = 0.01
    """Delay of any message, at most, besides the latency."""
    lost: float = 0.0
    """Share of triggers, notifications, heartbeats and asks that are lost."""
    failing: float = 0.0
    """Share of checkpoints that fail at the sink or at `_metadata`."""
    deletion: float = 0.01
    savepoint_every: float | None = None
    latency: float = 0.0
    """Seconds from the work in front of a barrier to its snapshot."""


def _at(counts: list[tuple[float, int]], time: float) -> int:
    """A counter at that time."""
    index = bisect.bisect_right(counts, (time, math.inf))
    return counts[index - 1][1] if index else 0


@dataclass
class Source:
    gate: SourceGate
    queue: deque[tuple[str, int]] = field(default_factory=deque)
    """("records", number) or ("barrier", id)."""
    queued: int = 0
    fetching: bool = False
    held_up: bool = False
    last_delivery: float = 0.0
    """When the newest message from the coordinator arrives: they keep their order."""
    armed: float = -1.0
    """The gate's deadline for which a tick is under way."""
    # Measured apart from the gate:
    changed: float = 0.0
    span_open: float = 0.0
    span_records: int = 0
    longest_span: float = 0.0
    largest_span: int = 0
    closed_since: float | None = None
    longest_closed: float = 0.0
    taken: list[int] = field(default_factory=list)
    emitted: list[tuple[float, int]] = field(default_factory=list)
    """Counter over time, fetch by fetch."""

    def emitted_at(self, time: float) -> int:
        return _at(self.emitted, time)


class Job:
    """Sources → channels → one sink subtask, around the production state machines."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.s = scenario
        self.rng = random.Random(seed)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        config = CheckpointConfig(
            "/checkpoints",
            interval=scenario.interval,
            timeout=scenario.timeout,
            min_pause=scenario.min_pause,
            max_concurrent=scenario.max_concurrent,
            slow_storage_span=scenario.slow_storage_span,
            alignment="aligned",
            tolerable_failures=10**9,
        )
        options = GateOptions(
            config, max_span_records=scenario.max_span_records, window=scenario.window, enabled=scenario.gate
        )
        assert options.span_seconds is not None
        self.span_seconds = options.span_seconds
        self.sources = [Source(scenario.gates(options, 0.0)) for _ in range(scenario.sources)]
        self.coordinator = CheckpointCoordinator(
            config,
            scenario.sources + 1,
            first_id=1,
            reach={i: frozenset({scenario.sources}) for i in range(scenario.sources)},
        )
        self.handler = BarrierHandler(scenario.sources, 0.0)
        self.blocked: set[int] = set()
        self.busy = False
        self.turn = 0
        self.processed = 0
        self.processed_at: list[tuple[float, int]] = []
        """Counter over time, batch by batch."""
        self.triggered: dict[int, float] = {}
        self.kinds: dict[int, CheckpointKind] = {}
        self.completed: dict[int, float] = {}
        """Duration of each completed checkpoint that was no savepoint."""
        self.start_delays: dict[int, float] = {}
        self.completed_at: list[float] = []
        self.failures: list[FailureReason] = []
        self.savepoints = 0
        self.deletions_end = 0.0
        self.free_since: float | None = None
        self.longest_free = 0.0
        """Longest time that a gate was closed though nothing held the next checkpoint back."""
        self.coordinator_armed = -1.0

    def run(self) -> Job:
        self.at(0.0, lambda: self.tell_coordinator(ce.SubtasksRunning()))
        self.at(HEARTBEAT, self.beat)
        self.at(0.05, self.watch)
        if self.s.savepoint_every is not None:
            self.at(self.s.savepoint_every, self.request_savepoint)
        for i in range(len(self.sources)):
            self.at(0.0, lambda i=i: self.tell_gate(i, ge.Tick()))  # type: ignore[misc]
            self.fetch_later(i, 0.0)
        while self._events[0][0] <= self.s.duration:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = self.s.duration
        for source in self.sources:
            self.measure(source)
            self.end_span(source)
            self.end_closed(source)
        return self

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(time, self.now), next(self._order), action))

    def is_lost(self) -> bool:
        return self.rng.random() < self.s.lost

    # -- coordinator --------------------------------------------------------------------------------------------------

    def tell_coordinator(self, event: ce.Event) -> None:
        for action in self.coordinator.handle(event, self.now):
            match action:
                case ce.TriggerCheckpoint(n, kind):
                    self.triggered[n], self.kinds[n] = self.now, kind
                    for i in range(len(self.sources)):
                        self.send(i, lambda i=i, n=n, kind=kind: self.on_trigger(i, n, kind))  # type: ignore[misc]
                case ce.BarrierPassed(n, sources, delay, mean, busy):
                    self.start_delays[n] = delay
                    for i in sources:
                        told = ge.BarrierPassed(n, delay, mean, busy)
                        self.send(i, lambda i=i, told=told: self.tell_gate(i, told))  # type: ignore[misc]
                case ce.FinaliseCheckpoint(n):
                    failed = self.rng.random() < self.s.failing / 2
                    done = ce.FinaliseFailed(n, "disk full") if failed else ce.Finalised(n)
                    self.at(self.now + 0.005, lambda done=done: self.tell_coordinator(done))  # type: ignore[misc]
                case ce.NotifyComplete(n, kind):
                    if kind is CheckpointKind.SAVEPOINT:
                        self.savepoints += 1
                    else:
                        self.completed[n] = self.now - self.triggered[n]
                        self.completed_at.append(self.now)
                    self.notify(n, completed=True)
                case ce.NotifyAborted(n, _, reason):
                    if not reason.tolerated:
                        self.failures.append(reason)
                    self.notify(n, completed=False)
                    if not self.is_lost():
                        self.at(self.now + LATENCY, lambda n=n: self.tell_handler(CheckpointAborted(n)))  # type: ignore[misc]
                case ce.DeleteCheckpoint(n):
                    self.deletions_end = max(self.now, self.deletions_end) + self.s.deletion
                    done_at = self.deletions_end
                    self.at(done_at, lambda n=n: self.tell_coordinator(ce.DeletionDone(n)))  # type: ignore[misc]
                case ce.DiscardAcknowledgement():
                    pass
                case ce.RejectRequest() | ce.FailJob():
                    pytest.fail(f"unexpected: {action}")
        deadline = self.coordinator.next_deadline(self.now)
        if deadline is not None and deadline != self.coordinator_armed:
            self.coordinator_armed = deadline
            self.at(deadline, lambda: self.tell_coordinator(ce.Tick()))

    def send(self, i: int, action: Callable[[], None]) -> None:
        """One connection a subtask: what is not lost arrives in order."""
        if self.is_lost():
            return
        source = self.sources[i]
        source.last_delivery = max(source.last_delivery, self.now + LATENCY + self.rng.random() * self.s.jitter)
        self.at(source.last_delivery, action)

    def notify(self, n: int, completed: bool) -> None:
        for i in range(len(self.sources)):
            self.send(i, lambda i=i: self.tell_gate(i, ge.CheckpointResolved(n, completed)))  # type: ignore[misc]
        self.send_heartbeats()

    def send_heartbeats(self) -> None:
        for i in range(len(self.sources)):
            heartbeat = self.coordinator.heartbeat(self.now, i)
            if not self.s.halving:
                heartbeat = replace(heartbeat, span_scale=1.0)
            self.send(i, lambda i=i, told=heartbeat: self.tell_gate(i, ge.HeartbeatReceived(told)))  # type: ignore[misc]

    def beat(self) -> None:
        self.send_heartbeats()
        self.at(self.now + HEARTBEAT, self.beat)

    def request_savepoint(self) -> None:
        assert self.s.savepoint_every is not None
        self.tell_coordinator(ce.CheckpointRequested(CheckpointKind.SAVEPOINT, f"at {self.now}"))
        self.at(self.now + self.s.savepoint_every, self.request_savepoint)

    def watch(self) -> None:
        """Measure for how long a gate is closed while the coordinator could trigger and has triggered nothing."""
        facts = self.coordinator.heartbeat(self.now)
        ordinary = [n for n, kind in facts.in_progress if kind is not CheckpointKind.SAVEPOINT]
        free = facts.held_back is None and len(ordinary) < self.s.max_concurrent
        if not free or all(source.gate.is_open for source in self.sources):
            self.free_since = None
        else:
            self.free_since = self.now if self.free_since is None else self.free_since
            self.longest_free = max(self.longest_free, self.now - self.free_since)
        self.at(self.now + 0.05, self.watch)

    # -- sources ------------------------------------------------------------------------------------------------------

    def on_trigger(self, i: int, n: int, kind: CheckpointKind) -> None:
        if self.sources[i].gate.admits_trigger(n):
            self.take_barrier(i, n, kind)

    def take_barrier(self, i: int, n: int, kind: CheckpointKind) -> None:
        source = self.sources[i]
        self.measure(source)
        if kind is not CheckpointKind.SAVEPOINT:
            self.end_span(source)
        assert n > max(source.taken, default=0)
        source.taken.append(n)
        source.queue.append(("barrier", n))
        span, busy = source.gate.span_records, source.gate.busy(source.held_up)
        self.tell_gate(i, ge.BarrierTaken(n, kind, source.held_up))
        source.held_up = False
        self.at(self.now + LATENCY, lambda: self.tell_coordinator(ce.SnapshotTaken(n, i, span, busy)))
        self.at(self.now + self.s.storage(self.rng), lambda: self.tell_coordinator(ce.Acknowledged(n, i)))
        self.work()

    def tell_gate(self, i: int, event: ge.Event) -> None:
        source = self.sources[i]
        self.measure(source)
        for action in source.gate.handle(event, self.now):
            match action:
                case ge.CloseGate(reason):
                    assert reason
                    source.closed_since = self.now
                case ge.OpenGate():
                    self.end_closed(source)
                    self.fetch_later(i, 0.0)
                case ge.AskForCheckpoint(n):
                    if not self.is_lost():
                        self.at(self.now + LATENCY, lambda n=n: self.tell_coordinator(ce.CheckpointAsked(n)))  # type: ignore[misc]
                case ge.TakeBarrier(n, kind):
                    self.take_barrier(i, n, kind)
        deadline = source.gate.next_deadline(self.now)
        if deadline is not None and deadline != source.armed:
            source.armed = deadline
            self.at(deadline, lambda: self.tell_gate(i, ge.Tick()))

    def fetch_later(self, i: int, delay: float) -> None:
        if not self.sources[i].fetching:
            self.sources[i].fetching = True
            self.at(self.now + delay, lambda: self.fetch(i))

    def fetch(self, i: int) -> None:
        source = self.sources[i]
        source.fetching = False
        allowance = source.gate.record_allowance()
        records = self.s.fetch_records if allowance is None else min(self.s.fetch_records, allowance)
        room = self.s.queue_seconds * self.s.sink_rate / len(self.sources)
        rate = self.s.fetch_rate * self.s.fetch_over_time(self.now, i) * (self.s.shares[i] if self.s.shares else 1.0)
        if not rate:
            self.fetch_later(i, 0.1)
            return
        if not records or (source.queued and source.queued + records > room):
            source.held_up |= bool(records)
            return  # woken by the gate or the sink
        source.queue.append(("records", records))
        source.queued += records
        source.span_records += records
        source.emitted.append((self.now, source.emitted_at(self.now) + records))
        self.fetch_later(i, records / rate)
        self.tell_gate(i, ge.Emitted(records, 100 * records))
        self.work()

    def measure(self, source: Source) -> None:
        if source.gate.is_open:
            source.span_open += self.now - source.changed
        source.changed = self.now

    def end_span(self, source: Source) -> None:
        source.longest_span = max(source.longest_span, source.span_open)
        source.largest_span = max(source.largest_span, source.span_records)
        source.span_open, source.span_records = 0.0, 0

    def end_closed(self, source: Source) -> None:
        if source.closed_since is not None:
            source.longest_closed = max(source.longest_closed, self.now - source.closed_since)
        source.closed_since = None

    # -- sink ---------------------------------------------------------------------------------------------------------

    def work(self) -> None:
        while not self.busy and (ready := [i for i in self.order() if self.sources[i].queue and i not in self.blocked]):
            self.turn = ready[0] + 1
            kind, n = self.sources[ready[0]].queue.popleft()
            if kind == "barrier":
                self.tell_handler(BarrierArrived(ready[0], Barrier(n, self.kinds[n])))
                continue
            self.busy = True
            start = self.s.stall[1] if self.s.stall[0] <= self.now < self.s.stall[1] else self.now
            rate = self.s.sink_rate * self.s.sink_over_time(start)
            self.at(start + n / rate, lambda i=ready[0], n=n: self.processed_batch(i, n))  # type: ignore[misc]

    def order(self) -> list[int]:
        count = len(self.sources)
        return [(self.turn + i) % count for i in range(count)]

    def processed_batch(self, i: int, records: int) -> None:
        self.busy = False
        self.processed += records
        self.processed_at.append((self.now, self.processed))
        self.sources[i].queued -= records
        self.fetch_later(i, 0.0)
        self.work()

    def tell_handler(self, event: BarrierArrived | CheckpointAborted) -> None:
        for action in self.handler.handle(event, self.now):
            match action:
                case BlockChannel(channel):
                    self.blocked.add(channel)
                case UnblockChannel(channel):
                    self.blocked.remove(channel)
                case TakeSnapshot(barrier):
                    n = barrier.checkpoint_id
                    self.at(self.now + self.s.latency, lambda n=n: self.snapshot(n))  # type: ignore[misc]
                case ForwardCancel(n, message):
                    self.tell_coordinator(ce.Declined(n, len(self.sources), message))
        self.work()

    def snapshot(self, n: int) -> None:
        me = len(self.sources)
        failed = self.rng.random() < self.s.failing / 2
        result = ce.Declined(n, me, "disk full", FailureReason.ASYNC) if failed else ce.Acknowledged(n, me)
        if not self.is_lost():
            self.at(self.now + LATENCY, lambda: self.tell_coordinator(ce.SnapshotTaken(n, me)))
        self.at(self.now + self.s.storage(self.rng), lambda: self.tell_coordinator(result))

    # -- figures ------------------------------------------------------------------------------------------------------

    def rate(self, start: float, end: float) -> float:
        """Records a second that the sink has taken in that time."""
        return (_at(self.processed_at, end) - _at(self.processed_at, start)) / (end - start)

    def durations(self, since: float = 0.0) -> list[float]:
        """Durations of checkpoints triggered since then."""
        return [duration for n, duration in self.completed.items() if self.triggered[n] >= since]
