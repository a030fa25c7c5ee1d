"""One run, in a process of its own: no run inherits another one's memory, or its JVM."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, Final

from pipeline.bench.backpressure.counters import Counters
from pipeline.bench.backpressure.job import SOURCE, job
from pipeline.bench.backpressure.results import Checkpoint, Cost, Result, Run, Sample, summarise
from pipeline.bench.backpressure.variants import Experiment, Settings, Variant
from pipeline.bench.errors import BenchFailed
from pipeline.bench.memory import MemoryMeter
from pipeline.bench.spark_jvm import jvm_gc_ms, jvm_pid
from pipeline.handle import JobHandle
from pipeline.runtime.subtask.gc_time import GcTime

_SAMPLE_S: Final = 0.5
_LOOK_S: Final = 0.05
_TERMINATED: Final = 128 + signal.SIGTERM
_LEAVE_S: Final = 30.0
"""For a run that is to end, and cancels its job before."""


def measure(experiment: Experiment, say: Callable[[str], None]) -> Result:
    """One run after the other.

    Raises:
        BenchFailed: a run can't start, or ended without a result.
    """
    for variant in experiment.variants:
        _check(variant, experiment.settings)
    runs = []
    for variant in experiment.variants:
        say(f"{variant.name}: starting")
        run = _apart(variant, experiment.settings)
        runs.append(run)
        done = f"{run.summary.completed} checkpoints in {run.seconds:.0f} s"
        say(f"{variant.name}: {done}" + (f"; the job failed: {run.failure}" if run.failure else ""))
    return Result(experiment.settings, tuple(runs))


def _check(variant: Variant, settings: Settings) -> None:
    """Better than after minutes of other runs."""
    try:
        job(variant, settings, "/")
    except ValueError as error:
        raise BenchFailed(f"{variant.name} can't run: {error}") from error


def _apart(variant: Variant, settings: Settings) -> Run:
    context = multiprocessing.get_context("spawn")  # a fork would inherit this process's threads and memory
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, variant, settings), name=f"weir-bench-{variant.name}")
    process.start()
    sender.close()
    try:
        answer = receiver.recv()
        process.join()
    except EOFError:
        process.join()
        raise BenchFailed(f"{variant.name}: the run's process ended with {process.exitcode}") from None
    except BaseException:
        process.terminate()
        process.join(_LEAVE_S)
        raise
    finally:
        receiver.close()
        if process.is_alive():
            process.kill()
            process.join()
    if isinstance(answer, BenchFailed):
        raise answer
    assert isinstance(answer, Run)
    return answer


def _child(sender: Connection, variant: Variant, settings: Settings) -> None:
    # Ctrl-C reaches all processes of a terminal; this one is ended by its parent, and cancels its job then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        answer: Run | BenchFailed = run_here(variant, settings)
    except BenchFailed as error:
        answer = error
    sender.send(answer)


def run_here(variant: Variant, settings: Settings) -> Run:
    """One run in this process.

    Raises:
        BenchFailed: the job did not come up, or failed for another reason than a checkpoint that failed.
    """
    gc_time = GcTime()
    gc_time.start()
    try:
        with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
            handle = job(variant, settings, folder).start(restore="none")
            try:
                return _Watch(handle, gc_time).until_over(variant, settings)
            finally:
                handle.cancel()
    finally:
        gc_time.stop()


class _Watch:
    """Looks at the job until its time is over."""

    def __init__(self, handle: JobHandle, gc_time: GcTime) -> None:
        self._handle = handle
        self._gc_time = gc_time
        self._memory = MemoryMeter()
        self._samples: list[Sample] = []
        self._fetched, self._processed = Counters(), Counters()
        self._reports: dict[str, dict[str, Any]] = {}
        """The newest of each subtask."""
        self._workers_gc: dict[str, tuple[float, float]] = {}
        """By subtask, the first and the newest of its counter, in milliseconds."""

    def until_over(self, variant: Variant, settings: Settings) -> Run:
        began = self._await_running(variant)
        jvm_gc, driver_gc = jvm_gc_ms(), self._gc_time.seconds
        next_sample = began
        while (now := time.monotonic()) - began < settings.seconds and not self._ended() and not self._enough(settings):
            self._read_reports(now - began)
            if now >= next_sample:
                next_sample += _SAMPLE_S
                self._sample(now - began)
            time.sleep(_LOOK_S)
        checkpoints = self._checkpoints(began, now)
        failure = self._handle.failure if self._ended() else None
        expected = settings.tolerable_failures == 0 and any(one.outcome == "failed" for one in checkpoints)
        if failure is not None and not expected:
            raise BenchFailed(f"{variant.name}: the job failed, and for no checkpoint's sake: {failure}")
        samples = self._with_counters()
        return Run(
            variant,
            now - began,
            failure,
            summarise(checkpoints, samples, settings.warm_up),
            Cost(
                self._memory.peaks.get("driver", 0),
                self._memory.peaks.get("jvm", 0),
                self._memory.peaks.get("workers", 0),
                self._memory.peak_total,
                jvm_gc_ms() - jvm_gc,
                1000 * (self._gc_time.seconds - driver_gc),
                sum(last - first for first, last in self._workers_gc.values()),
            ),
            tuple(checkpoints),
            tuple(samples),
        )

    def _await_running(self, variant: Variant) -> float:
        while self._handle.running_since is None:
            if self._ended():
                raise BenchFailed(f"{variant.name}: the job did not come up: {self._handle.failure}")
            time.sleep(_LOOK_S)
        return self._handle.running_since

    def _ended(self) -> bool:
        return self._handle.status in ("finished", "failed", "cancelled")

    def _enough(self, settings: Settings) -> bool:
        if settings.enough is None:
            return False
        return sum(row.status == "completed" for row in self._handle.checkpoints()) >= settings.enough

    def _read_reports(self, at: float) -> None:
        for name, values in self._handle.metrics()["subtasks"].items():
            if values == self._reports.get(name):
                continue  # no new one
            self._reports[name] = values
            counters = self._fetched if _is_source(name) else self._processed
            counters.report(name, at, values["recordsIn"])
            first, _ = self._workers_gc.get(name, (values["gcMs"], 0.0))
            self._workers_gc[name] = (first, values["gcMs"])

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
        closed = max((values["sourceGateClosedMs"] for values in self._reports.values()), default=0.0)
        self._samples.append(Sample(at, 0, 0, queued, closed, resident))

    def _with_counters(self) -> list[Sample]:
        """The samples up to the newest reports, with what the reports before and after each tell of the counters."""
        until = min(self._fetched.known_until, self._processed.known_until)
        return [
            replace(sample, fetched=self._fetched.total(sample.at), processed=self._processed.total(sample.at))
            for sample in self._samples
            if sample.at <= until
        ]

    def _checkpoints(self, began: float, now: float) -> list[Checkpoint]:
        wall = time.time() - (time.monotonic() - began)  # when it began, as triggers are dated
        found = []
        for row in self._handle.checkpoints():
            at = row.trigger_time - wall
            found.append(Checkpoint(at, max(0.0, now - began - at) if row.duration is None else row.duration, row))
        return found


def _is_source(name: str) -> bool:
    return name.startswith(f"{SOURCE}[")
