"""What a status has of a job, and what of it a diagnosis looks at."""

from __future__ import annotations

import time
from typing import Any

import pytest
from idle_handle import completed, idle_handle, run

from checkpoint.checkpoint_kind import CheckpointKind
from pipeline import JobHandle
from pipeline.runtime.driver.status import job_status
from pipeline.runtime.driver.status.job_status import diagnosis_of, graph_of, status_of, vertex_of
from pipeline.runtime.driver.status.restart_times import Recovery


def status(handle: JobHandle) -> dict[str, Any]:
    return status_of("orders", "127.0.0.1:1", handle, handle.metrics())


def test_the_newest_checkpoints_and_restarts_are_shown_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = idle_handle()
    for id in range(1, 26):
        completed(handle, id)
    handle._master.history.triggered(26, CheckpointKind.SAVEPOINT, 100.0, time.time())
    handle._master.history.failed(26, "no room", 101.0)
    recoveries = [Recovery(1.0, 2.0, 3.0, 4.0, restarted=float(n), cause=f"cause {n}") for n in range(30)]
    monkeypatch.setattr(handle, "recoveries", lambda: recoveries)
    found = status(handle)
    assert [row["id"] for row in found["checkpoints"]] == list(range(17, 27))
    assert "subtasks" not in found["checkpoints"][0]
    assert (found["checkpoints_completed"], found["checkpoints_failed"]) == (25, 1)
    assert [one["cause"] for one in found["restart_causes"]] == [f"cause {n}" for n in range(10, 30)]
    assert found["restart_causes"][-1]["at"] == 29.0
    assert len(found["recoveries"]) == 30


def test_how_long_a_job_is_up_and_runs_is_told() -> None:
    handle = idle_handle()
    assert status(handle)["running_for"] is None
    run(handle)
    handle._started -= 7000
    handle._master.progress.running_at = time.monotonic() - 50
    found = status(handle)
    assert 7000 <= found["uptime"] < 7600
    assert 50 <= found["running_for"] < 650


def test_a_graph_names_vertices_subtasks_steps_and_edges() -> None:
    found = graph_of(idle_handle(parallelism=2))
    assert [(one["name"], one["parallelism"], one["is_source"], one["subtasks"]) for one in found["vertices"]] == [
        ("in", 1, True, ["in[0]"]),
        ("totals → out", 2, False, ["totals → out[0]", "totals → out[1]"]),
    ]
    assert found["vertices"][1]["steps"] == [{"id": "totals", "kind": "process"}, {"id": "out", "kind": "sink"}]
    (edge,) = found["edges"]
    assert edge == {
        "upstream": "in",
        "downstream": "totals → out",
        "upstream_step": "in",
        "downstream_step": "totals",
        "distribution": "keyed",
        "side_output": None,
    }


def test_a_diagnosis_looks_at_the_checkpoint_under_way_and_the_newest_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handle, seen = idle_handle(), []

    def diagnose(status: Any, under_way: Any, newest: Any, now: float) -> list[Any]:
        seen.append([row and (row["id"], row["status"], len(row["subtasks"])) for row in (under_way, newest)])
        return []

    monkeypatch.setattr(job_status, "diagnose", diagnose)
    history = handle._master.history
    diagnosis_of(handle, {})
    completed(handle, 1)
    completed(handle, 2)
    diagnosis_of(handle, {})
    history.triggered(3, CheckpointKind.CHECKPOINT, 100.0, time.time())
    diagnosis_of(handle, {})
    history.failed(3, "no room", 101.0)
    history.triggered(4, CheckpointKind.CHECKPOINT, 102.0, time.time())
    history.subsumed(4, 103.0)
    diagnosis_of(handle, {})
    assert seen == [
        [None, None],
        [None, (2, "completed", 3)],
        [(3, "in_progress", 0), (2, "completed", 3)],
        [None, (3, "failed", 0)],
    ]


def test_figures_that_a_subtask_does_not_have_count_as_nothing() -> None:
    found = vertex_of([{}, {"recordsIn": 5, "busyMsPerSecond": None, "pendingCommits": 0}])
    assert (found["recordsIn"], found["recordsOut"], found["inFlightBytes"]) == (5, 0, 0)
    assert (found["busyMsPerSecond"], found["pendingCommits"], found["backPressuredMsPerSecond"]) == (0, 0, 0)
    assert (vertex_of([])["subtasks"], vertex_of([])["recordsLag"]) == (0, None)
