"""`JobHandle`: a started job."""

from __future__ import annotations

import queue
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pipeline.errors import JobCancelled, JobFailed
from pipeline.runtime.driver.checkpoint_stats import CheckpointStats
from pipeline.runtime.driver.job_master import JobMaster, JobOptions, Recovery

if TYPE_CHECKING:
    from pipeline.job import Pipeline


class JobHandle:
    """Watches and steers a started job. Thread-safe."""

    def __init__(self, master: JobMaster):
        self._master = master

    @classmethod
    def _start(
        cls,
        pipeline: Pipeline,
        restore: str,
        *,
        spark: Any,
        rewind: bool,
        allow_unclaimed: bool,
        ignore_in_flight: int | None,
    ) -> JobHandle:
        options = JobOptions(
            pipeline.name,
            pipeline.plan(),
            pipeline.max_parallelism,
            pipeline.checkpoints,
            pipeline.restart,
            pipeline.buffers,
            restore,
            rewind,
            allow_unclaimed,
            ignore_in_flight,
            spark,
        )
        master = JobMaster(options)
        master.start()
        return cls(master)

    @property
    def status(self) -> str:
        """`created`, `running`, `restarting`, `finished`, `failed` or `cancelled`."""
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

    def wait(self, timeout: float | timedelta | None = None) -> None:
        """Wait until the job has ended.

        Raises:
            JobFailed: it has failed.
            JobCancelled: it was cancelled.
            TimeoutError: it still runs after `timeout` seconds.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if not self._master.ended.wait(seconds):
            raise TimeoutError(f"the job still runs after {seconds:g} s")
        if self.status == "failed":
            raise JobFailed(self.failure)
        if self.status == "cancelled":
            raise JobCancelled("the job was cancelled")

    def cancel(self, wait: bool = True) -> None:
        """End the job and leave its last checkpoint; what is not committed yet is committed after a restore."""
        self._master.cancel()
        if wait:
            self._master.ended.wait()

    def checkpoint(self, timeout: float | timedelta | None = None) -> int:
        """Take a checkpoint now, or as soon as the job runs; returns its id once it is complete.

        Raises:
            RuntimeError: it failed, or the job has ended; says why.
            TimeoutError: it is not complete after `timeout` seconds (but may be later).
        """
        answers: queue.SimpleQueue[int | Exception] = queue.SimpleQueue()
        self._master.request_checkpoint(answers.put)
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        try:
            answer = answers.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"the checkpoint isn't complete after {seconds:g} s") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def checkpoints(self) -> list[CheckpointStats]:
        """The newest 10,000 checkpoints of this run of the job, oldest first."""
        return self._master.history.rows()

    def metrics(self) -> dict[str, Any]:
        """The current attempt's metrics: `{"subtasks": {name: {metric: value}}, "totals": {metric: value}}`.

        Names and units are those of `checkpoint.metrics.METRICS`; totals are sums over subtasks of counters.
        """
        subtasks = {name: dict(values) for name, values in dict(self._master.progress.metrics).items()}
        totals = {
            name: sum(values.get(name) or 0 for values in subtasks.values())
            for name in ("recordsIn", "recordsOut", "bytesIn", "inFlightBytes", "sourceGateClosedMs")
        }
        return {"subtasks": subtasks, "totals": totals}

    def recoveries(self) -> list[Recovery]:
        """Where the time of each restart went."""
        return list(self._master.recoveries)

    def processes(self) -> dict[str, int]:
        """Process id of each running subtask by name; meaningful on the subtask's own host."""
        return dict(self._master.progress.pids)
