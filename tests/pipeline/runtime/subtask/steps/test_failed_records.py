"""What is logged, counted and told of records that a step fails on."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from checkpoint.codec import encode
from checkpoint.failure_rate import AtMost
from pipeline import Skip
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.steps.failed_records import FailedRecords, Noted, TooManyFailures
from pipeline.runtime.subtask.task_metrics import TaskMetrics

NOTED = Noted(None, None, None, None)


class Step:
    def __init__(self, at_most: AtMost | None = None) -> None:
        self.now = 100.0
        self.metrics = TaskMetrics(lambda: self.now)
        self.record = RecordInProgress()
        self.told: list[Any] = []
        context = Context(self.record, 2, 4)
        clock = lambda: self.now  # noqa: E731
        self.policy = FailedRecords(
            "parse", Skip(at_most=at_most), context, self.record, self.told.append, self.metrics, clock
        )


def test_failures_are_logged_once_a_second_with_how_many_were_left_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    step = Step()
    for seconds in (0.0, 0.5, 0.49, 0.01, 1.0):
        step.now = round(step.now + seconds, 6)
        step.policy.handle(ValueError("no"), NOTED)
    assert [line.split(": ")[1] for line in caplog.messages] == [
        "a record failed and is left out",
        "a record failed and is left out (2 more since the last message)",
        "a record failed and is left out",
    ]
    assert step.metrics.report()["recordsFailed"] == 5


def test_the_count_is_there_before_the_first_failure() -> None:
    assert Step().metrics.report()["recordsFailed"] == 0


def test_a_timer_is_called_one() -> None:
    step = Step()
    step.record.timestamp = 5
    step.policy.handle(ValueError("no"), step.policy.note(None, timer=7))
    (letter,) = step.told
    assert (letter["timer"], letter["timestamp"], letter["subtask"], "record" in letter) == (7, 5, 2, False)


def test_the_letter_has_the_record_its_key_and_what_the_source_had() -> None:
    step = Step()
    step.record.source_rows, step.record.row = [None, SimpleNamespace(original={"offset": 3})], 1
    step.policy.handle(ValueError("no"), step.policy.note(encode({"n": 1})))
    (letter,) = step.told
    assert (letter["record"], letter["original"], letter["step"]) == ({"n": 1}, {"offset": 3}, "parse")
    assert letter["reason"] == "no"


@pytest.mark.parametrize("by", ["begin", "count"])
def test_the_share_of_failures_is_of_all_that_came(by: str) -> None:
    step = Step(AtMost(0.5, within=60, minimum=1))
    for _ in range(4):
        step.policy.begin("x") if by == "begin" else step.policy.count()
    step.policy.handle(ValueError("no"), NOTED)
    step.policy.handle(ValueError("no"), NOTED)
    with pytest.raises(TooManyFailures, match="step 'parse': "):
        step.policy.handle(ValueError("the last"), NOTED)
    assert step.metrics.report()["recordsFailed"] == 3


def test_failures_of_long_ago_do_not_count() -> None:
    step = Step(AtMost(0.5, within=60, minimum=1))
    for _ in range(5):
        for _ in range(4):
            step.policy.count()
        step.policy.handle(ValueError("no"), NOTED)
        step.policy.handle(ValueError("no"), NOTED)
        step.now += 120
