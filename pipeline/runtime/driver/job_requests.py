"""What is asked of a job while it runs (a checkpoint, to stop, to rescale, to end), and the attempt that gets it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from checkpoint.checkpoint_kind import CheckpointKind
from pipeline.errors import PipelineError
from pipeline.runtime.driver.attempt_context import Answer, CheckpointRequest, NotTriggered
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.scaling.rescaling import Rescaled, Rescaling, in_words
from pipeline.runtime.system import System

_LOG = logging.getLogger(f"weir.{__name__}")


class RunnableAttempt(Protocol):
    """An attempt, as `pipeline.runtime.driver.attempt.Attempt` is one."""

    def run(self) -> None:
        """Returns when the job has finished.

        Raises:
            AttemptFailed: with the first cause.
        """

    def cancel(self) -> None: ...

    def request_checkpoint(self, request: CheckpointRequest, answer: Answer) -> None: ...

    def refuse_requests(self) -> None: ...


class JobRequests:
    """Thread-safe. Who asks for a checkpoint while no attempt runs, or behind the last one of an attempt that is
    rescaled, waits for the next attempt."""

    def __init__(self, options: JobOptions, system: System, on_rescaling: Callable[[], None]):
        """`on_rescaling`: called once the checkpoint of a rescale is complete."""
        self.cancelled = system.event()
        """The job is to end at once."""
        self._hurried = system.event()
        """Set when it is cancelled or to be stopped."""
        self.ended = system.event()
        """The job is over."""
        self.stopped = False
        """The job's last checkpoint is complete, since a user wanted it to stop: what is left is to commit it."""
        self._name = options.name
        self._system = system
        self._on_rescaling = on_rescaling
        self._lock = threading.Lock()
        """Guards `_current`, `_waiting` and `_rescaling` against requests from other threads."""
        self._current: RunnableAttempt | None = None
        self._waiting: list[tuple[CheckpointRequest, Answer]] = []
        """Who waits for the next attempt."""
        self._rescaling = Rescaling(options)
        self._stops: set[str] = set()
        """Tokens of the requests to stop that have not failed."""

    @property
    def options(self) -> JobOptions:
        """What the attempt goes by, or the next one if none runs."""
        return self._rescaling.options

    @property
    def stopping(self) -> bool:
        """Whether the job is to end: somebody has asked for it."""
        return bool(self._stops) or self.cancelled.is_set()

    @property
    def rescaling(self) -> str | None:
        """The rescale that is under way, in words."""
        with self._lock:
            return self._rescaling.under_way

    @property
    def rescales(self) -> list[Rescaled]:
        return list(self._rescaling.done)

    # -- from any thread ----------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """End the job; returns at once."""
        self.cancelled.set()
        self._hurried.set()
        with self._lock:
            if self._current is not None:
                self._current.cancel()

    def checkpoint(self, request: CheckpointRequest, answer: Answer) -> bool:
        """Take one; `answer` gets its id once it is complete, or an error. Whether the job isn't over: else there is no
        answer."""
        if request.stop:
            self._stops.add(request.token)
            self._hurried.set()
            answer = self._noting_stop(request, answer)
        with self._lock:
            if self._current is not None and not self._rescaling.holds_back_requests:
                self._current.request_checkpoint(request, answer)
                return True
            if not self.ended.is_set():
                self._waiting.append((request, answer))
                return True
        self._stops.discard(request.token)
        return False

    def _noting_stop(self, request: CheckpointRequest, answer: Answer) -> Answer:
        def note(result: int | Exception) -> None:
            if isinstance(result, Exception):
                self._stops.discard(request.token)
            else:
                # An attempt that fails from now on must not be followed by one that reads on.
                self.stopped = True
            answer(result)

        return note

    def rescale(self, wanted: JobOptions, answer: Callable[[Exception | None], None], unless_stopping: bool) -> bool:
        """Go on by `wanted`, behind a last checkpoint. Whether an attempt runs: else there is no answer.

        Raises:
            PipelineError: a rescale is under way, or, with `unless_stopping`, the job is to end.
        """
        before = self.options.plan
        with self._lock:
            if unless_stopping and self.stopping:
                raise PipelineError("the job is to end")
            if self._current is None:
                return False
            self._rescaling.ask(wanted, answer, self._system.monotonic(), self._system.time())
            request = CheckpointRequest(CheckpointKind.FINAL, stop=True, unaligned=True)
            self._current.request_checkpoint(request, self._on_rescale_checkpoint)
        _LOG.info("job %s: rescaling %s, behind a last checkpoint", self._name, in_words(before, wanted.plan))
        return True

    def _on_rescale_checkpoint(self, result: int | Exception) -> None:
        failed = isinstance(result, Exception)
        with self._lock:
            what = self._rescaling.under_way
            self._rescaling.checkpointed(result if isinstance(result, Exception) else None)
            if failed and self._current is not None:
                self._hand_over(self._current)
        if failed:
            _LOG.warning("job %s: not rescaled (%s), and goes on as it was: %s", self._name, what, result)
        else:
            self._on_rescaling()
            _LOG.info("job %s: checkpoint %s is complete; the next attempt has %s", self._name, result, what)

    def _hand_over(self, attempt: RunnableAttempt) -> None:
        """With the lock held."""
        for request, answer in self._waiting:
            attempt.request_checkpoint(request, answer)
        self._waiting.clear()

    # -- from the job's thread ----------------------------------------------------------------------------------

    def rest(self, seconds: float) -> None:
        """Let the time pass; less of it if the job is to end."""
        self._hurried.clear()
        if not self.stopping:
            self._hurried.wait(seconds)

    @property
    def need_not_begin(self) -> bool:
        """Whether a job without an attempt so far is to stop, and need not begin for it."""
        with self._lock:
            return any(request.or_not_begin for request, _ in self._waiting)

    def stop_unbegun(self) -> None:
        """It stops without having begun: `need_not_begin` was true."""
        with self._lock:
            answers = [answer for request, answer in self._waiting if request.or_not_begin]
            self._waiting = [(request, answer) for request, answer in self._waiting if not request.or_not_begin]
        for answer in answers:
            answer(0)

    def run(self, attempt: RunnableAttempt) -> None:
        """Run it, and have it get what is asked.

        Raises:
            AttemptFailed: see `RunnableAttempt.run`.
        """
        with self._lock:
            self._current = attempt
            self._hand_over(attempt)
        if self.cancelled.is_set():
            attempt.cancel()
        try:
            attempt.run()
        finally:
            with self._lock:
                self._current = None
            attempt.refuse_requests()

    def on_running(self) -> None:
        """All subtasks of the attempt run: a rescale has come about with that."""
        with self._lock:
            on_trial = self._rescaling.on_trial
            self._rescaling.running(self._system.monotonic())
        if on_trial:
            last = self._rescaling.done[-1]
            _LOG.info("job %s: rescaled %s, in %.1f s", self._name, last.what, last.seconds)

    def attempt_failed(self, why: str) -> bool:
        """Whether it was the first one of a rescale, which the next one takes back."""
        with self._lock:
            on_trial = self._rescaling.on_trial
            self._rescaling.attempt_ended(why)
        return on_trial

    def attempt_finished(self) -> bool:
        """Whether the job goes on with another attempt as planned: it is being rescaled."""
        with self._lock:
            return self._rescaling.attempt_ended(None)

    def end(self, status: str) -> None:
        """The job is over: nothing is asked any more."""
        with self._lock:
            self.ended.set()
            self._rescaling.job_ended(status)
        for _, answer in self._waiting:
            answer(refusal(status))


def refusal(status: str) -> NotTriggered:
    """What who asks for a checkpoint of a job that is over gets."""
    return NotTriggered(f"the job is {status}, so no checkpoint is taken any more")
