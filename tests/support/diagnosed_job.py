"""A job without Spark whose diagnosis, as the page shows it, is looked at while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deadlines import PATIENCE
from threads_for_processes import job_in_threads

from pipeline import JobHandle, Pipeline
from pipeline.diagnosis import Sentence
from pipeline.http.watched_job import WatchedJob
from pipeline.runtime.driver.job_master import JobMaster
from pipeline.runtime.driver.signals import Watched


class DiagnosedJob:
    def __init__(self, master: JobMaster) -> None:
        self.master = master
        self.handle = JobHandle(master, Watched(master.name, master, 5.0))

    def said(self) -> list[Sentence]:
        """What its page says now."""
        return WatchedJob(self.master.name, self.handle, None).diagnosis()

    def await_sentence(self, *parts: str) -> Sentence:
        """The first one that has all these parts, as soon as there is one.

        Raises:
            AssertionError: there is none for a minute; with what is said instead.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            said = self.said()
            for one in said:
                if all(part in one.text for part in parts):
                    return one
            assert time.monotonic() < deadline, "\n".join(one.text for one in said)
            time.sleep(0.1)


@contextmanager
def diagnosed(p: Pipeline, make: Callable[[Pipeline], JobMaster] = job_in_threads) -> Iterator[DiagnosedJob]:
    """The job runs until the end of the block, where it is cancelled."""
    job = DiagnosedJob(make(p))
    job.master.start()
    try:
        yield job
    finally:
        job.master.cancel()
        assert job.master.ended.wait(PATIENCE)
