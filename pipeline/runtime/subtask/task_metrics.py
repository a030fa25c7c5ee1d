"""Counters and gauges of one subtask, read by its driver link."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from checkpoint.elements import ChannelName
from checkpoint.metrics import Gauged, check_counter, check_metric
from checkpoint.waiting import Waiting
from pipeline.runtime.subtask.hot_keys import HotKey
from pipeline.runtime.subtask.recent_rate import RecentRate


class TaskMetrics:
    """Implements `checkpoint.metrics.MetricSink`. Written by the task thread, mostly; every field is one word, so
    that reading from another thread needs no lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock = clock
        self.records_in = 0
        self.records_out = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.idle_s = 0.0
        self.backpressured_s = 0.0
        self.gate_closed_s = 0.0
        self.barriers: dict[int, list[int]] = {}
        """Checkpoints that some of the subtask's channels have delivered the barrier of → the subtasks upstream that
        have not. Replaced whole."""
        self.pending: dict[int, Callable[[], tuple[list[ChannelName], list[ChannelName]]]] = {}
        """Snapshots that are taken and not acknowledged → the output channels that the barrier has not left, and the
        input channels being captured on which it has not arrived."""
        self.writing: set[int] = set()
        """Checkpoints whose asynchronous part is under way."""
        self.hot_keys: list[HotKey] = []
        """The keys that have most of the records. Replaced whole."""
        self._started = clock()
        self.looked_at = self._started
        """When the task thread last looked around: until it does again, operators or a sink's writer hold it."""
        self.in_flight: Callable[[], int] = lambda: 0
        """Bytes queued; asked for at each report, since the task thread may be held."""
        self.gc_seconds: Callable[[], float] = lambda: 0.0
        """Time that Python's garbage collector has held the process."""
        self.waiting = Waiting(clock)
        """What the source and the sinks in the subtask say that they wait for."""
        self.time_waits = Waiting(clock)
        """Whom event time waits for."""
        self.pace_waits = Waiting(clock)
        """The rates that steps are limited to."""
        self._counters: dict[str, float] = {}
        self._gauges: dict[str, Gauged] = {}
        self._in_rate, self._out_rate = RecentRate(self._started), RecentRate(self._started)
        self._last: tuple[float, float, float, float] = (self._started, 0.0, 0.0, 0.0)

    def count(self, name: str, n: float = 1) -> None:
        if name not in self._counters:
            check_counter(name)
        self._counters[name] = self._counters.get(name, 0) + n

    def gauge(self, name: str, value: Gauged) -> None:
        if name not in self._gauges:
            check_metric(name)
        self._gauges[name] = value

    def report(self) -> dict[str, Any]:
        """All metrics by name; rates are over the time since the last report."""
        now = self.clock()
        before, idle, backpressured, closed = self._last
        now_idle, now_backpressured, now_closed = self.idle_s, self.backpressured_s, self.gate_closed_s
        self._last = (now, now_idle, now_backpressured, now_closed)
        period = max(now - before, 1e-6)
        rates = [
            min(1000.0, 1000 * delta / period)
            for delta in (now_idle - idle, now_backpressured - backpressured, now_closed - closed)
        ]
        pending = {n: waiting() for n, waiting in list(self.pending.items())}
        waits = self.waiting.report()
        records_in, records_out = self.records_in, self.records_out
        return {
            **dict(self._counters),
            **dict(self._gauges),
            "barriers": self.barriers,
            "writing": sorted(self.writing),
            "unsent": {
                n: [[c.edge.downstream, c.downstream] for c in outs] for n, (outs, _) in pending.items() if outs
            },
            "uncaptured": {n: [[c.edge.upstream, c.upstream] for c in ins] for n, (_, ins) in pending.items() if ins},
            "waits": [*waits, *self.time_waits.report(), *self.pace_waits.report()],
            "waitingMs": 1000 * max((seconds for _, seconds, _ in waits), default=0.0),
            "hotKeys": [list(one) for one in self.hot_keys],
            "recordsIn": records_in,
            "recordsOut": records_out,
            "recordsInPerSecond": self._in_rate.at(now, records_in),
            "recordsOutPerSecond": self._out_rate.at(now, records_out),
            "bytesIn": self.bytes_in,
            "bytesOut": self.bytes_out,
            "inFlightBytes": self.in_flight(),
            "gcMs": 1000 * self.gc_seconds(),
            "heldMs": 1000 * max(0.0, now - self.looked_at),
            "idleMsPerSecond": rates[0],
            "backPressuredMsPerSecond": rates[1],
            "sourceGateClosedMsPerSecond": rates[2],
            "sourceGateClosedMs": 1000 * now_closed,
            "busyMsPerSecond": max(0.0, 1000.0 - sum(rates)),
        }
