"""Who waits for what: what subtasks report, what is shown and logged of it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.waiting import Waiting, WaitKind
from pipeline.cli import operate_tables
from pipeline.runtime.driver.status import waits as waits_module
from pipeline.runtime.driver.status.waits import Wait, Waits, by_what
from pipeline.runtime.subtask.task_metrics import TaskMetrics


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_subtask_reports_what_it_waits_for_and_for_how_long() -> None:
    clock = Clock()
    metrics = TaskMetrics(clock)
    assert (metrics.report()["waits"], metrics.report()["waitingMs"]) == ([], 0)
    metrics.waiting.begin("brokers", kind=WaitKind.BROKERS)
    clock.now += 2
    metrics.waiting.begin("brokers", kind=WaitKind.BROKERS)
    metrics.waiting.begin("the registry", since=clock.now - 0.5)
    assert (metrics.report()["waits"], metrics.report()["waitingMs"]) == (
        [("brokers", 2.0, "brokers"), ("the registry", 0.5, "other")],
        2000,
    )
    metrics.waiting.end("brokers")
    metrics.waiting.end("what nobody waits for")
    assert metrics.report()["waits"] == [("the registry", 0.5, "other")]


def test_the_first_and_the_last_that_wait_for_something_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    waits = Waits("job", clock)
    with caplog.at_level(logging.WARNING):
        waits.report("in[0]", [("brokers", 5.0, "brokers")])
        clock.now += 1
        waits.report("in[1]", [("brokers", 2.0, "brokers")])
        waits.report("in[0]", [("brokers", 6.1, "brokers")])
        assert waits.now() == [
            Wait(995.0, "brokers", "in[0]", WaitKind.BROKERS),
            Wait(999.0, "brokers", "in[1]", WaitKind.BROKERS),
        ]
        waits.report("in[0]", [])
        clock.now += 9
        waits.report("in[1]", [])
        waits.report("in[1]", [])
    assert [record.getMessage() for record in caplog.records] == [
        "job job: waits for brokers: in[0]",
        "job job: no longer waits for brokers, after 11 s",
    ]


def test_what_subtasks_waited_for_goes_with_them_and_the_drivers_own_waits_stay() -> None:
    waits = Waits("job", Clock())
    waits.report("the job", [("slots", 0.0, "slots")])
    waits.report("in[0]", [("brokers", 5.0, "brokers")])
    waits.forget(["in[0]", "in[1]"])
    assert waits.now() == [Wait(1000.0, "slots", "the job", WaitKind.SLOTS)]
    waits.report("the job", [])
    assert waits.now() == []


def test_a_wait_that_begins_anew_between_two_reports_is_another_one() -> None:
    clock = Clock()
    waits = Waits("job", clock)
    waits.report("in[0]", [("brokers", 60.0, "brokers")])
    waits.report("in[0]", [("brokers", 0.1, "brokers")])
    assert waits.now() == [Wait(999.9, "brokers", "in[0]", WaitKind.BROKERS)]


REPORTS = st.lists(
    st.tuples(st.sampled_from(["a[0]", "a[1]", "b[0]"]), st.sets(st.sampled_from(["brokers", "storage", "slots"]))),
    max_size=30,
)


@given(REPORTS)
def test_what_is_shown_is_what_was_reported_last_and_every_wait_is_logged_once(
    reports: list[tuple[str, set[str]]],
) -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = waits_module._LOG
    logger.addHandler(handler)
    try:
        clock = Clock()
        waits = Waits("job", clock)
        last: dict[str, set[str]] = {}
        changes = 0
        for who, whats in reports:
            before = set().union(*last.values())
            clock.now += 1
            waits.report(who, [(what, 0.0, "other") for what in whats])
            last[who] = whats
            changes += len(before ^ set().union(*last.values()))
            assert {(wait.who, wait.what) for wait in waits.now()} == {(w, what) for w in last for what in last[w]}
            assert set(by_what(waits.now())) == set().union(*last.values())
        assert len(lines) == changes
    finally:
        logger.removeHandler(handler)


def test_a_status_names_what_is_waited_for_and_who_waits(capsys: pytest.CaptureFixture[str]) -> None:
    waits = [{"since": 1e9 + n, "what": "the brokers at host:9092", "who": f"in[{n}]"} for n in range(5)]
    job: dict[str, Any] = {
        "name": "job",
        "address": "127.0.0.1:1",
        "pid": 1,
        "host": "here",
        "status": "running",
        "running_for": 1.0,
        "started": 1e9,
        "uptime": 1.0,
        "restarts": 0,
        "failure": None,
        "checkpoints": [],
        "checkpoints_completed": 0,
        "checkpoints_failed": 0,
        "recoveries": [],
        "vertices": {},
        "totals": {},
        "waits": waits,
    }
    operate_tables.print_status(job)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("waits for:")]
    assert "the brokers at host:9092, for " in line
    assert "since 2001-09-09 01:46:40 UTC: in[0], in[1], in[2] and 2 more" in line


def test_what_is_begun_in_one_thread_is_seen_in_another_even_if_it_never_ends() -> None:
    waiting = Waiting()
    waiting.begin("brokers")
    ((what, seconds, kind),) = waiting.report()
    assert (what, seconds >= 0, kind) == ("brokers", True, "other")


def test_what_is_waited_for_is_called_otherwise_and_lasts_on(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    waits = Waits("orders", clock)
    waits.report("in[0]", [("the brokers", 0.0, "brokers")])
    clock.now += 1
    waits.instead("the job", "slots: it needs 4, and there are 2", WaitKind.SLOTS)
    clock.now += 1
    waits.instead("the job", "slots: it needs 4, and there are 3", WaitKind.SLOTS)
    assert waits.now() == [
        Wait(1000.0, "the brokers", "in[0]", WaitKind.BROKERS),
        Wait(1001.0, "slots: it needs 4, and there are 3", "the job", WaitKind.SLOTS),
    ]
    waits.instead("the job", None, WaitKind.SLOTS)
    waits.instead("the job", None, WaitKind.SLOTS)
    assert [wait.who for wait in waits.now()] == ["in[0]"]
    assert [record.getMessage().split(":")[1] for record in caplog.records] == [
        " waits for the brokers",
        " waits for slots",
        " waits for slots",
        " no longer waits for slots",
    ]
