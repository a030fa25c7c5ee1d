"""A job on the driver: attempts, one after the other, until it has finished, failed or been cancelled."""

from __future__ import annotations

import logging
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping

from checkpoint.config import CheckpointConfig, WithoutInterval
from checkpoint.errors import PermanentFailure
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.storage import CheckpointStorage
from pipeline import logs
from pipeline.errors import NotEnoughSlots, PipelineError
from pipeline.runtime import error_text
from pipeline.runtime.driver.attempt import Attempt
from pipeline.runtime.driver.attempt_context import Answer, AttemptContext, CheckpointRequest, Progress
from pipeline.runtime.driver.failures import AttemptFailed
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.job_requests import JobRequests, RunnableAttempt, refusal
from pipeline.runtime.driver.point_queries import JobQueries
from pipeline.runtime.driver.restart import RestartPolicy
from pipeline.runtime.driver.scaling.autoscaler import Autoscaler
from pipeline.runtime.driver.scaling.rescaling import Rescaled, rescaled, rescaled_by_itself
from pipeline.runtime.driver.spark.session import JobSession
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


class JobMaster:
    """Runs a job in a thread of its own. What it publishes is read by `JobHandle`."""

    def __init__(
        self,
        options: JobOptions,
        *,
        system: System = SYSTEM,
        session: Callable[[JobOptions], JobSession] = JobSession,
        attempt: Callable[[AttemptContext, Progress], RunnableAttempt] = Attempt,
    ):
        _MASTERS.add(self)
        self._requests = JobRequests(options, system, self._on_rescaling)
        self._system = system
        self._session = session(options)
        self._make_attempt = attempt
        self.status = "created"
        self.restarts = 0
        self.failure: str | None = None
        self.failed_step: str | None = None
        """Whose code was the cause, if that is known."""
        self.history = CheckpointHistory()
        self.progress = Progress(began=system.time(), on_running=self._requests.on_running)
        self.waits = Waits(options.name)
        self._session.waits = self.waits
        self.queries = JobQueries(self._what_queries_wait_for)
        self._recoveries = Recoveries()
        self.address = ""
        """Where the job can be asked, if it can."""
        self.ended = self._requests.ended
        self.on_ended: Callable[[], None] = lambda: None
        """Called by the job's thread at the very end."""
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
        self._requests.cancel()

    @property
    def _o(self) -> JobOptions:
        return self._requests.options

    def request_checkpoint(self, request: CheckpointRequest, answer: Answer) -> None:
        """Ask for a checkpoint or savepoint; `answer` gets its id once it is complete, or an error."""
        if not self._requests.checkpoint(request, answer):
            answer(refusal(self.status))

    @property
    def stopping(self) -> bool:
        """Whether it is to end: somebody has asked for it."""
        return self._requests.stopping

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
        wanted = to(self._o)
        _refuse_invalid(wanted)
        self._session.require_room(wanted.plan)
        if not self._requests.rescale(wanted, answer, unless_stopping):
            raise PipelineError(f"the job is {self.status}, and only one that runs can be rescaled")

    def _on_rescaling(self) -> None:
        self.status = "rescaling"

    @property
    def rescaling(self) -> str | None:
        """The rescale that is under way, in words."""
        return self._requests.rescaling

    @property
    def rescales(self) -> list[Rescaled]:
        return self._requests.rescales

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
        return self._requests.stopped

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
            if self._session.open(lambda: self._need_not_begin(starts)):
                self._attempts(config, starts)
            else:
                self._end_unbegun()
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
            self._requests.end(self.status)
            self.queries.close(f"the job is {self.status}; what its state was is in its newest checkpoint")
            self.on_ended()

    def _end(self, status: str, failure: str | None = None, step: str | None = None) -> None:
        self.failure = None if failure is None else error_text.clean(failure)
        self.failed_step = step
        self.status = status

    def _need_not_begin(self, starts: StartPoints) -> bool:
        """Whether it may end right away, though it was to begin: it is cancelled; or a signal stops it, and what it
        would restore leaves nothing to do before the next start."""
        return self._requests.cancelled.is_set() or (self._requests.need_not_begin and not starts.holds_output)

    def _end_unbegun(self) -> None:
        if self._requests.cancelled.is_set():
            self._end("cancelled")
            return
        self._end("finished")
        _LOG.info("job %s: stopped before it began. It has read nothing; the next start begins as this one", self.name)
        self._requests.stop_unbegun()

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
        while not self._requests.cancelled.is_set():
            try:
                self._attempt(number, planned, config, starts)
            except AttemptFailed as failure:
                planned = False
                on_trial = self._requests.attempt_failed(error_text.first_line(failure.message))
                self._ended_at = self._system.monotonic()
                self._failed_at = self.progress.failed_at or self._ended_at
                if self._requests.cancelled.is_set():
                    break
                if (lost := self._session.lost()) is not None:
                    self._end("failed", lost)
                    return
                if not self._restart(failure, policy, starts, on_trial):
                    return
            else:
                planned = self._requests.attempt_finished()
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
        self._requests.rest(delay)
        if not self._requests.cancelled.is_set():
            self.restarts += 1
        return True

    def _attempt(self, number: int, planned: bool, config: CheckpointConfig, starts: StartPoints) -> None:
        """
        Args:
            planned: it doesn't follow a failure.
        """
        if number:
            self.progress = Progress(began=self._system.time(), on_running=self._requests.on_running)
            now = self._system.monotonic()
            self.progress.start.begin("checks", now)
            if not planned:
                cause = error_text.first_line(self.failure or "")
                self._recoveries.begun(self._failed_at, self._ended_at, now, self.progress, cause)
        try:
            self._fit_session()
            starts.replan(self._o)
            self._session.check(self._requests.cancelled if number else None)
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
            commit_only=self._requests.stopped,
            spark=self._session.context,
            host=self._session.host,
            waits=self.waits,
            queries=self.queries,
        )
        self.status = "running"
        self.progress.start.begin("deploy", self._system.monotonic())
        _LOG.info("job %s: attempt %d begins from %s", self._o.name, number + 1, start)
        self._requests.run(self._make_attempt(context, self.progress))

    def _fit_session(self) -> None:
        try:
            self._session.fit(self._o)
        except NotEnoughSlots:
            raise
        except (OSError, RuntimeError) as error:
            raise AttemptFailed(f"Spark doesn't start: {error_text.summary(error)}") from error


def _refuse_invalid(o: JobOptions) -> None:
    """
    Raises:
        PipelineError: with all that is wrong.
    """
    wrong = [*shared_names(o.plan, o.name), *invalid_steps(o.plan, o.name)]
    if wrong:
        raise PipelineError("\n".join(dict.fromkeys(wrong)))
