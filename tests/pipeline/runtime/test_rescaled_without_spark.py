"""A job that is rescaled while it runs: its output is exact, whatever fails meanwhile."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from small_job import NEVER, assert_exact, records, small_job
from threads_for_processes import job_in_threads

from pipeline import JobHandle, PipelineError, RestartStrategy
from pipeline.runtime.driver.signals import Watched
from pipeline.testing import TestingSink, TestingSource, failpoints


def handle_of(p: Any) -> JobHandle:
    master = job_in_threads(p)
    return JobHandle(master, Watched(p.name, master, 30.0))


def await_visible(handle: JobHandle, sink: TestingSink, n: int) -> None:
    """With checkpoints that are asked for, so that none is under way behind it, nor a commit."""

    def visible() -> int:
        handle.checkpoint(timeout=PATIENCE)
        return len(sink.records)

    eventually(lambda: handle.running_since is not None)
    eventually(lambda: visible() == n)
    eventually(lambda: handle.checkpoints()[-1].commit is not None)


def widths(handle: JobHandle) -> dict[str, int]:
    names = [name.rpartition("[")[0] for name in handle.processes()]
    return {name: names.count(name) for name in names}


def test_a_job_is_rescaled_and_goes_on_as_it_was_if_that_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pause = TestingSource.PAUSE()
    source = TestingSource([*records(0, 30), pause, *records(30, 60), pause], directory=tmp_path / "source")
    sink = TestingSink(tmp_path / "sink")
    options = {**NEVER, "tolerable_failures": 1, "max_parallelism": 8}
    p = small_job("rescaled", tmp_path / "checkpoints", source, sink, **options)
    handle = handle_of(p)
    with pytest.raises(TimeoutError, match="the job still runs after 0 s: created, 0 records in, 0 out"):
        handle.wait(0)
    with pytest.raises(PipelineError, match="the job is starting, and only one that runs can be rescaled"):
        handle.rescale(2)
    handle._master.start()
    await_visible(handle, sink, 30)
    with pytest.raises(PipelineError, match="parallelism 9 is above the pipeline's max_parallelism 8"):
        handle.rescale(9)

    (done,) = handle.rescale(3, timeout=PATIENCE)
    assert done.what == "in, count, out 1 → 3"
    assert widths(handle) == {"in": 3, "count → out": 3}
    assert (handle.status, handle.restarts, handle.recoveries()) == ("running", 0, [])
    source.release()
    await_visible(handle, sink, 60)

    with failpoints.fail("coordinator.before_metadata") as point:
        with pytest.raises(RuntimeError, match=r"the job was not rescaled, and keeps its parallelism: (.|\n)*injected"):
            handle.rescale(1, timeout=PATIENCE)
        assert point.fired
    assert (widths(handle), len(handle.rescales)) == ({"in": 3, "count → out": 3}, 1)
    source.release()
    handle.wait(PATIENCE)
    assert (handle.status, handle.restarts) == ("finished", 0)
    assert_exact(sink, records(0, 60))


@pytest.mark.parametrize("encrypt", [False, True])
def test_a_failure_behind_the_checkpoint_is_followed_by_an_attempt_at_the_new_parallelism(
    tmp_path: Path, encrypt: bool
) -> None:
    source = TestingSource([*records(0, 30), TestingSource.PAUSE(), *records(30, 60)], directory=tmp_path / "source")
    sink = TestingSink(tmp_path / "sink")
    restart = RestartStrategy.fixed_delay(attempts=1, delay=0)
    p = small_job("rescaled", tmp_path / "checkpoints", source, sink, restart=restart, encrypt=encrypt, **NEVER)
    handle = handle_of(p)
    handle._master.start()
    await_visible(handle, sink, 30)
    with failpoints.fail("committer.before_commit") as point:
        assert handle.rescale(2, "count", timeout=PATIENCE)[-1].what == "count, out 1 → 2"
        assert point.fired
    assert (widths(handle), handle.restarts) == ({"in": 1, "count → out": 2}, 1)
    source.release()
    handle.wait(PATIENCE)
    assert_exact(sink, records(0, 60))
