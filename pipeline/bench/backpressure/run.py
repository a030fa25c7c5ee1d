"""One run, in a process of its own: no run inherits another one's memory, or its JVM."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, Final

from pipeline.bench.backpressure.job import job
from pipeline.bench.backpressure.results import Result, Run
from pipeline.bench.backpressure.variants import Experiment, Settings, Variant
from pipeline.bench.backpressure.watch import Watch
from pipeline.bench.errors import BenchFailed
from pipeline.runtime.subtask.gc_pauses import GcTime
from pipeline.testing import failpoints

_TERMINATED: Final = 128 + signal.SIGTERM
_LEAVE_S: Final = 30.0
"""For a run that is to end, and cancels its job before."""


def measure(experiment: Experiment, say: Callable[[str], None], keep: Callable[[Result], None]) -> Result:
    """One run after the other.

    Args:
        keep: gets what there is after each run, since there may be hours of it.

    Raises:
        BenchFailed: a run can't start, or ended without a result.
    """
    for variant in experiment.variants:
        _check(variant, experiment.settings)
    result = Result(experiment.settings, ())
    for variant, number in experiment.plan():
        named = variant.name if experiment.rounds == 1 else f"{variant.name}, round {number} of {experiment.rounds}"
        say(f"{named}: starting")
        run = replace(_apart(variant, experiment.settings), round=number)
        result = replace(result, runs=(*result.runs, run))
        keep(result)
        done = f"{run.summary.completed} checkpoints in {run.seconds:.0f} s"
        say(f"{named}: {done}" + (f"; the job failed: {run.failure}" if run.failure else ""))
    return result


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
        with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder, _storage(variant):
            watch = Watch(variant, settings, folder, gc_time)
            try:
                return watch.until_over()
            finally:
                watch.cancel()
    finally:
        gc_time.stop()


def _storage(variant: Variant) -> contextlib.AbstractContextManager[Any]:
    """As slow as the variant says, for jobs that start inside."""
    if not variant.storage_delay:
        return contextlib.nullcontext()
    return failpoints.stall("snapshot.async_write", variant.storage_delay, times=sys.maxsize)
