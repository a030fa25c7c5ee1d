"""Waiting for something that a job does, for as long as there is one that may do it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # what subtasks import of this package need not bring the driver along
    from pipeline.runtime.driver.job_master import JobMaster

_POLL_S: Final = 0.01
_NEXT_JOB_S: Final = 2.0
"""So long another job may take to be started once all others have ended."""


def jobs_here() -> list[JobMaster]:
    """As `pipeline.runtime.driver.job_master.jobs_here`."""
    from pipeline.runtime.driver import job_master

    return job_master.jobs_here()


class JobEnded(RuntimeError):
    """What is waited for can't happen any more: the job has ended, and its failure is told."""


def await_in_job(
    happened: Callable[[], bool],
    timeout: float,
    jobs: Callable[[], Iterable[JobMaster]],
    what: Callable[[str], str],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return once it has happened.

    Args:
        timeout: seconds.
        jobs: those that may do it. If there are none it may be done by another process's.
        what: says what has not happened, given " within 30 s" or nothing.

    Raises:
        JobEnded: it has not, and all of `jobs` have ended.
        TimeoutError: it has not.
    """
    deadline = clock() + timeout
    ended_since: float | None = None
    while not happened():
        now = clock()
        if now >= deadline:
            raise TimeoutError(what(f" within {timeout:g} s"))
        all_ = list(jobs())
        if not all_ or not all(job.ended.is_set() for job in all_):
            ended_since = None
        else:
            ended_since = now if ended_since is None else ended_since
            # Looked at once more, since it may have happened just before the end.
            if now - ended_since >= _NEXT_JOB_S and not happened():
                raise JobEnded(f"{what('')}, and won't be: " + "; ".join(map(_end, all_)))
        sleep(_POLL_S)


def _end(job: JobMaster) -> str:
    return f"job {job.name!r} is {job.status}" + (f": {job.failure}" if job.failure else "")
