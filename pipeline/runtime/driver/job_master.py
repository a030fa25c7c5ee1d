"""A job on the driver: attempts, one after the other, until it has finished, failed or been cancelled."""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Protocol

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.config import CheckpointConfig, WithoutInterval
from checkpoint.errors import PermanentFailure
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.storage import CheckpointStorage
from pipeline import logs
from pipeline.errors import NotEnoughSlots, PipelineError
from pipeline.runtime import error_text
from pipeline.runtime.driver.attempt import Attempt
from pipeline.runtime.driver.attempt_context import Answer, AttemptContext, CheckpointRequest, NotTriggered, Progress
from pipeline.runtime.driver.failures import AttemptFailed
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.point_queries import PointQueries
from pipeline.runtime.driver.restart import RestartPolicy
from pipeline.runtime.driver.scaling.autoscaler import Autoscaler
from pipeline.runtime.driver.scaling.rescaling import Rescaled, Rescaling, in_words, rescaled, rescaled_by_itself
from pipeline.runtime.driver.spark.session import Session
from pipeline.runtime.driver.start.start_checks import invalid_steps, invisible_output, open_gates, shared_names
from pipeline.runtime.driver.start.start_point import StartPoints
from pipeline.runtime.driver.status.checkpoint_stats import CheckpointHistory
from pipeline.runtime.driver.status.restart_times import Recoveries, Recovery
from pipeline.runtime.driver.status.waits import Waits
from pipeline.runtime.system import SYSTEM, System

_LOG = logging.getLogger(f"weir.{__name__}")
_MASTERS: weakref.WeakSet[JobMaster] = weakref.WeakSet()


def jobs_here() -> list[JobMaster]:
    """The jobs of this process that run or are still referred to, in no set order."""
    return list(_MASTERS)


class Running(Protocol):
    """An attempt, as `Attempt` is one."""

    def run(self) -> None:
        """Returns when the job has finished.

        Raises:
            AttemptFailed: with the first cause.
        """

    def cancel(self) -> None: ...

    def request_checkpoint(self, request: CheckpointRequest, answer: Answer) -> None: ...

    def refuse_requests(self) -> None: ...


class JobMaster:
    """Runs a job in a thread of its own. What it publishes is read by `JobHandle`."""

    def __init__(
        self,
        options: JobOptions,
        *,
        system: System = SYSTEM,
        session: Callable[[JobOptions], Session] = Session,
        attempt: Callable[[AttemptContext, Progress], Running] = Attempt,
    ):
        _MASTERS.add(self)
        self._rescaling = Rescaling(options)
        self._system = system
        self._session = session(options)
        self._make_attempt = attempt
        self.status = "created"
        self.restarts = 0
        self.failure: str | None = None
        self.failed_step: str | None = None
        """Whose code was the cause, if that is known."""
        self.history = CheckpointHistory()
        self.progress = Progress(began=system.time(), on_running=self._on_running)
        self.waits = Waits(options.name)
        self._session.waits = self.waits
        self.queries = PointQueries(self._what_queries_wait_for)
        self._recoveries = Recoveries()
        self.address = ""
        """Where the job can be asked, if it can."""
        self.ended = system.event()
        self.on_ended: Callable[[], None] = lambda: None
        """Called by the job's thread at the very end."""
        self._current: Running | None = None
        self._lock = threading.Lock()
        """Guards `_current`, `_requests` and `_rescaling` against requests from other threads."""
        self._requests: list[tuple[CheckpointRequest, Answer]] = []
        """Who asked for a checkpoint while no attempt was under way."""
        self._stops: set[str] = set()
        """Tokens of the requests to stop that have not failed."""
        self._stopped = False
        """The job's last checkpoint is complete, since a user wanted it to stop: what is left is to commit it."""
        self._cancelled = system.event()
        self._temporary: str | None = None
        self._failed_at = self._ended_at = 0.0
        """When the attempt before failed, and when its last process was gone."""
        self._thread = system.thread(self._run, f"weir-job-{options.name}")
        self.autoscaler = None if options.autoscale is None else Autoscaler(options.autoscale, self, system)

    def start(self) -> None:
        self._thread.start()
        if self.autoscaler is not None:
            self.autoscaler.start()

    @property
    def begun(self) -> bool:
        """Whether its thread runs, or has run."""
        return self._thread.ident is not None

    def cancel(self) -> None:
        """End the job; returns at once."""
        self._cancelled.set()
        with self._lock:
            if self._current is not None:
                self._current.cancel()

    @property
    def _o(self) -> JobOptions:
        return self._rescaling.options

    def request_checkpoint(self, request: CheckpointRequest, answer: Answer) -> None:
        """Ask for a checkpoint or savepoint; `answer` gets its id once it is complete, or an error."""
        if request.stop:
            self._stops.add(request.token)
            answer = self._noting_stop(request, answer)
        with self._lock:
            if self._current is not None and not self._rescaling.holds_back_requests:
                self._current.request_checkpoint(request, answer)
                return
            if not self.ended.is_set():
                self._requests.append((request, answer))
                return
        answer(NotTriggered(f"the job is {self.status}, so no checkpoint is taken any more"))

    def _noting_stop(self, request: CheckpointRequest, answer: Answer) -> Answer:
        def note(result: int | Exception) -> None:
            if isinstance(result, Exception):
                self._stops.discard(request.token)
            else:
                # An attempt that fails from now on must not be followed by one that reads on.
                self._stopped = True
            answer(result)

        return note

    @property
    def stopping(self) -> bool:
        """Whether it is to end: somebody has asked for it."""
        return bool(self._stops) or self._cancelled.is_set()

    @property
    def room(self) -> int | None:
        """How many subtasks it may have for Spark's slots; `None` = any number."""
        return self._session.room

    def rescale(self, parallelism: int, step: str | None, answer: Callable[[Exception | None], None]) -> None:
        """Go on at another parallelism, behind a last checkpoint (see `JobHandle.rescale`).

        Raises:
            PipelineError, NotEnoughSlots: it can't be; `answer` gets nothing then.
        """
        self._rescale(lambda options: rescaled(options, parallelism, step), answer)

    def rescale_by_itself(self, widths: Mapping[str, int], answer: Callable[[Exception | None], None]) -> None:
        """The same for what `Autoscaler` has decided, unless the job is to end.

        Args:
            widths: as `rescaled_by_itself` takes them.
        """
        self._rescale(lambda options: rescaled_by_itself(options, widths), answer, unless_stopping=True)

    def _rescale(
        self,
        to: Callable[[JobOptions], JobOptions],
        answer: Callable[[Exception | None], None],
        unless_stopping: bool = False,
    ) -> None:
        if self.status != "running" or self.progress.running_at is None:
            state = "starting" if self.status in ("created", "running") else self.status
            raise PipelineError(f"the job is {state}, and only one that runs can be rescaled")
        before, wanted = self._o.plan, to(self._o)
        _refuse_invalid(wanted)
        self._session.require_room(wanted.plan)
        with self._lock:
            if unless_stopping and self.stopping:
                raise PipelineError("the job is to end")
            if self._current is None:
                raise PipelineError(f"the job is {self.status}, and only one that runs can be rescaled")
            self._rescaling.ask(wanted, answer, self._system.monotonic(), self._system.time())
            request = CheckpointRequest(CheckpointKind.FINAL, stop=True, unaligned=True)
            self._current.request_checkpoint(request, self._on_rescale_checkpoint)
        _LOG.info("job %s: rescaling %s, behind a last checkpoint", self.name, in_words(before, wanted.plan))

    def _on_rescale_checkpoint(self, result: int | Exception) -> None:
        failed = isinstance(result, Exception)
        with self._lock:
            what = self._rescaling.under_way
            self._rescaling.checkpointed(result if isinstance(result, Exception) else None)
            if failed and self._current is not None:
                self._hand_over_requests(self._current)
        if failed:
            _LOG.warning("job %s: not rescaled (%s), and goes on as it was: %s", self.name, what, result)
        else:
            self.status = "rescaling"
            _LOG.info("job %s: checkpoint %s is complete; the next attempt has %s", self.name, result, what)

    def _on_running(self) -> None:
        with self._lock:
            on_trial = self._rescaling.on_trial
            self._rescaling.running(self._system.monotonic())
        if on_trial:
            last = self._rescaling.done[-1]
            _LOG.info("job %s: rescaled %s, in %.1f s", self.name, last.what, last.seconds)

    def _hand_over_requests(self, attempt: Running) -> None:
        """With the lock held."""
        for request, answer in self._requests:
            attempt.request_checkpoint(request, answer)
        self._requests.clear()

    @property
    def rescaling(self) -> str | None:
        """The rescale that is under way, in words."""
        with self._lock:
            return self._rescaling.under_way

    @property
    def rescales(self) -> list[Rescaled]:
        return list(self._rescaling.done)

    def _what_queries_wait_for(self, subtask: str | None) -> str:
        if subtask is not None:
            outside = "".join(f"; it waits for {wait.what}" for wait in self.waits.now() if wait.who == subtask)
            return f"subtask {subtask}, which answers between two records{outside}"
        match self.status:
            case "created":
                return "the job to start"
            case "restarting":
                return f"the job to be restarted after a failure: {error_text.first_line(self.failure or '')}"
            case "rescaling":
                return "the job to run again at another parallelism"
            case _:
                return "the job's subtasks to run, with their state restored"

    @property
    def recoveries(self) -> list[Recovery]:
        return self._recoveries.all()

    @property
    def stopped(self) -> bool:
        """Its last checkpoint is complete, since somebody stopped it."""
        return self._stopped

    @property
    def options(self) -> JobOptions:
        return self._o

    @property
    def name(self) -> str:
        return self._o.name

    def runs(self, payload: object) -> bool:
        """Whether it has a step with this very source, sink, operator or function."""
        return any(step.payload is payload for vertex in self._o.plan.vertices for step in vertex.steps)

    def records(self) -> tuple[int, int]:
        """How many its sources have read and its sinks have taken, in the current attempt."""
        metrics, plan = dict(self.progress.metrics), self._o.plan
        sources = {plan.subtask_name(i) for vertex in plan.vertices if vertex.is_source for i in vertex.subtasks}
        return (
            sum(int(values.get("recordsIn") or 0) for name, values in metrics.items() if name in sources),
            sum(int(values.get("recordsToSinks") or 0) for values in metrics.values()),
        )

    # -- job thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self.progress.start.begin("checks", self._system.monotonic())
            self._session.begin()
            _LOG.info("job %s: checking the pipeline, its sources, sinks and checkpoints", self._o.name)
            storage, config = self._prepare()
            starts = StartPoints(self._o, storage, config, self.address)
            # What must be refused is refused before Spark starts, which takes seconds.
            starts.check()
            self.progress.start.begin("Spark", self._system.monotonic())
            _LOG.info("job %s: all checks passed; Spark comes next", self._o.name)
            self._session.open()
            self._attempts(config, starts)
        except (
            PipelineError,
            NotEnoughSlots,
            StorageError,
            PermanentFailure,
            ValueError,
            OSError,
            RuntimeError,
        ) as error:
            self._end("failed", self._session.lost() or error_text.summary(error))
        except BaseException as error:
            # Code of the user's runs here, too: sources and sinks check themselves.
            lost = self._session.lost()
            self._end("failed", lost or f"{error_text.summary(error)}\n{error_text.trace(error)}")
        finally:
            self._session.close()
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
            with self._lock:
                self.ended.set()
                self._rescaling.job_ended(self.status)
            for _, answer in self._requests:
                answer(NotTriggered(f"the job is {self.status}, so no checkpoint is taken any more"))
            self.queries.close(f"the job is {self.status}; what its state was is in its newest checkpoint")
            self.on_ended()

    def _end(self, status: str, failure: str | None = None, step: str | None = None) -> None:
        self.failure = None if failure is None else error_text.clean(failure)
        self.failed_step = step
        self.status = status

    def _prepare(self) -> tuple[CheckpointStorage, CheckpointConfig]:
        """Check what can be checked before anything starts."""
        o, config = self._o, self._o.checkpoints
        _refuse_invalid(o)
        if config is None:
            for invisible in invisible_output(o.plan):
                raise PipelineError(invisible)
            self._temporary = tempfile.mkdtemp(prefix="weir-")
            config = WithoutInterval(self._temporary, alignment="aligned", slow_storage_span=0.0)
        else:
            for warning in open_gates(o.plan, config):
                _LOG.warning("%s", warning)
        storage = CheckpointStorage(config.uri, o.name)
        storage.prepare()
        return storage, config

    def _attempts(self, config: CheckpointConfig, starts: StartPoints) -> None:
        policy: RestartPolicy = self._o.restart.start()
        number, planned = 0, True
        while not self._cancelled.is_set():
            try:
                self._attempt(number, planned, config, starts)
            except AttemptFailed as failure:
                planned = False
                with self._lock:
                    on_trial = self._rescaling.on_trial
                    self._rescaling.attempt_ended(error_text.first_line(failure.message))
                self._ended_at = self._system.monotonic()
                self._failed_at = self.progress.failed_at or self._ended_at
                if self._cancelled.is_set():
                    break
                if (lost := self._session.lost()) is not None:
                    self._end("failed", lost)
                    return
                if not self._restart(failure, policy, starts, on_trial):
                    return
            else:
                with self._lock:
                    planned = self._rescaling.attempt_ended(None)
                if planned:
                    number += 1
                    continue
                self._end("finished")
                read, written = self.records()
                level = logging.WARNING if read and not written else logging.INFO
                _LOG.log(level, "job %s finished: %s in, %s out", self._o.name, f"{read:,}", f"{written:,}")
                return
            number += 1
        self._end("cancelled")
        if not config.retain_on_cancel:
            starts.forget_checkpoints(self.progress.committed)

    def _restart(self, failure: AttemptFailed, policy: RestartPolicy, starts: StartPoints, on_trial: bool) -> bool:
        """Whether to go on, after the strategy's delay.

        Args:
            on_trial: the attempt was the first one of a rescale, which the next one takes back.
        """
        delay: float | None
        if failure.damaged is not None:
            # Each time another checkpoint is out of the question, so this comes to an end without the strategy.
            try:
                starts.note_damage(failure.damaged)
            except StorageError as error:
                self._end("failed", error_text.summary(error))
                return False
            delay = 0.0
        else:
            delay = None if failure.permanent and not on_trial else policy.on_failure(self._system.monotonic())
        if delay is None:
            why = "" if failure.permanent and not on_trial else f"\n({policy.describe()})"
            self._end("failed", failure.message + why, failure.step)
            return False
        self.failure = error_text.clean(failure.message)
        self.failed_step = failure.step
        _LOG.warning(
            "job %s: attempt failed, restarting in %.1f s: %s",
            *(self._o.name, delay, error_text.first_line(self.failure)),
        )
        self.status = "restarting"
        self._cancelled.wait(delay)
        if not self._cancelled.is_set():
            self.restarts += 1
        return True

    def _attempt(self, number: int, planned: bool, config: CheckpointConfig, starts: StartPoints) -> None:
        """
        Args:
            planned: it doesn't follow a failure.
        """
        if number:
            self.progress = Progress(began=self._system.time(), on_running=self._on_running)
            now = self._system.monotonic()
            self.progress.start.begin("checks", now)
            if not planned:
                cause = error_text.first_line(self.failure or "")
                self._recoveries.begun(self._failed_at, self._ended_at, now, self.progress, cause)
        try:
            self._fit_session()
            starts.replan(self._o)
            self._session.check(self._cancelled if number else None)
            start = starts.begin(number)
        except (DamagedFile, PermanentFailure, PipelineError) as error:
            raise AttemptFailed(error_text.summary(error), permanent=True) from error
        except StorageError as error:
            raise AttemptFailed(error_text.summary(error), permanent=number == 0) from error
        except NotEnoughSlots as error:
            raise AttemptFailed(f"NotEnoughSlots: {error}") from error
        logs.attempt_begins(self.name, start.ownership.attempt)
        context = AttemptContext.of(
            self._o,
            config,
            start,
            self.history,
            first=number == 0,
            commit_only=self._stopped,
            spark=self._session.context,
            host=self._session.host,
            waits=self.waits,
            queries=self.queries,
        )
        self.status = "running"
        self.progress.start.begin("deploy", self._system.monotonic())
        _LOG.info("job %s: attempt %d begins from %s", self._o.name, number + 1, start)
        self._run_attempt(self._make_attempt(context, self.progress))

    def _fit_session(self) -> None:
        try:
            self._session.fit(self._o)
        except NotEnoughSlots:
            raise
        except (OSError, RuntimeError) as error:
            raise AttemptFailed(f"Spark doesn't start: {error_text.summary(error)}") from error

    def _run_attempt(self, attempt: Running) -> None:
        with self._lock:
            self._current = attempt
            self._hand_over_requests(attempt)
        if self._cancelled.is_set():
            attempt.cancel()
        try:
            attempt.run()
        finally:
            with self._lock:
                self._current = None
            attempt.refuse_requests()


def _refuse_invalid(o: JobOptions) -> None:
    """
    Raises:
        PipelineError: with all that is wrong.
    """
    wrong = [*shared_names(o.plan, o.name), *invalid_steps(o.plan, o.name)]
    if wrong:
        raise PipelineError("\n".join(dict.fromkeys(wrong)))
