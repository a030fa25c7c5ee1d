"""Gates, coordinator and barrier handler together, in virtual time, with everything that may go wrong around them."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from checkpoint import gate_events as ge
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
from checkpoint.coordination import coordinator_events as ce
from checkpoint.coordination.coordinator import CheckpointCoordinator
from checkpoint.coordination.coordinator_events import CheckpointKind, FailureReason
from checkpoint.coordination.coordinator_options import CoordinatorOptions
from checkpoint.gate import GateOptions, SourceGate

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
    max_span_records: int | None = None
    sources: int = 2
    fetch_rate: float = 600.0
    """Records a second that one source could emit."""
    fetch_records: int = 10
    """Most records of one fetch."""
    queue_seconds: float = 1.0
    """What the queues of all sources together hold, in seconds of a normal sink's work."""
    stall: tuple[float, float] = (0.0, 0.0)
    """From when to when the sink takes nothing."""
    storage: Callable[[random.Random], float] = field(default=lambda rng: 0.05 * (0.8 + 0.4 * rng.random()))
    jitter: float = 0.01
    """Delay of any message, at most, besides the latency."""
    lost: float = 0.0
    """Share of triggers, notifications, heartbeats and asks that are lost."""
    failing: float = 0.0
    """Share of checkpoints that fail at the sink or at `_metadata`."""
    deletion: float = 0.01
    savepoint_every: float | None = None


@dataclass
class Source:
    gate: SourceGate
    queue: deque[tuple[str, int]] = field(default_factory=deque)
    """("records", number) or ("barrier", id)."""
    queued: int = 0
    fetching: bool = False
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


class Job:
    """Sources → channels → one sink subtask, around the production state machines."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.s = scenario
        self.rng = random.Random(seed)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        options = GateOptions(
            scenario.interval,
            scenario.min_pause,
            scenario.max_concurrent,
            scenario.timeout,
            max_span_records=scenario.max_span_records,
            enabled=scenario.gate,
        )
        assert options.span_seconds is not None
        self.span_seconds = options.span_seconds
        self.sources = [Source(SourceGate(options, 0.0)) for _ in range(scenario.sources)]
        self.coordinator = CheckpointCoordinator(
            CoordinatorOptions(
                interval=scenario.interval,
                timeout=scenario.timeout,
                min_pause=scenario.min_pause,
                max_concurrent=scenario.max_concurrent,
                tolerable_failures=10**9,
            ),
            scenario.sources + 1,
            first_id=1,
        )
        self.handler = BarrierHandler(scenario.sources, 0.0)
        self.blocked: set[int] = set()
        self.busy = False
        self.turn = 0
        self.processed = 0
        self.triggered: dict[int, float] = {}
        self.kinds: dict[int, CheckpointKind] = {}
        self.completed: dict[int, float] = {}
        """Duration of each completed checkpoint that was no savepoint."""
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
                    self.notify(n)
                case ce.NotifyAborted(n, _, reason):
                    if not reason.tolerated:
                        self.failures.append(reason)
                    self.notify(n)
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

    def notify(self, n: int) -> None:
        for i in range(len(self.sources)):
            self.send(i, lambda i=i: self.tell_gate(i, ge.CheckpointResolved(n)))  # type: ignore[misc]
        self.send_heartbeats()

    def send_heartbeats(self) -> None:
        heartbeat = self.coordinator.heartbeat(self.now)
        if not self.s.halving:
            heartbeat = replace(heartbeat, span_scale=1.0)
        for i in range(len(self.sources)):
            self.send(i, lambda i=i: self.tell_gate(i, ge.HeartbeatReceived(heartbeat)))  # type: ignore[misc]

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
        self.tell_gate(i, ge.BarrierTaken(n, kind))
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
        room = self.s.queue_seconds * SINK_RATE / len(self.sources)
        if not records or (source.queued and source.queued + records > room):
            return  # woken by the gate or the sink
        source.queue.append(("records", records))
        source.queued += records
        source.span_records += records
        self.fetch_later(i, records / self.s.fetch_rate)
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
            self.at(start + n / SINK_RATE, lambda i=ready[0], n=n: self.processed_batch(i, n))  # type: ignore[misc]

    def order(self) -> list[int]:
        count = len(self.sources)
        return [(self.turn + i) % count for i in range(count)]

    def processed_batch(self, i: int, records: int) -> None:
        self.busy = False
        self.processed += records
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
                    self.snapshot(barrier.checkpoint_id)
                case ForwardCancel(n, message):
                    self.tell_coordinator(ce.Declined(n, len(self.sources), message))
        self.work()

    def snapshot(self, n: int) -> None:
        me = len(self.sources)
        failed = self.rng.random() < self.s.failing / 2
        result = ce.Declined(n, me, "disk full", FailureReason.ASYNC) if failed else ce.Acknowledged(n, me)
        self.at(self.now + self.s.storage(self.rng), lambda: self.tell_coordinator(result))


def check(job: Job) -> None:
    """What holds in every scenario."""
    s = job.s
    for source in job.sources:
        assert source.longest_span <= job.span_seconds + 1e-6
        if s.max_span_records is not None:
            assert source.largest_span <= s.max_span_records
        held_back = s.timeout + s.min_pause + s.deletion * (s.max_concurrent + 1)
        assert source.longest_closed <= held_back + 3 * s.interval + 5 * HEARTBEAT, "closed for good"
    # A shortened span or a record limit may be over before the interval, and asks wait for it after a failure.
    assert job.longest_free <= s.interval + 5 * HEARTBEAT, "closed though nothing held the next checkpoint back"
    assert job.completed, "checkpoints complete"


def random_scenario(seed: int, **fixed: object) -> Scenario:
    rng = random.Random(seed)
    interval = rng.choice([1.0, 2.0, 5.0])
    storage = rng.choice([0.05, 0.2, 0.5]) * interval
    scenario = Scenario(
        interval=interval,
        min_pause=rng.choice([0.0, 0.0, 0.5, 1.0, 2.0]) * interval,
        max_concurrent=rng.randint(1, 3),
        timeout=rng.choice([10, 30]) * interval,
        duration=60 * interval,
        sources=rng.randint(1, 3),
        fetch_records=int(5 * interval),
        queue_seconds=rng.choice([0.2, 0.5]) * interval,
        storage=lambda r: storage * (0.8 + 0.4 * r.random()),
        jitter=rng.choice([0.0, 0.05]) * interval,
    )
    return replace(scenario, **fixed)  # type: ignore[arg-type]


def compare(scenario: Scenario, seed: int) -> tuple[Job, Job]:
    return Job(scenario, seed).run(), Job(replace(scenario, gate=False), seed).run()


@pytest.mark.parametrize("seed", range(8))
def test_a_healthy_job_loses_no_throughput_and_its_gate_never_closes(seed: int) -> None:
    scenario = random_scenario(seed)
    on, off = compare(replace(scenario, queue_seconds=0.2 * scenario.interval), seed)
    check(on)
    assert max(on.completed.values()) < on.s.interval, "the scenario is healthy"
    assert all(source.gate.closed_seconds(on.now) == 0 for source in on.sources)
    assert on.processed >= 0.98 * off.processed
    assert not on.failures


@pytest.mark.parametrize("seed", range(8))
def test_a_sink_at_one_percent(seed: int) -> None:
    scenario = random_scenario(seed)
    job = Job(replace(scenario, fetch_rate=100 * SINK_RATE, queue_seconds=10 * scenario.interval), seed).run()
    check(job)
    assert any(source.gate.closed_seconds(job.now) > 0 for source in job.sources)


@pytest.mark.parametrize("seed", range(6))
def test_a_sink_stalled_for_two_intervals(seed: int) -> None:
    scenario = random_scenario(seed)
    stall = (10 * scenario.interval, 12 * scenario.interval)
    on, off = compare(replace(scenario, stall=stall), seed)
    check(on)
    assert not on.failures
    lost = (off.processed - on.processed) / SINK_RATE
    assert lost <= scenario.interval + scenario.min_pause, "less is lost than the time to the next barrier"


@pytest.mark.parametrize("seed", range(6))
def test_slow_storage(seed: int) -> None:
    interval = random_scenario(seed).interval
    check(Job(random_scenario(seed, storage=lambda rng: interval * rng.choice([2, 5])), seed).run())


@pytest.mark.parametrize("seed", range(8))
def test_failing_checkpoints(seed: int) -> None:
    job = Job(random_scenario(seed, failing=0.4), seed).run()
    check(job)
    assert job.failures


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("overloaded", [False, True])
def test_lost_triggers_callbacks_heartbeats_and_asks(seed: int, overloaded: bool) -> None:
    scenario = random_scenario(seed, lost=0.2, max_span_records=random.Random(seed).choice([None, 40]))
    if overloaded:
        scenario = replace(scenario, queue_seconds=5 * scenario.interval, failing=0.2)
    check(Job(scenario, seed).run())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("deletion", [0.5, 2.0, 1000.0])
def test_slow_and_hung_deletions(seed: int, deletion: float) -> None:
    scenario = random_scenario(seed)
    job = Job(replace(scenario, deletion=deletion * scenario.interval), seed).run()
    # A hung deletion is given up after the timeout.
    job.s = replace(job.s, deletion=min(job.s.deletion, job.s.timeout))
    check(job)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("every", [1, 3])
def test_savepoints_neither_refill_spans_nor_delay_checkpoints(seed: int, every: int) -> None:
    scenario = random_scenario(seed)
    healthy = replace(scenario, queue_seconds=0.2 * scenario.interval)
    job = Job(replace(healthy, savepoint_every=every * scenario.interval), seed).run()
    check(job)
    assert job.savepoints > 5
    assert all(source.gate.closed_seconds(job.now) == 0 for source in job.sources)


@pytest.mark.parametrize("seed", range(6))
def test_savepoints_of_an_overloaded_job_admit_no_more_data(seed: int) -> None:
    scenario = random_scenario(seed)
    savepoint_every, queue_seconds = 2 * scenario.interval, 5 * scenario.interval
    job = Job(replace(scenario, savepoint_every=savepoint_every, queue_seconds=queue_seconds), seed).run()
    check(job)
    assert job.savepoints > 1
    assert any(source.gate.closed_seconds(job.now) > 0 for source in job.sources)


@pytest.mark.parametrize("seed", range(6))
def test_sources_near_their_record_limit_get_checkpoints_ahead_of_time(seed: int) -> None:
    """Each of two sources emits 50 records a second: its limit of 50 lasts a fifth of the interval."""
    scenario = Scenario(interval=5.0, max_concurrent=2, max_span_records=50, queue_seconds=0.4, fetch_records=5)
    on, off = compare(scenario, seed)
    check(on)
    assert len(on.completed) > 3 * scenario.duration / scenario.interval
    assert on.processed >= 0.98 * off.processed


# -- the experiment that this project began with ------------------------------------------------------------------

OVERLOADED = Scenario(
    interval=10,
    timeout=300,
    max_concurrent=2,
    duration=3000,
    sources=1,
    fetch_rate=600,
    fetch_records=100,
    queue_seconds=400,
)


@pytest.mark.parametrize("seed", range(1))
def test_an_overloaded_aligned_job_completes_with_the_gate_and_expires_without(seed: int) -> None:
    on, off = compare(OVERLOADED, seed)
    check(on)
    assert not on.failures
    assert len(on.completed) >= 40
    assert on.processed >= 0.99 * off.processed
    assert len(off.completed) <= 4
    assert off.failures.count(FailureReason.EXPIRED) >= 15


@pytest.mark.parametrize("seed", range(1))
def test_a_span_that_takes_longer_than_the_timeout_is_halved_until_checkpoints_complete(seed: int) -> None:
    """A span of 11 s is 660 s of work here, and the timeout is 300 s."""
    scenario = replace(OVERLOADED, fetch_rate=6000, fetch_records=300, queue_seconds=4000, duration=9000)
    halving, rigid = Job(scenario, seed).run(), Job(replace(scenario, halving=False), seed).run()
    assert all(source.longest_span <= halving.span_seconds + 1e-6 for source in halving.sources)
    late = [t for t in halving.completed_at if t > 3000]
    assert len(late) >= 10
    assert all(after - before < 8 * scenario.timeout for before, after in itertools.pairwise(late))
    assert not [t for t in rigid.completed_at if t > 600], "without halving every checkpoint expires, for ever"
