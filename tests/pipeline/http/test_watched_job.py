"""What many ask costs the driver once a second."""

from __future__ import annotations

import pytest
from deadlines import eventually
from idle_handle import completed, idle_handle, run

from pipeline.http.watched_job import WatchedJob


def test_many_who_ask_at_once_cost_one_look_and_one_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.http.watched_job.FRESH", 3600.0)
    handle = idle_handle()
    run(handle)
    completed(handle, 1)
    looks: list[str] = []
    metrics, rows = handle.metrics, handle.checkpoints
    monkeypatch.setattr(handle, "metrics", lambda: looks.append("metrics") or metrics())
    monkeypatch.setattr(handle, "checkpoints", lambda: looks.append("rows") or rows())
    job = WatchedJob("orders", handle, None)
    job.diagnosis()
    once = list(looks)
    for _ in range(20):
        job.diagnosis()
        job.status()
    assert looks == once


def test_a_diagnosis_is_renewed() -> None:
    handle = idle_handle()
    job = WatchedJob("orders", handle, None)
    assert "does not run yet" in job.diagnosis()[0].text
    run(handle)
    eventually(lambda: "does not run yet" not in job.diagnosis()[0].text)
