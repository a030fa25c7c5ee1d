from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.http.health import Movement, Readiness, default_bound

BOUND = 60.0


def job(records: int = 0, checkpoints: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "status": "running",
        "running_for": 1000.0,
        "restarts": 0,
        "checkpoints_completed": checkpoints,
        "start": {"checks": 0.1, "restore": 1.0},
        "waits": [],
        "vertices": {"in": {"recordsIn": records, "recordsOut": records}},
        "subtasks": {"in[0]": {}},
        **more,
    }


def readiness(movement: Movement, status: dict[str, Any], now: float, clock_set: float = 0.0) -> Readiness:
    """`clock_set`: by how many seconds the host's clock was set meanwhile."""
    return movement.readiness(status, now, now + clock_set)


def test_a_job_that_moves_is_ready_and_one_that_stands_is_not() -> None:
    movement = Movement(BOUND)
    movement.note(job(5), 1000.0)
    assert not readiness(movement, job(5), 1000.0).ready
    movement.note(job(6), 1001.0)
    assert readiness(movement, job(6), 1001.0 + BOUND).ready
    found = readiness(movement, job(6), 1002.0 + BOUND)
    assert not found.ready
    assert found.why.startswith("no record and no completed checkpoint since 1970-01-01 00:16:41 UTC, for 61 s")
    movement.note(job(6, checkpoints=1), 1100.0)
    assert readiness(movement, job(6, checkpoints=1), 1100.0 + BOUND).ready


@pytest.mark.parametrize("clock_set", [-7200.0, 0.0, 7200.0])
def test_setting_the_hosts_clock_is_no_movement_and_no_standstill(clock_set: float) -> None:
    movement = Movement(BOUND)
    movement.note(job(5), 1000.0)
    movement.note(job(6), 1001.0)
    assert readiness(movement, job(6), 1001.0 + BOUND, clock_set).ready
    found = readiness(movement, job(6), 1002.0 + BOUND, clock_set)
    assert not found.ready
    assert "for 61 s" in found.why


def test_a_job_has_the_bound_from_when_it_runs() -> None:
    movement = Movement(BOUND)
    assert readiness(movement, job(running_for=59.0), 1000.0).ready
    assert not readiness(movement, job(running_for=61.0), 1000.0).ready


def test_a_restart_is_no_movement() -> None:
    movement = Movement(BOUND)
    movement.note(job(5), 1000.0)
    movement.note(job(0, restarts=1), 2000.0)
    assert not readiness(movement, job(0, restarts=1), 2000.0).ready


@pytest.mark.parametrize(
    ("lags", "waits", "ready"),
    [([0, 0], [], True), ([0, 3], [], False), ([0, None], [], False), ([], [], False), ([0], ["the brokers"], False)],
)
def test_nothing_to_read_is_no_trouble(lags: list[Any], waits: list[str], ready: bool) -> None:
    subtasks = {f"in[{n}]": {"recordsLag": lag} for n, lag in enumerate(lags)}
    told = [{"what": what, "who": "in[0]", "since": 900.0} for what in waits]
    found = readiness(Movement(BOUND), job(subtasks={"out[0]": {}, **subtasks}, waits=told), 1000.0)
    assert found.ready == ready
    if waits:
        assert found.why.endswith("; it waits for the brokers since 1970-01-01 00:15:00 UTC")


def test_it_says_what_a_job_does_that_does_not_run() -> None:
    movement = Movement(BOUND)
    starting = readiness(movement, job(status="created", running_for=None), 1000.0)
    assert (starting.ready, starting.why) == (False, "the job is starting: restore for 1.00 s")
    assert "is restarting" in readiness(movement, job(status="restarting", restarts=1), 1000.0).why
    assert "is rescaling" in readiness(movement, job(status="rescaling", restarts=1), 1000.0).why
    for end in ("finished", "failed", "cancelled"):
        assert readiness(movement, job(status=end), 1000.0).why == f"the job is {end}"


@given(st.none() | st.floats(0.01, 1e6))
def test_the_bound_gives_three_checkpoints_time(interval: float | None) -> None:
    assert default_bound(interval) >= max(60.0, 3 * (interval or 0))
