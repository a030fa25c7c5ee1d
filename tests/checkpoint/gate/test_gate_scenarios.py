"""What a learned window makes of a job: scenarios of the fluid model that it was drawn up with, on the production gate
and coordinator in virtual time, and the same with a rule broken on purpose.

Interval 10 s, two checkpoints at a time, queues of 150 s of work, a healthy sink of 1,000 records/s.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import ClassVar

import pytest
from virtual_job import Job, Scenario

from checkpoint.coordination import coordinator as coordinator_module
from checkpoint.coordination.trigger_schedule import TriggerSchedule
from checkpoint.gate import window as window_module
from checkpoint.gate.gate_events import (
    Action,
    BarrierPassed,
    BarrierTaken,
    CheckpointResolved,
    Event,
    HeartbeatReceived,
)
from checkpoint.gate.gate_options import GateOptions
from checkpoint.gate.rounds import Round
from checkpoint.gate.source_gate import SourceGate
from checkpoint.gate.window import SpanWindow

_RATE = 1_000.0
_HEALTHY = Scenario(
    interval=10.0,
    max_concurrent=2,
    timeout=300.0,
    duration=900.0,
    sources=2,
    fetch_rate=400.0,
    fetch_records=20,
    sink_rate=_RATE,
    queue_seconds=150.0,
    window=True,
)
_TOO_FAST = replace(_HEALTHY, fetch_rate=50 * _RATE, fetch_records=100)
_SLOW_STORAGE: dict[str, Callable[[random.Random], float]] = {"storage": lambda rng: 30.0}


def _slow_for_a_while(now: float) -> float:
    return 0.1 if 300 <= now < 420 else 1.0


def _bursts(now: float, source: int) -> float:
    return 1.0 if now % 60 < 10 else 0.002


@cache
def _run(scenario: Scenario) -> Job:
    return Job(scenario, 1).run()


def _without(scenario: Scenario) -> Job:
    return _run(replace(scenario, gate=False))


def _by_time(scenario: Scenario) -> Job:
    return _run(replace(scenario, window=False, slow_storage_span=0.0))


# -- what has to hold: each raises AssertionError, for the mutants below -------------------------------------------


def too_fast(times: float, **options: object) -> None:
    scenario = replace(_HEALTHY, fetch_rate=times * _RATE / 2, fetch_records=50, **options)  # type: ignore[arg-type]
    job, without = _run(scenario), _without(scenario)
    assert not job.failures
    assert statistics.median(job.durations(300)) <= scenario.interval
    assert statistics.median(without.durations(300)) >= 12 * statistics.median(job.durations(300))
    assert job.processed >= 0.98 * without.processed


def healthy(**options: object) -> None:
    scenario = replace(_HEALTHY, **options)  # type: ignore[arg-type]
    job, without = _run(scenario), _without(scenario)
    assert job.processed >= 0.98 * without.processed
    extra = len(job.completed) - len(without.completed)
    assert extra <= 12, "learning costs a few checkpoints, no more"
    resumed = [max((at for at in job.completed_at if at < trigger), default=-1e9) for trigger in job.triggered.values()]
    pauses = [trigger - end for trigger, end in zip(job.triggered.values(), resumed, strict=True)]
    assert min(pauses) >= scenario.min_pause, "checkpoints on demand keep the min pause"


def bursts() -> None:
    scenario = replace(_HEALTHY, fetch_over_time=_bursts)
    assert _run(scenario).processed >= 0.98 * _without(scenario).processed


def slowed_for_two_minutes() -> None:
    scenario = replace(_HEALTHY, sink_over_time=_slow_for_a_while, queue_seconds=4.0)
    job = _run(scenario)
    assert not job.failures
    assert job.rate(430, 440) >= 0.98 * 2 * scenario.fetch_rate, "full speed again within 10 s"
    assert job.processed >= 0.98 * _without(scenario).processed
    in_between = [job.start_delays[n] for n, at in job.triggered.items() if 370 <= at < 400 and n in job.start_delays]
    assert in_between
    assert max(in_between) <= 3 * scenario.interval


def healthy_with_slow_storage(max_concurrent: int = 2) -> None:
    scenario = replace(_HEALTHY, fetch_rate=_RATE / 2.2, max_concurrent=max_concurrent, **_SLOW_STORAGE)  # type: ignore[arg-type]
    without = _without(scenario)
    assert _run(replace(scenario, slow_storage_span=60.0)).processed >= 0.95 * without.processed
    assert _run(scenario).processed >= 0.95 * _by_time(scenario).processed


def too_fast_with_slow_storage() -> None:
    scenario = replace(_HEALTHY, fetch_rate=1.5 * _RATE, slow_storage_span=60.0, **_SLOW_STORAGE)  # type: ignore[arg-type]
    job, without = _run(scenario), _without(scenario)
    assert job.processed >= 0.95 * without.processed
    assert statistics.median(job.durations(300)) <= 30.0 + 2 * scenario.interval


def skewed() -> None:
    """One of four source subtasks has ten times the data of the others; the sink does half of it all."""
    scenario = replace(_HEALTHY, sources=4, fetch_rate=1_500.0, shares=(1.0, 0.1, 0.1, 0.1))
    job, without = _run(scenario), _without(scenario)
    assert statistics.median(job.durations(300)) <= scenario.interval
    assert job.processed >= 0.98 * without.processed
    fast, *others = (source.gate.window_records for source in job.sources)
    assert fast is not None
    assert all(other is not None and other < fast for other in others), "windows are per subtask"


def latecomer() -> None:
    """Two sources give more than the sink takes, each alone; one has begun ten minutes after the other."""

    def late(now: float, source: int) -> float:
        return 1.0 if source == 0 or now > 600 else 0.001

    scenario = replace(_HEALTHY, fetch_rate=3 * _RATE, fetch_over_time=late, duration=1200.0)
    job = _run(scenario)
    first, second = (source.emitted_at(1200) - source.emitted_at(900) for source in job.sources)
    assert first / second == pytest.approx(1.0, abs=0.25)
    assert job.rate(900, 1200) >= 0.98 * _RATE
    assert statistics.median(job.durations(900)) <= scenario.interval


def pause_of_an_hour() -> None:
    def paused(now: float, source: int) -> float:
        return 0.0 if 300 <= now < 3900 else 1.0

    scenario = replace(_HEALTHY, fetch_over_time=paused, duration=4000.0)
    job, without = _run(scenario), _without(scenario)
    assert job.rate(3905, 3990) >= 0.98 * without.rate(3905, 3990)


def latency(seconds: float, **options: object) -> None:
    """Records and barriers take their time through the job, however little there is; it does all the same."""
    scenario = replace(_HEALTHY, fetch_rate=3 * _RATE, fetch_records=50, latency=seconds, duration=1800.0, **options)  # type: ignore[arg-type]
    job = _run(scenario)
    assert job.rate(900, 1800) >= 0.8 * _RATE


def very_slow() -> None:
    """Five records a second: queues of 200 records are full before any window is used up."""
    scenario = replace(
        _HEALTHY, sources=1, fetch_rate=100.0, fetch_records=1, sink_rate=5.0, queue_seconds=40.0, max_concurrent=1
    )
    job, by_time = _run(scenario), _by_time(scenario)
    assert statistics.median(job.start_delays.values()) <= scenario.interval
    assert sum(delay > 1.5 * scenario.interval for delay in job.start_delays.values()) <= 1, "only the first"
    assert max(by_time.durations(300)) >= 3 * scenario.interval
    assert job.processed >= 0.98 * by_time.processed


def quiet_then_flooded() -> None:
    """A job that has only ever had a trickle gets a hundred times what its sink does."""
    scenario = replace(_TOO_FAST, fetch_over_time=lambda now, source: 0.0002 if now < 600 else 1.0)
    job = _run(scenario)
    assert max(job.durations(600)) <= 2 * scenario.interval


def expired() -> None:
    """The sink stands still for longer than the timeout."""
    stalled = replace(_TOO_FAST, queue_seconds=20.0, timeout=30.0, stall=(300.0, 400.0))
    job = _run(stalled)
    assert job.failures
    assert statistics.median(job.durations(430)) <= stalled.interval


def flutter() -> None:
    scenario = replace(_HEALTHY, sink_over_time=lambda now: 0.1 if int(now / 5) % 2 else 1.5, fetch_rate=500.0)
    job, without = _run(scenario), _without(scenario)
    took = statistics.median(job.durations(100))
    assert took <= 1.2 * scenario.interval
    assert took <= statistics.median(_by_time(scenario).durations(100)) / 2
    assert job.processed >= 0.98 * without.processed


_HOLDS: dict[str, Callable[[], None]] = {
    "100 times too fast": lambda: too_fast(100),
    "100 times too fast, one checkpoint at a time": lambda: too_fast(100, max_concurrent=1),
    "3 times too fast": lambda: too_fast(3),
    "healthy": healthy,
    "healthy, a min pause": lambda: healthy(min_pause=5.0),
    "healthy, at full speed": lambda: healthy(fetch_rate=_RATE / 2.02, fetch_records=50),
    "bursts": bursts,
    "slowed for two minutes": slowed_for_two_minutes,
    "healthy with slow storage": healthy_with_slow_storage,
    "healthy with slow storage, one checkpoint at a time": lambda: healthy_with_slow_storage(1),
    "too fast with slow storage": too_fast_with_slow_storage,
    "skewed": skewed,
    "a latecomer": latecomer,
    "a pause of an hour": pause_of_an_hour,
    "flutter": flutter,
    "a latency within the interval": lambda: latency(6.0),
    "a latency above the interval": lambda: latency(15.0),
    "a latency, and three sources without records": lambda: latency(6.0, sources=4, shares=(1.0, 0.0, 0.0, 0.0)),
    "very slow operators": very_slow,
    "quiet, then flooded": quiet_then_flooded,
    "expired": expired,
}


@pytest.mark.sample(1 / 3)
@pytest.mark.parametrize("scenario", _HOLDS)
def test_scenario(scenario: str) -> None:
    _HOLDS[scenario]()


# -- with a rule broken -------------------------------------------------------------------------------------------


class _ByDuration(SourceGate):
    """Judges by what a checkpoint took, storage included."""

    def __init__(self, options: GateOptions, now: float) -> None:
        super().__init__(options, now)
        self._taken: dict[int, float] = {}
        self._spans = (0.0, 0.0)

    def handle(self, event: Event, now: float) -> list[Action]:
        match event:
            case BarrierTaken(n):
                self._taken[n] = now
            case BarrierPassed(_, _, mean, busy):
                self._spans = (mean, busy)
                return []
            case HeartbeatReceived(heartbeat):
                event = HeartbeatReceived(replace(heartbeat, passed=()))
            case CheckpointResolved(n, completed=True):
                told = BarrierPassed(n, now - self._taken[n], *self._spans)
                return super().handle(told, now) + super().handle(event, now)
        return super().handle(event, now)


class _ToldLate(_ByDuration):
    """Is told when storage is done, though of the start delay."""

    def __init__(self, options: GateOptions, now: float) -> None:
        super().__init__(options, now)
        self._told: dict[int, BarrierPassed] = {}

    def handle(self, event: Event, now: float) -> list[Action]:
        match event:
            case BarrierPassed(n):
                self._told[n] = event
            case CheckpointResolved(n, completed=True):
                return SourceGate.handle(self, self._told[n], now)
        return super().handle(event, now)


class _PerJob(SourceGate):
    """All subtasks have one window."""

    shared: ClassVar[dict[str, float]] = {}

    def __init__(self, options: GateOptions, now: float) -> None:
        super().__init__(options, now)
        self.shared["records"] = float(options.window_at_start)

    def handle(self, event: Event, now: float) -> list[Action]:
        assert self._window is not None
        self._window._records = self.shared["records"]
        actions = super().handle(event, now)
        self.shared["records"] = self._window._records
        return actions


class _Unheld(SourceGate):
    """Hears nothing of full queues."""

    def handle(self, event: Event, now: float) -> list[Action]:
        return super().handle(replace(event, held_up=False) if isinstance(event, BarrierTaken) else event, now)


class _Impatient(TriggerSchedule):
    """Checkpoints on demand don't wait for the min pause."""

    @property
    def ready_at(self) -> float:
        return -math.inf if self._asked else super().ready_at


_BROKEN: dict[str, tuple[str, type[SourceGate] | tuple[object, str, object]]] = {
    "judged by duration": ("healthy with slow storage", _ByDuration),
    "told when storage is done": ("healthy with slow storage", _ToldLate),
    "never shrinks": ("slowed for two minutes", (SpanWindow, "_after_a_slow_barrier", lambda self, *_: self._records)),
    "shrinks though it costs the throughput": ("a latency above the interval", (Round, "rate_goes_with_span", False)),
    "never tries more": ("a latency within the interval", (window_module, "_PATIENCE", 10**6)),
    "does not see that a source was held up": ("very slow operators", _Unheld),
    "never grows, quick": ("healthy", (window_module, "_QUICK_GROWTH", 1.0)),
    "never learns": ("healthy", (SpanWindow, "_learn", lambda *_: None)),
    "grows unused": ("quiet, then flooded", (window_module, "_USED", 0.0)),
    "no pace": (
        "healthy with slow storage, one checkpoint at a time",
        (SpanWindow, "pace", property(lambda self: 0.0)),
    ),
    "ignores the min pause": ("healthy, a min pause", (coordinator_module, "TriggerSchedule", _Impatient)),
    "kept per job": ("skewed", _PerJob),
}


@pytest.mark.sample(1 / 3)
@pytest.mark.parametrize("rule", _BROKEN)
def test_a_broken_rule_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, broken = _BROKEN[rule]
    if isinstance(broken, tuple):
        monkeypatch.setattr(*broken)
    else:
        monkeypatch.setitem(globals(), "_HEALTHY", replace(_HEALTHY, gates=broken))
        monkeypatch.setitem(globals(), "_TOO_FAST", replace(_TOO_FAST, gates=broken))
    monkeypatch.setitem(globals(), "_run", lambda scenario: Job(scenario, 1).run())
    with pytest.raises(AssertionError):
        _HOLDS[scenario]()
