"""SIGINT and SIGTERM of a process that runs jobs, and the end of its script: jobs are stopped first.

Weir handles them only as long as jobs run, and only where nobody else has set a handler. While the main thread waits
for a job, a signal stops the jobs of the process (`stopping.py`), and that ends the wait. Anywhere else the main thread
gets what it always gets, an exception; the jobs that still run when the script has ended are stopped then.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.counted import counted
from pipeline.runtime.driver.attempt_context import CheckpointRequest
from pipeline.runtime.driver.interruptible import await_event
from pipeline.runtime.driver.spark import gateway
from pipeline.runtime.driver.stopping import Action, AskToStop, CancelJob, Leave, Stopping, seconds_to_end

if TYPE_CHECKING:
    from pipeline.runtime.driver.job_master import JobMaster

_LOG = logging.getLogger(f"weir.{__name__}")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_PYSPARKS: Final = ("pyspark.core.context", "pyspark.context")
"""Modules of the handler that PySpark sets for SIGINT: it cancels all jobs of Spark."""
_SCRIPT_ENDED: Final = 0
"""In place of a signal's number."""


class Watched:
    """A job, and how far signals have brought it."""

    def __init__(self, name: str, master: JobMaster, grace: float):
        self.name = name
        self.stopping = Stopping(grace)
        self.asked_by = _SCRIPT_ENDED
        """Number of the newest signal."""
        self._master = master

    @property
    def ended(self) -> threading.Event:
        return self._master.ended

    def stop(self, answer: Callable[[int | Exception], None]) -> None:
        """Have it take its last checkpoint and end; `answer` gets the checkpoint's id, or why there is none."""
        self._master.request_checkpoint(CheckpointRequest(CheckpointKind.FINAL, stop=True, or_not_begin=True), answer)

    def cancel(self) -> None:
        self._master.cancel()

    def standing(self) -> str:
        """Which output may not be out, and where the next start goes on."""
        rows = self._master.history.rows()
        newest = max((row.id for row in rows if row.status == "completed"), default=None)
        if self._master.stopped:
            return f"Its last checkpoint {newest} is complete, its output not all committed: the next start commits it"
        under_way = [row for row in rows if row.status == "in_progress"]
        done = "; ".join(
            f"checkpoint {row.id} was under way, with the parts of {counted(len(row.subtasks), 'subtask')}"
            for row in under_way
        )
        if newest is None:
            done = done or "it has not completed a checkpoint in this run"
            return f"{done[0].upper()}{done[1:]}. The next start goes on where this one did"
        after = f"The next start goes on from checkpoint {newest}; output behind it is not committed"
        return f"{done[0].upper()}{done[1:]}. {after}" if done else after


class _Signals:
    """The signals of this process.

    Everything but `_handle` and `start` runs in a thread of its own, since a signal's handler must not wait for
    anything that the main thread may hold."""

    def __init__(self) -> None:
        self._jobs: list[Watched] = []
        self._lock = threading.Lock()
        """Guards changes of `_jobs`, a list that is never changed in place."""
        self._events: queue.SimpleQueue[Callable[[float], None]] = queue.SimpleQueue()
        self._before: dict[int, Any] = {}
        self._waiting = 0
        self._exiting = False
        self._left = False
        """A last signal ends this process as it is."""
        self._thread: threading.Thread | None = None

    # -- any thread ---------------------------------------------------------------------------------------------

    def watch(self, job: Watched) -> None:
        with self._lock:
            self._jobs = [*self._jobs, job]
            if self._thread is None or not self._thread.is_alive():  # a signal may have kept it from starting
                # Before executors of `concurrent.futures` close, which jobs need to the end: an `atexit` would be late.
                threading._register_atexit(self._at_exit)  # type: ignore[attr-defined]
                self._thread = threading.Thread(target=self._run, name="weir-signals", daemon=True)
                self._thread.start()
        if not self._install():
            _LOG.info("job %s: started beside the main thread, so signals don't stop it unless that waits", job.name)

    def forget(self, job: Watched) -> None:
        """It has ended."""
        with self._lock:
            self._jobs = [one for one in self._jobs if one is not job]
        job.stopping.ended()

    @property
    def _running(self) -> list[Watched]:
        return [job for job in self._jobs if not job.ended.is_set()]

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The main thread does nothing but wait for jobs meanwhile. In other threads this means nothing."""
        if not self._install():
            yield
            return
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            while self._left:
                time.sleep(1.0)  # what the end of Spark's JVM means to a job is nobody's business any more
            if not self._running:
                self._uninstall()

    # -- main thread --------------------------------------------------------------------------------------------

    def _install(self) -> bool:
        if threading.current_thread() is not threading.main_thread():
            return False
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if handler != self._handle and _may_replace(handler):
                self._before[number] = handler
                signal.signal(number, self._handle)
        return True

    def _uninstall(self) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)
        self._before.clear()

    def _handle(self, number: int, frame: Any) -> None:
        if self._running and (self._waiting or self._exiting):
            self._signal(number)
            return
        if self._exiting:
            self._events.put(lambda now: gateway.kill(wait=False))  # whose end is all that the exit still waits for
            return
        before = self._before.get(number, signal.SIG_DFL)
        if callable(before):
            before(number, frame)
        elif self._running:
            raise SystemExit(128 + number)  # the script unwinds, then `_at_exit` stops the jobs
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _at_exit(self) -> None:
        jobs = self._running
        self._exiting = True
        self._install()
        if jobs and not all(job.stopping.asked or job.stopping.cancelled for job in jobs):
            self._signal(_SCRIPT_ENDED)
        until = time.monotonic() + seconds_to_end(job.stopping for job in jobs)
        for job in jobs:
            if not await_event(job.ended, until - time.monotonic()):
                _LOG.warning("%s", f"job {job.name!r} has not ended; its processes end with this one")

    def _signal(self, number: int) -> None:
        self._events.put(lambda now: self._signalled(number, now))

    def in_child(self) -> None:
        """A fork has none of the jobs."""
        self._jobs = []
        self._lock = threading.Lock()
        self._events = queue.SimpleQueue()
        self._waiting, self._exiting, self._left, self._thread = 0, False, False, None

    # -- own thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        events = self._events
        while True:
            due = min((t for job in self._jobs if (t := job.stopping.next_deadline) is not None), default=None)
            try:
                event = events.get(timeout=None if due is None else max(0.0, due - time.monotonic()))
            except queue.Empty:
                now = time.monotonic()
                for job in self._jobs:
                    self._act(job, job.stopping.tick(now), job.asked_by)
            else:
                event(time.monotonic())

    def _signalled(self, number: int, now: float) -> None:
        for job in self._running:
            first = not (job.stopping.asked or job.stopping.cancelled)
            actions = job.stopping.signalled(now)
            job.asked_by = number
            if first and not job.stopping.cancelled:
                why = "the script has ended: " if number == _SCRIPT_ENDED else ""
                _LOG.warning(
                    "%s",
                    f"{why}stopping job {job.name!r} behind a last checkpoint, within {job.stopping.grace:g} s; "
                    f"{'a signal' if number == _SCRIPT_ENDED else 'a second signal'} cancels it",
                )
            self._act(job, actions, number)

    def _act(self, job: Watched, actions: list[Action], number: int) -> None:
        for action in actions:
            match action:
                case AskToStop():
                    job.stop(lambda answer: self._events.put(lambda now: _answered(job.stopping, answer, now)))
                case CancelJob(why):
                    reason = "; ".join(filter(None, (why, job.stopping.trouble)))
                    _LOG.warning("%s", f"cancelling job {job.name!r}{reason and ': '}{reason}. {job.standing()}")
                    job.cancel()
                case Leave():
                    _LOG.warning("%s", f"job {job.name!r}: its process ends now")
                    self._left = True
                    logging.disable()  # of what the end of Spark's JVM means to others nobody needs to hear
                    try:
                        gateway.kill()
                    finally:
                        os._exit(128 + number)


def _answered(stopping: Stopping, answer: int | Exception, now: float) -> None:
    if isinstance(answer, Exception):
        stopping.refused(str(answer), now)
    else:
        stopping.accepted()


def _may_replace(handler: Any) -> bool:
    """Whether it is Python's own default, PySpark's, or a command's that says so. A signal that is ignored stays so."""
    if handler in (signal.SIG_DFL, signal.default_int_handler) or getattr(handler, "weir_gives_way", False):
        return True
    return getattr(handler, "__module__", None) in _PYSPARKS


signals: Final = _Signals()
os.register_at_fork(after_in_child=signals.in_child)
