"""Looks at one job while it runs, and does to it what its variant says."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from pipeline.bench.backpressure.counters import Counters
from pipeline.bench.backpressure.full_speed import Return, returned
from pipeline.bench.backpressure.job import OPERATOR, SOURCE, job
from pipeline.bench.backpressure.results import Checkpoint, Cost, Run, Sample, Window, summarise
from pipeline.bench.backpressure.variants import RESCALED, Interruption, Settings, Variant
from pipeline.bench.errors import BenchFailed
from pipeline.bench.memory import MemoryMeter
from pipeline.bench.spark_jvm import jvm_gc_ms, jvm_pid
from pipeline.bench.watch import is_over
from pipeline.runtime.driver.status.checkpoint_stats import CheckpointStats
from pipeline.runtime.subtask.gc_pauses import GcTime

_SAMPLE_S: Final = 0.5
_LOOK_S: Final = 0.05
_STOP_S: Final = 300.0
"""For a savepoint to stop with."""


class Watch:
    """Starts the job of a variant, and looks at it until its time is over."""

    def __init__(self, variant: Variant, settings: Settings, folder: str, gc_time: GcTime) -> None:
        self._variant = variant
        self._settings = settings
        self._folder = folder
        self._gc_time = gc_time
        self._memory = MemoryMeter()
        self._samples: list[Sample] = []
        self._fetched, self._processed = Counters(), Counters()
        self._reports: dict[str, dict[str, Any]] = {}
        """The newest of each subtask."""
        self._gate_closed_ms = 0.0
        """Before the current attempt."""
        self._workers_gc = _Growth()
        self._ended_rows: list[CheckpointStats] = []
        """Checkpoints of jobs that have ended on the way."""
        self._due: Interruption | None = variant.interruption
        self._resumed: list[float] = []
        """When all subtasks ran again, in seconds since they first did."""
        self._began = self._since = 0.0
        """When all subtasks ran, first and in the current attempt."""
        self._handle = job(variant, settings, folder).start(restore="none")

    def cancel(self) -> None:
        self._handle.cancel()

    def until_over(self) -> Run:
        """
        Raises:
            BenchFailed: the job did not come up, or failed for another reason than a checkpoint that failed.
        """
        self._began = self._since = self._await_running()
        jvm_gc, driver_gc = jvm_gc_ms(), self._gc_time.seconds
        next_sample = now = self._began
        while not self._over(now - self._began) and not is_over(self._handle) and not self._enough(now):
            self._look(now - self._began)
            if now >= next_sample:
                next_sample = max(now, next_sample + _SAMPLE_S)
                self._sample(now - self._began)
            if self._due is not None and now - self._began >= self._due.at:
                self._interrupt(self._due)
            time.sleep(_LOOK_S)
            now = time.monotonic()
        checkpoints = self._checkpoints(now)
        failure = self._handle.failure if is_over(self._handle) else None
        expected = self._settings.tolerable_failures == 0 and any(one.outcome == "failed" for one in checkpoints)
        if failure is not None and not expected:
            raise BenchFailed(f"{self._variant.name}: the job failed, and for no checkpoint's sake: {failure}")
        samples = self._with_counters()
        return Run(
            self._variant,
            now - self._began,
            failure,
            summarise(checkpoints, samples, self._settings.warm_up),
            Cost(
                self._memory.peaks.get("driver", 0),
                self._memory.peaks.get("jvm", 0),
                self._memory.peaks.get("workers", 0),
                self._memory.peak_total,
                max(0, jvm_gc_ms() - jvm_gc),
                1000 * (self._gc_time.seconds - driver_gc),
                self._workers_gc.total,
            ),
            tuple(checkpoints),
            tuple(samples),
            windows=tuple(self._windows()),
            returns=tuple(self._returns(samples)),
        )

    # -- the job ----------------------------------------------------------------------------------------------------

    def _await_running(self) -> float:
        while (since := self._handle.running_since) is None:
            if is_over(self._handle):
                raise BenchFailed(f"{self._variant.name}: the job did not come up: {self._handle.failure}")
            time.sleep(_LOOK_S)
        return since

    def _over(self, at: float) -> bool:
        """What comes behind an interruption has as long as it would have without the time that it takes."""
        seconds = self._variant.seconds or self._settings.seconds
        what = self._variant.interruption
        if what is None:
            return at >= seconds
        return bool(self._resumed) and at >= self._resumed[0] + seconds - what.at

    def _enough(self, now: float) -> bool:
        if self._settings.enough is None or now - self._began < self._settings.least:
            return False
        return sum(row.status == "completed" for row in self._handle.checkpoints()) >= self._settings.enough

    def _interrupt(self, what: Interruption) -> None:
        self._due = None
        if what.kind == "restart":
            victim = next(pid for name, pid in self._handle.processes().items() if name.startswith(OPERATOR))
            os.kill(victim, signal.SIGKILL)
            return
        savepoint = self._handle.stop(f"{self._folder}/savepoint", timeout=_STOP_S)
        self._look(time.monotonic() - self._began)
        self._ended_rows = self._handle.checkpoints()
        again = job(self._variant, self._settings, self._folder, RESCALED)
        self._handle = again.start(restore=savepoint or "latest")

    # -- looks ------------------------------------------------------------------------------------------------------

    def _look(self, at: float) -> None:
        """Take note of what subtasks have reported."""
        since = self._handle.running_since
        if since is None:
            return  # it is being restarted
        if since != self._since:
            self._begin_again(since)
        reports = self._handle.metrics()["subtasks"]
        if self._handle.running_since != since:
            return
        for name, values in reports.items():
            if values == self._reports.get(name):
                continue  # no new one
            self._reports[name] = values
            counters = self._fetched if _is_source(name) else self._processed
            counters.report(name, at, values["recordsIn"])
            self._workers_gc.report(name, values["gcMs"])

    def _begin_again(self, since: float) -> None:
        """All subtasks run again, as processes of their own whose counters begin anew."""
        at = since - self._began
        self._gate_closed_ms += self._closed_ms()
        self._since, self._reports = since, {}
        self._resumed.append(at)
        self._workers_gc.begin_again()
        for counters in (self._fetched, self._processed):
            counters.begin_again(at)

    def _closed_ms(self) -> float:
        return max((values["sourceGateClosedMs"] for values in self._reports.values()), default=0.0)

    def _sample(self, at: float) -> None:
        jvm = jvm_pid()
        resident = self._memory.sample(
            {
                "driver": [os.getpid()],
                "jvm": [] if jvm is None else [jvm],
                "workers": list(self._handle.processes().values()),
            }
        )
        queued = sum(values["inFlightBytes"] for values in self._reports.values())
        closed = self._gate_closed_ms + self._closed_ms()
        window = max((one.records for one in self._windows() if one.records is not None), default=None)
        self._samples.append(Sample(at, 0, 0, queued, closed, resident, window))

    def _windows(self) -> Iterator[Window]:
        for name, values in sorted(self._reports.items()):
            if values.get("gateWindowRecords") is not None:
                yield Window(name, int(values["gateWindowRecords"]), values.get("gateWindowChange"))

    # -- what it comes to -------------------------------------------------------------------------------------------

    def _with_counters(self) -> list[Sample]:
        """The samples up to the newest reports, with what the reports before and after each tell of the counters."""
        until = min(self._fetched.known_until, self._processed.known_until)
        return [
            replace(sample, fetched=self._fetched.total(sample.at), processed=self._processed.total(sample.at))
            for sample in self._samples
            if sample.at <= until
        ]

    def _returns(self, samples: list[Sample]) -> Iterator[Return]:
        if not samples:
            return
        end, load = samples[-1].at, self._variant.load
        counts = [(sample.at, sample.fetched) for sample in samples]
        for at, until in (*load.returns(end), *((at, end) for at in self._resumed)):
            yield returned(counts, at, until, load.top_rate)

    def _checkpoints(self, now: float) -> list[Checkpoint]:
        wall = time.time() - (time.monotonic() - self._began)  # when it began, as triggers are dated
        found = []
        for row in (*self._ended_rows, *self._handle.checkpoints()):
            at = row.trigger_time - wall
            age = max(0.0, now - self._began - at) if row.duration is None else row.duration
            found.append(Checkpoint(at, age, row))
        return found


class _Growth:
    """By how much the counters of several processes have grown since each was first looked at."""

    def __init__(self) -> None:
        self._before = 0.0
        self._first: dict[str, float] = {}
        self._newest: dict[str, float] = {}

    def report(self, name: str, value: float) -> None:
        self._first.setdefault(name, value)
        self._newest[name] = value

    def begin_again(self) -> None:
        """Other processes follow, under the same names."""
        self._before = self.total
        self._first, self._newest = {}, {}

    @property
    def total(self) -> float:
        return self._before + sum(newest - self._first[name] for name, newest in self._newest.items())


def _is_source(name: str) -> bool:
    return name.startswith(f"{SOURCE}[")
