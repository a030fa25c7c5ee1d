"""One attempt as Spark sees it: what its end says."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import pytest
from deadlines import PATIENCE

from pipeline.runtime.driver.spark.spark_job import SparkJob, SparkJobFailed


def _end_of(spark: Any, run_subtask: Callable[[bytes], None]) -> SparkJobFailed | None:
    ends: queue.SimpleQueue[SparkJobFailed | None] = queue.SimpleQueue()
    SparkJob(spark, 2, run_subtask, b"secret", "test", ends.put).start()
    return ends.get(timeout=PATIENCE)


def test_a_job_whose_subtasks_return_ends_without_an_error(spark: Any) -> None:
    assert _end_of(spark, lambda _: None) is None


def test_the_error_is_the_workers_traceback(spark: Any) -> None:
    def fail(_: bytes) -> None:
        raise ValueError("no such thing")

    error = _end_of(spark, fail)
    assert error is not None
    assert str(error).startswith("Traceback (most recent call last):")
    assert "ValueError: no such thing" in str(error)
    assert not error.permanent


def test_a_crashed_worker_is_the_cause(spark: Any) -> None:
    def crash(_: bytes) -> None:
        import os

        os._exit(3)

    error = _end_of(spark, crash)
    assert error is not None
    assert "Python worker exited unexpectedly (crashed)" in str(error)
    assert not error.permanent


@pytest.mark.parametrize("sign", ["[PYTHON_VERSION_MISMATCH] 3.12 here, 3.11 there", "No module named 'pipeline'"])
def test_what_no_restart_can_help_is_said_in_one_line(spark: Any, sign: str) -> None:
    def fail(_: bytes) -> None:
        raise RuntimeError(sign)

    error = _end_of(spark, fail)
    assert error is not None
    assert error.permanent
    assert str(error).startswith(f"RuntimeError: {sign}")
    assert "\n" not in str(error)


def test_a_cancelled_job_ends(spark: Any) -> None:
    def stay(_: bytes) -> None:
        import threading

        threading.Event().wait(600)

    ends: queue.SimpleQueue[SparkJobFailed | None] = queue.SimpleQueue()
    job = SparkJob(spark, 2, stay, b"secret", "test", ends.put)
    job.start()
    while not spark.statusTracker().getActiveJobsIds():
        with pytest.raises(queue.Empty):
            ends.get(timeout=0.05)
    job.cancel()
    assert isinstance(ends.get(timeout=PATIENCE), SparkJobFailed)
