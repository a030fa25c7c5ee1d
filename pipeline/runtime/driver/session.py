"""Spark, as a job needs it."""

from __future__ import annotations

import logging
import threading
from typing import Any

from pipeline.runtime.driver.gateway import lost_jvm
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.slots import await_slots, require_slots
from pipeline.runtime.driver.spark_job import begin_local_context, check_session, spark_context, stop_context
from pipeline.runtime.driver.waits import THE_JOB, Waits

_LOG = logging.getLogger(f"weir.{__name__}")


class Session:
    """The session that a job runs in: one that was there before, or its own. Tests without Spark have another class."""

    def __init__(self, options: JobOptions):
        self._o = options
        self.waits: Waits | None = None
        """The job's, where it is told what is waited for."""
        self.context: Any = None
        """The `SparkContext`, once it is open."""
        self._own = False

    def begin(self) -> None:
        """Start what takes long of `open`, while the job is checked; returns at once."""
        begin_local_context(self._o.spark)

    def open(self) -> None:
        """Find or start it, with a slot for each subtask.

        Raises:
            PipelineError: it can't be used.
            NotEnoughSlots: it has too few slots.
            OSError, RuntimeError: Spark doesn't start.
        """
        o = self._o
        self.context, self._own = spark_context(o.spark, o.plan.subtasks, o.name)
        require_slots(self.context, o.plan, self._tell)
        _LOG.info(
            "job %s: Spark %s at %s has slots for all %d subtasks; their processes start",
            *(o.name, self.context.version, self.context.master, o.plan.subtasks),
        )

    def check(self, stop: threading.Event | None) -> None:
        """See that an attempt can run in it.

        Args:
            stop: for a restart: wait for the slots of the attempt before, until this is set.

        Raises:
            PipelineError: it is stopped.
            NotEnoughSlots: the slots don't become free.
        """
        check_session(self.context)
        if stop is not None:
            await_slots(self.context, self._o.plan, stop, self._tell)

    def _tell(self, what: str | None) -> None:
        if self.waits is not None:
            self.waits.instead(THE_JOB, what)

    @property
    def host(self) -> str:
        """The address that executors reach the driver at."""
        if self.context.master.startswith("local"):
            return "127.0.0.1"
        host: str = self.context.getConf().get("spark.driver.host", "127.0.0.1")
        return host

    def lost(self) -> str | None:
        """That Spark's JVM is gone, if it is: what that does to all who talk to it explains nothing."""
        lost = None if self.context is None else lost_jvm(self.context)
        return None if lost is None else f"{lost}. Start the job again; it goes on from its newest checkpoint"

    def close(self) -> None:
        """Stop it, if it is the job's own."""
        if self._own:
            stop_context(self.context)
