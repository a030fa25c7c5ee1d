"""A job's processes as threads of this process, over real sockets and without Spark."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace
from typing import Any

from deadlines import PATIENCE
from session_without_spark import FakeSession

from pipeline import Pipeline
from pipeline.runtime.deployment import Contact
from pipeline.runtime.driver.attempt import Attempt
from pipeline.runtime.driver.attempt_context import AttemptContext
from pipeline.runtime.driver.attempt_events import SparkEnded
from pipeline.runtime.driver.attempt_services import AttemptServices, Post
from pipeline.runtime.driver.job_master import JobMaster
from pipeline.runtime.subtask.process import run_partition


class ThreadsForProcesses(AttemptServices):
    """Each partition of the Spark job is a thread of this process."""

    def processes(
        self, context: AttemptContext, address: tuple[str, int], secret: bytes, description: str, post: Post
    ) -> Any:
        def partition(number: int) -> None:
            with contextlib.suppress(Exception):  # the driver knows
                run_partition(Contact(address, 30.0, context.job.encrypt), secret, number, lambda: 0.0)

        threads = [threading.Thread(target=partition, args=(i,)) for i in range(context.plan.subtasks)]

        def all_of_them() -> None:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
            post(SparkEnded(None))

        return SimpleNamespace(start=threading.Thread(target=all_of_them).start, cancel=lambda: None)


def job_in_threads(p: Pipeline) -> JobMaster:
    """The job, not started yet."""
    options = p.options("latest", spark=None, claim=None, rewind=False, allow_unclaimed=False, ignore_in_flight=None)
    return JobMaster(options, session=FakeSession, attempt=lambda *parts: Attempt(*parts, ThreadsForProcesses()))
