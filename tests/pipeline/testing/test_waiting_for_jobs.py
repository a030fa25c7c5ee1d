"""Who waits for something in a job doesn't wait for one that has ended."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.testing import JobEnded, ManualClock
from pipeline.testing.jobs import await_in_job


def job(status: str, failure: str | None = None) -> Any:
    ended = threading.Event()
    if status != "running":
        ended.set()
    return SimpleNamespace(name="job", status=status, failure=failure, ended=ended)


def wait(jobs: list[Any], happens_at: float | None = None) -> float:
    """How long it took, with a clock of its own."""
    clock = ManualClock()
    await_in_job(
        lambda: happens_at is not None and clock() >= happens_at,
        30.0,
        lambda: jobs,
        lambda when: f"it did not happen{when}",
        clock,
        lambda seconds: (clock.advance(seconds), None)[1],
    )
    return clock()


@pytest.mark.parametrize("jobs", [[], [job("running")], [job("failed"), job("running")]])
def test_as_long_as_a_job_may_do_it_or_none_is_known_it_is_waited_for(jobs: list[Any]) -> None:
    assert wait(jobs, happens_at=20.0) == pytest.approx(20.0, abs=0.1)
    with pytest.raises(TimeoutError, match="it did not happen within 30 s"):
        wait(jobs)


@pytest.mark.parametrize(
    ("status", "failure"), [("failed", "ValueError: bad"), ("cancelled", None), ("finished", None)]
)
def test_once_all_have_ended_it_is_said_how(status: str, failure: str | None) -> None:
    assert wait([job(status, failure)], happens_at=1.0) == pytest.approx(1.0, abs=0.1)
    with pytest.raises(JobEnded, match=f"it did not happen, and won't be: job 'job' is {status}") as caught:
        wait([job(status, failure)], happens_at=10.0)
    assert (failure or "") in str(caught.value)
