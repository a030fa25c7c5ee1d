"""When a job's load says nothing, and what is told if the job can't be looked at."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deadlines import eventually
from idle_handle import completed, idle_handle, run

from checkpoint.checkpoint_kind import CheckpointKind
from pipeline import Autoscale, CheckpointConfig, JobHandle
from pipeline.runtime.driver.attempt_context import CheckpointRequest
from pipeline.runtime.driver.job_master import JobMaster
from pipeline.runtime.driver.scaling.autoscaler import Autoscaler
from pipeline.runtime.driver.status.checkpoint_stats import ATTEMPT_ENDED
from pipeline.runtime.system import SYSTEM


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> JobHandle:
    monkeypatch.setattr(JobMaster, "room", None)
    return idle_handle()


def state(handle: JobHandle) -> str:
    """What it does once it has looked."""
    autoscaler = Autoscaler(Autoscale(most=8), handle._master, SYSTEM)
    autoscaler.look()
    return autoscaler._core.state


def test_only_a_job_that_runs_and_waits_for_nobody_has_a_load(handle: JobHandle) -> None:
    assert state(handle) == "waits until the job runs"
    run(handle)
    assert state(handle).startswith("pauses for ")
    run(handle, in_0={"waitingMs": 1500.0})
    assert state(handle) == "waits: the job waits for something outside"
    run(handle)
    handle._master.status = "restarting"
    assert state(handle) == "waits until the job runs"


def test_a_stop_that_fails_is_over(handle: JobHandle) -> None:
    run(handle)
    requests: list[Any] = []
    current: Any = type("Attempt", (), {"request_checkpoint": lambda self, *request: requests.append(request)})()
    handle._master._requests._current = current
    handle._master.request_checkpoint(CheckpointRequest(CheckpointKind.FINAL, stop=True), lambda _: None)
    assert state(handle) == "waits: the job is to end"
    ((_, answer),) = requests
    answer(RuntimeError("no"))
    assert state(handle).startswith("pauses for ")
    handle._master._requests.cancelled.set()
    assert state(handle) == "waits: the job is to end"


@pytest.mark.parametrize(
    ("reasons", "counts"),
    [([], None), (["no space"], 2), (["no space", ATTEMPT_ENDED], 2), ([ATTEMPT_ENDED], None)],
)
def test_a_checkpoint_that_failed_counts_until_one_is_complete(
    handle: JobHandle, reasons: list[str], counts: int | None, tmp_path: Path
) -> None:
    history, autoscaler = handle._master.history, Autoscaler(Autoscale(most=8), handle._master, SYSTEM)
    completed(handle, 1)
    for id, reason in enumerate(reasons, 2):
        history.triggered(id, CheckpointKind.CHECKPOINT, 0.0, 0.0)
        history.failed(id, reason, 1.0)
    assert autoscaler._seen().failed_checkpoint is None, "without an interval no other one would come"
    handle._master._requests._rescaling.options = replace(
        handle._master.options, checkpoints=CheckpointConfig(str(tmp_path))
    )
    assert autoscaler._seen().failed_checkpoint == counts
    completed(handle, 9)
    assert autoscaler._seen().failed_checkpoint is None


def test_trouble_is_told_once_and_the_job_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    handle = idle_handle()  # without a session
    run(handle)
    autoscaler = Autoscaler(Autoscale(most=8, window=0.1), handle._master, SYSTEM)
    looks: list[None] = []
    look = autoscaler.look
    autoscaler.look = lambda: (looks.append(None), look())[1]  # type: ignore[method-assign]
    autoscaler.start()
    try:
        eventually(lambda: len(looks) > 3)
    finally:
        handle._master.ended.set()
    assert autoscaler.status["state"].startswith("can't look at the job: ")
    told = [record.levelno for record in caplog.records if "autoscale can't look at the job" in record.getMessage()]
    assert told == [logging.WARNING]
