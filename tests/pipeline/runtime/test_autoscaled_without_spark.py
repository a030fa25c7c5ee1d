"""A job that is rescaled by itself: it follows its load, says what it does and why, and its output is exact."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from small_job import NEVER, SlowCount, assert_exact, records, small_job
from threads_for_processes import job_in_threads

from pipeline import Autoscale, JobHandle, PipelineError
from pipeline.cli.operate_tables import facts
from pipeline.runtime.driver.signals import Watched
from pipeline.runtime.driver.status.job_status import status_of
from pipeline.testing import TestingSink, TestingSource, failpoints


def status(handle: JobHandle) -> dict[str, Any]:
    return status_of("job", "127.0.0.1:1", handle, handle.metrics())


def test_a_job_follows_its_load_unless_checkpoints_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    all_ = records(0, 20_000, keys=64)
    source = TestingSource(all_, batch_size=20, directory=tmp_path / "source")
    sink = TestingSink(tmp_path / "sink")
    options = {**NEVER, "tolerable_failures": 5, "operator": SlowCount()}
    p = small_job("autoscaled", tmp_path / "checkpoints", source, sink, **options)
    p.autoscale = Autoscale(most=2, pause=0.2, window=1.2)
    master = job_in_threads(p)
    handle = JobHandle(master, Watched(p.name, master, 30.0))

    def said() -> dict[str, Any]:
        assert master.autoscaler is not None
        return dict(master.autoscaler.status)

    with failpoints.fail("coordinator.before_metadata") as point:
        master.start()
        eventually(lambda: said()["rescales"]["failed"] == 1)
        assert point.fired
    assert handle.rescales == []
    eventually(lambda: said()["refusals"]["checkpoint"] == 1)
    assert "and a rescale needs one; it waits until one is complete" in str(said()["refused"])
    handle.checkpoint(PATIENCE)
    eventually(lambda: said()["rescales"]["rescaled"] == 1)
    (done,) = handle.rescales
    assert done.what.endswith("count, out 1 → 2")
    eventually(lambda: said()["refusals"]["bounds"] == 1 or handle.status == "finished")

    shown = [text for about, text in facts(status(handle)) if about == "autoscale"]
    assert shown[0].startswith("1 to 2: it ")
    assert any(text.startswith(f"rescaled {done.what}, at ") and "bound by count" in text for text in shown)
    told = [record.getMessage() for record in caplog.records if record.name.endswith("autoscaler")]
    assert any(f"autoscale rescales {done.what}: 1 → " in line and "bound by count → out" in line for line in told)
    assert any("autoscale could not rescale" in line and "injected" in line for line in told)
    assert any("is advised and not done: checkpoint" in line for line in told)
    handle.wait(PATIENCE)
    assert (handle.status, handle.restarts) == ("finished", 0)
    assert_exact(sink, all_)


def test_a_job_that_is_to_end_is_not_rescaled_by_itself(tmp_path: Path) -> None:
    source = TestingSource([*records(0, 10), TestingSource.PAUSE()], directory=tmp_path / "source")
    sink = TestingSink(tmp_path / "sink")
    p = small_job("ending", tmp_path / "checkpoints", source, sink, **NEVER)
    p.autoscale = Autoscale(most=4, pause=0, window=0.1)
    master = job_in_threads(p)
    handle = JobHandle(master, Watched(p.name, master, 30.0))
    master.start()
    eventually(lambda: handle.records_out == 10)
    assert master.autoscaler is not None
    with failpoints.hold("coordinator.before_metadata", timeout=PATIENCE) as held:
        stop = Watched(p.name, master, 30.0)
        stop.stop(lambda _: None)
        held.wait(PATIENCE)
        eventually(lambda: "the job is to end" in master.autoscaler.status["state"])
        with pytest.raises(PipelineError, match="the job is to end"):
            master.rescale_by_itself({"count": 2}, lambda _: None)
    handle.wait(PATIENCE)
    assert (handle.status, handle.rescales) == ("finished", [])
