"""Whoever asks for a checkpoint gets an answer, however the job or its attempt ends."""

from __future__ import annotations

import threading
from pathlib import Path

from attempt_parts import attempt_context
from deadlines import PATIENCE

from pipeline import CheckpointConfig, Pipeline
from pipeline.runtime.driver.attempt import Attempt
from pipeline.runtime.driver.attempt_context import CheckpointRequest, NotTriggered, Progress
from pipeline.runtime.driver.job_master import JobMaster
from pipeline.testing import TestingSink, TestingSource


def job(folder: Path) -> Pipeline:
    p = Pipeline("job", parallelism=1, checkpoints=CheckpointConfig(str(folder)))
    p.source("in", TestingSource()).sink("out", TestingSink())
    return p


def test_a_job_that_ends_before_its_first_attempt_refuses_what_was_asked_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("where the folder should be")
    p = job(tmp_path / "file")
    options = p.options("latest", spark=None, claim=None, rewind=False, allow_unclaimed=False, ignore_in_flight=None)
    master, over = JobMaster(options), threading.Event()
    answers: list[int | Exception] = []
    master.on_ended = over.set
    master.request_checkpoint(CheckpointRequest(), answers.append)
    assert answers == []
    master.start()
    assert over.wait(PATIENCE)
    assert master.status == "failed"
    master.request_checkpoint(CheckpointRequest(), answers.append)
    assert [(type(one), str(one)) for one in answers] == [
        (NotTriggered, "the job is failed, so no checkpoint is taken any more")
    ] * 2


def test_an_attempt_refuses_what_came_too_late_to_be_looked_at(tmp_path: Path) -> None:
    attempt = Attempt(attempt_context(job(tmp_path).plan(), str(tmp_path)), Progress())
    answers: list[int | Exception] = []
    for _ in range(2):
        attempt.request_checkpoint(CheckpointRequest(), answers.append)
    attempt.cancel()
    attempt.refuse_requests()
    assert [(type(one), str(one)) for one in answers] == [
        (NotTriggered, "the attempt ended before the checkpoint was complete")
    ] * 2
