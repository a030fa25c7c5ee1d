"""`JobHandle`: a started job."""

from __future__ import annotations

import logging
import queue
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.counted import counted
from checkpoint.options import named_options
from checkpoint.storage.errors import StorageError
from checkpoint.storage.savepoints import SavepointFolder, prepare
from pipeline.errors import Interrupted, JobCancelled, JobFailed, PipelineError
from pipeline.key_state import StepState
from pipeline.logs import log_by_default
from pipeline.runtime.driver.attempt_context import CheckpointRequest, NotTriggered
from pipeline.runtime.driver.interruptible import await_answer, await_event
from pipeline.runtime.driver.job_master import JobMaster
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.operations import OperationsServer
from pipeline.runtime.driver.scaling.rescaling import Rescaled
from pipeline.runtime.driver.signals import Watched, signals
from pipeline.runtime.driver.status.checkpoint_stats import CheckpointStats
from pipeline.runtime.driver.status.event_time_status import COUNTED
from pipeline.runtime.driver.status.restart_times import Recovery

if TYPE_CHECKING:
    from pipeline.http.server import HttpServer
    from pipeline.otel.exporter import MetricsExporter

_T = TypeVar("_T")
_LOG = logging.getLogger(f"weir.{__name__}")


@named_options
class JobHandle:
    """Watches and steers a started job. Thread-safe."""

    def __init__(self, master: JobMaster, watched: Watched):
        self._master = master
        self._watched = watched
        self._operations: OperationsServer | None = None
        self._http: HttpServer | None = None
        self._otel: MetricsExporter | None = None
        self._started = time.time()

    @classmethod
    def _start(
        cls, options: JobOptions, http: HttpServer | None = None, otel: MetricsExporter | None = None
    ) -> JobHandle:
        log_by_default()
        master = JobMaster(options)
        handle = cls(master, Watched(options.name, master, options.stop_grace))
        handle._http, handle._otel = http, otel
        master.on_ended = handle._on_ended
        try:
            handle._begin(options.name)
        except BaseException:  # Ctrl-C, too
            if not master.begun:
                handle._on_ended()  # else the end of the script would wait for it
            raise
        return handle

    def _begin(self, name: str) -> None:
        try:
            self._operations = OperationsServer(name, self, self._http, self._master.options.encrypt)
        except OSError as error:
            _LOG.warning("job %s can't be asked from outside: %s", name, error)
        else:
            self._master.address = self._operations.address
            _LOG.info("job %s: starting at %s", name, self.address)
        if self._http is not None:
            self._http.start(name, self)
            _LOG.info("job %s: its web server is at %s", name, self._http.url)
        if self._otel is not None:
            self._otel.start(name, self)
            sending = self._otel.sending
            _LOG.info("job %s: its metrics are sent to %s every %g s", name, sending.to, sending.every)
        signals.watch(self._watched)
        self._master.start()

    def _on_ended(self) -> None:
        signals.forget(self._watched)
        for one in reversed(self._beside()):
            one.close()

    def _beside(self) -> list[OperationsServer | HttpServer | MetricsExporter]:
        """What has threads of its own beside the job. `close` of the first one may take some time."""
        return [one for one in (self._operations, self._http, self._otel) if one is not None]

    @property
    def address(self) -> str | None:
        """Where `weir status`, `weir stop` and others reach the job on this host, as in `127.0.0.1:41233`; `None` if it
        could not listen."""
        return None if self._operations is None else self._operations.address

    @property
    def http(self) -> str | None:
        """The URL of the job's web server, as in `http://127.0.0.1:8080`; `None` without the option `http`."""
        return None if self._http is None else self._http.url

    @property
    def status(self) -> str:
        """`created`, `running`, `restarting`, `rescaling`, `finished`, `failed` or `cancelled`."""
        return self._master.status

    @property
    def restarts(self) -> int:
        """How often the job was restarted after a failure."""
        return self._master.restarts

    @property
    def failure(self) -> str | None:
        """The newest attempt's first cause of failure, with the user's traceback; `None` if there was none."""
        return self._master.failure

    @property
    def running_since(self) -> float | None:
        """When all subtasks of the current attempt ran with their state restored, in seconds of `time.monotonic`;
        `None` before."""
        return self._master.progress.running_at

    @property
    def start_phases(self) -> dict[str, float]:
        """Seconds that each phase of the current attempt's start took, or has been taking: `checks` (what can be
        refused is), `Spark` (it runs, with slots for all subtasks), `deploy` (a process is up for each subtask),
        `restore` (each has its state and has opened its sources and sinks). Then, once they are over, and only with
        sinks that commit with checkpoints: `first record` (a sink has it), `checkpoint` (one with it is complete),
        `commit` (it is visible). Phases that haven't begun are left out."""
        return self._master.progress.start.seconds()

    def wait(self, timeout: float | timedelta | None = None) -> None:
        """Wait until the job has ended.

        In the main thread, SIGINT and SIGTERM stop the job meanwhile as `stop` does, within the pipeline's
        `stop_grace`; a second signal cancels it, a third one ends the process. Handlers that others have set stay.

        Raises:
            JobFailed: it has failed.
            JobCancelled: it was cancelled; by a signal: `Interrupted`.
            TimeoutError: it still runs after `timeout` seconds; says where it is.
        """
        seconds = _seconds(timeout)
        with signals.waiting():
            if not await_event(self._master.ended, seconds):
                raise TimeoutError(f"the job still runs after {seconds:g} s: {self._where_it_is()}")
            self._await_last_answers()
        if self.status == "failed":
            raise JobFailed(self.failure)
        if self.status == "cancelled":
            if self._watched.asked_by and self._watched.stopping.cancelled:
                raise Interrupted("a signal cancelled the job", self._watched.asked_by)
            raise JobCancelled("the job was cancelled")

    def _where_it_is(self) -> str:
        said = [self.status, f"{counted(self.records_in, 'record')} in, {self.records_out:,} out"]
        if self.running_since is None and (phases := list(self.start_phases)):
            said.append(f"its start is at {phases[-1]!r}")
        if checkpoints := self.checkpoints():
            newest = checkpoints[-1]
            said.append(f"checkpoint {newest.id} {newest.status.replace('_', ' ')}")
        said += [f"waits for {wait.what}" for wait in self._master.waits.now()]
        return ", ".join(said)

    def cancel(self, wait: bool = True) -> None:
        """End the job and leave its last checkpoint; what is not committed yet is committed after a restore."""
        self._watched.stopping.cancelled = True
        self._master.cancel()
        if wait:
            await_event(self._master.ended)
            self._await_last_answers()

    def _await_last_answers(self) -> None:
        beside = self._beside()
        if not any(one.asks_here() for one in beside):
            for one in beside:
                one.await_close()

    def checkpoint(self, timeout: float | timedelta | None = None) -> int:
        """Take a checkpoint now, or as soon as the job runs; returns its id once it is complete.

        Raises:
            RuntimeError: it failed, or the job has ended; says why.
            TimeoutError: it is not complete after `timeout` seconds (but may be later).
        """
        return self._request(CheckpointRequest(), timeout, "the checkpoint isn't complete")

    def savepoint(self, uri: str | Path, timeout: float | timedelta | None = None) -> str:
        """Take a savepoint: a checkpoint in a folder of its own that holds all it needs, so that it can be moved,
        renamed, kept and restored by `start(restore=<its URI>)`. The job goes on; nothing is committed by it.

        Args:
            uri: a folder that is empty or doesn't exist; on a file system that all hosts share.

        Returns:
            The URI of the savepoint, which is `uri`.

        Raises:
            PipelineError: the folder can't be used.
            RuntimeError: it failed, or the job has ended; says why.
            TimeoutError: it is not complete after `timeout` seconds (but may be later).
        """
        target = _savepoint_folder(uri)
        self._request(CheckpointRequest(CheckpointKind.SAVEPOINT, target), timeout, "the savepoint isn't complete")
        return target.uri

    def stop(
        self,
        savepoint: str | Path | None = None,
        drain: bool = False,
        timeout: float | timedelta | None = None,
    ) -> str | None:
        """End the job behind a last checkpoint: sources emit nothing more, all output up to it is committed, and the
        job has finished. The next start goes on from there. Should the checkpoint fail, the job goes on.

        Args:
            savepoint: take a savepoint there (see `savepoint`), not a checkpoint in the job's folder.
            drain: end all input first: event time ends, every event timer fires, and what that emits is committed, too.
                For a job that will not go on. The positions of sources are kept nevertheless.

        Returns:
            The savepoint's URI; `None` without one.

        Raises:
            PipelineError: the folder can't be used.
            RuntimeError: the checkpoint failed, or the job has ended before; says why.
            JobFailed: the checkpoint is complete, but what belongs to it could not be committed.
            TimeoutError: the job has not ended after `timeout` seconds (but may later).
        """
        target = None if savepoint is None else _savepoint_folder(savepoint)
        kind = CheckpointKind.FINAL if target is None else CheckpointKind.SAVEPOINT
        deadline = None if (seconds := _seconds(timeout)) is None else time.monotonic() + seconds
        self._request(CheckpointRequest(kind, target, stop=True, drain=drain), timeout, "the job has not stopped")
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return None if target is None else target.uri

    def rescale(
        self, parallelism: int, step: str | None = None, timeout: float | timedelta | None = None
    ) -> list[Rescaled]:
        """Go on at another parallelism: the job takes a last checkpoint with what is in flight, ends its attempt, and
        begins the next one from there, in the same process. Its output stays exact. Returns once it runs again.

        This is no failure, and does not count as a restart. It holds for this run: the next start goes by what the
        script and the options say. A local session of Weir's own that has too few slots is replaced by a larger one.

        Args:
            parallelism: of all steps that set none of their own.
            step: the id of a step that alone is to have it, with those that follow it.

        Returns:
            All rescales so far, this one last.

        Raises:
            PipelineError: it can't be: the job does not run, another rescale is under way, nothing would change, or the
                pipeline has fewer key groups; says which.
            NotEnoughSlots: Spark has too few slots; says how many there are.
            RuntimeError: the checkpoint failed, and the job goes on as it was; or the first attempt at the new
                parallelism failed, and it goes back to the old one; or it has ended. Says why.
            TimeoutError: it does not run again after `timeout` seconds (but may later).
        """
        answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._master.rescale(parallelism, step, answers.put)
        answer = _await(answers, timeout, "the job is not rescaled")
        if answer is not None:
            raise answer
        return self.rescales

    @property
    def rescales(self) -> list[Rescaled]:
        """The newest 100 rescales of this run: when, what and how long each took."""
        return self._master.rescales

    def _request(self, request: CheckpointRequest, timeout: float | timedelta | None, late: str) -> int:
        answers: queue.SimpleQueue[int | Exception] = queue.SimpleQueue()
        self._master.request_checkpoint(request, answers.put)
        answer = _await(answers, timeout, late)
        if isinstance(answer, Exception):
            if request.target is not None and isinstance(answer, NotTriggered):
                request.target.release()
            raise answer
        return answer

    def state(self, step: str) -> StepState:
        """The state of keys of a step, to be looked at while the job runs: `handle.state("totals").get("ann").value`.

        Args:
            step: its id.

        Raises:
            PipelineError: there is no such step, or it has no state of keys; lists those that have.
        """
        return StepState(self._master.options, self._master.queries, step)

    def checkpoints(self) -> list[CheckpointStats]:
        """The newest 10,000 checkpoints of this run of the job, oldest first. `subtasks` is there for the newest of
        them, up to 10,000 rows of subtasks in all, and empty for older ones."""
        return self._master.history.rows()

    def metrics(self) -> dict[str, Any]:
        """The current attempt's metrics:
        `{"subtasks": {name: {metric: value}}, "totals": {metric: value}, "waits": [{"what", "kind", "who", "since"}]}`.

        Names and units are those of `checkpoint.metrics.METRICS`; `hotKeys` of a subtask are the keys that have most of
        its records, each with its share (`Pipeline(show_keys=)`); totals are sums over subtasks of counters. Waits are
        for what lies outside of the job, such as brokers that are down: for what, in which subtask, since when (seconds
        since 1970), the longest first. Of "the job" they are for what takes long in a subtask, such as an `open`.
        """
        subtasks = {name: dict(values) for name, values in dict(self._master.progress.metrics).items()}
        totals = {
            name: sum(values.get(name) or 0 for values in subtasks.values())
            for name in ("recordsIn", "recordsOut", "bytesIn", "inFlightBytes", "sourceGateClosedMs", *COUNTED)
        }
        waits = [asdict(wait) for wait in self._master.waits.now()]
        return {"subtasks": subtasks, "totals": totals, "waits": waits}

    @property
    def records_in(self) -> int:
        """Records that the sources have read in the current or last attempt."""
        return self._master.records()[0]

    @property
    def records_out(self) -> int:
        """Records that the sinks have taken in the current or last attempt."""
        return self._master.records()[1]

    def recoveries(self) -> list[Recovery]:
        """Where the time of the newest 1,000 restarts went."""
        return list(self._master.recoveries)

    def processes(self) -> dict[str, int]:
        """Process id of each running subtask by name; meaningful on the subtask's own host."""
        return dict(self._master.progress.pids)


def _seconds(timeout: float | timedelta | None) -> float | None:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else timeout


def _await(answers: queue.SimpleQueue[_T], timeout: float | timedelta | None, late: str) -> _T:
    """
    Raises:
        TimeoutError: there is none after `timeout` seconds; `late` says what has not come about.
    """
    seconds = _seconds(timeout)
    try:
        return await_answer(answers, seconds)
    except queue.Empty:
        raise TimeoutError(f"{late} after {seconds:g} s") from None


def _savepoint_folder(uri: str | Path) -> SavepointFolder:
    try:
        return prepare(str(uri).rstrip("/"))
    except StorageError as error:
        raise PipelineError(str(error)) from error
