"""A whole job over real sockets, whose processes are threads: what driver and subtasks say to each other fits."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from attempt_parts import attempt_context
from deadlines import PATIENCE, eventually
from small_job import Count, records
from threads_for_processes import ThreadsForProcesses, job_in_threads

from checkpoint.checkpoint_kind import CheckpointKind
from pipeline import CheckpointConfig, Pipeline, RestartStrategy, RocksDb
from pipeline.runtime.driver.attempt import Attempt
from pipeline.runtime.driver.attempt_context import CheckpointRequest, Progress
from pipeline.runtime.driver.failures import AttemptFailed
from pipeline.runtime.packing import pack_plan
from pipeline.runtime.versions import versions
from pipeline.testing import TestingSink, TestingSource


def attempt(tmp_path: Path, p: Pipeline, **options: Any) -> tuple[Attempt, Progress]:
    context = attempt_context(p.plan(), str(tmp_path), **options)
    progress = Progress()
    packed = replace(context.spec, plan=pack_plan(context.plan))
    return Attempt(replace(context, spec=packed), progress, ThreadsForProcesses()), progress


def test_a_job_reads_checkpoints_commits_and_ends(tmp_path: Path) -> None:
    sink = TestingSink()
    p = Pipeline("job", parallelism=2)
    p.source("in", TestingSource(partitions=[range(100), range(100, 200)])).rebalance().sink("out", sink)
    job, progress = attempt(tmp_path, p, interval=0.1)
    job.run()
    assert sorted(sink.records) == list(range(200))
    assert sorted(progress.pids) == ["in[0]", "in[1]", "out[0]", "out[1]"]
    assert progress.committed >= 1
    assert sum(metrics["recordsOut"] for name, metrics in progress.metrics.items() if name.startswith("out")) == 200


def test_a_checkpoint_passes_a_step_that_lets_a_record_pass_now_and_then(tmp_path: Path) -> None:
    source, sink = TestingSource(range(50)), TestingSink()
    p = Pipeline("job", parallelism=1)
    p.source("in", source).rebalance().limit_rate(0.01, "slow").sink("out", sink)
    job, progress = attempt(tmp_path, p, interval=60.0)
    answers: list[int | Exception] = []
    took: list[float] = []

    def stop() -> None:
        eventually(lambda: "limit_rate" in str(progress.metrics.get("slow → out[0]", {}).get("waits")))
        began = time.monotonic()
        job.request_checkpoint(CheckpointRequest(CheckpointKind.FINAL, stop=True), answers.append)
        eventually(lambda: bool(answers))
        took.append(time.monotonic() - began)

    stopping = threading.Thread(target=stop)
    stopping.start()
    job.run()
    stopping.join()
    assert [type(one) for one in answers] == [int]
    assert sink.records == [0], "the others are in the checkpoint"
    assert took[0] < 50, "a record passes every 100 s"
    waits = progress.metrics["slow → out[0]"]["waits"]
    assert waits == [], "what has stopped waits for no rate"


@pytest.mark.parametrize("interval", [60.0, None])
def test_the_first_output_is_visible_long_before_the_interval_is_over(tmp_path: Path, interval: float | None) -> None:
    source, sink = TestingSource(range(50)), TestingSink()
    p = Pipeline("job", parallelism=1)
    p.source("in", source).rebalance().limit_rate(0.01, "slow").sink("out", sink)
    job, progress = attempt(tmp_path, p, interval=interval)
    seen: list[list[int]] = []

    def stop() -> None:
        eventually(lambda: (progress.metrics.get("slow → out[0]", {}).get("recordsToSinks") or 0) > 0)
        if interval is None:
            time.sleep(1.0)
        else:
            eventually(lambda: progress.first_commit_at is not None)
        seen.append(list(sink.records))
        job.cancel()

    stopping = threading.Thread(target=stop)
    stopping.start()
    with pytest.raises(AttemptFailed):
        job.run()
    stopping.join()
    assert seen == [[0]] if interval is not None else seen == [[]]
    assert ("commit" in progress.start.seconds()) == (interval is not None)


def test_a_step_keeps_its_state_in_rocksdb_whose_files_go_with_the_job(tmp_path: Path) -> None:
    source, sink = TestingSource(partitions=[records(0, 100), records(100, 200)]), TestingSink()
    local = tmp_path / "local"
    p = Pipeline("job", parallelism=2)
    backend = RocksDb(memory=32 << 20, folder=str(local))
    p.source("in", source).key_by("key").process("count", Count(), state_backend=backend).sink("out", sink)
    job, _ = attempt(tmp_path, p, interval=0.1)
    job.run()
    assert len(sink.records) == 200
    assert max(record["number"] for record in sink.records) == 67
    assert local.joinpath("weir-rocksdb").is_dir()
    assert list(local.glob("weir-rocksdb/*")) == []


def test_a_job_is_stopped_with_a_checkpoint_that_is_committed(tmp_path: Path) -> None:
    source, sink = TestingSource([*range(10), TestingSource.PAUSE(), 10]), TestingSink()
    p = Pipeline("job", parallelism=1)
    p.source("in", source).sink("out", sink)
    job, _ = attempt(tmp_path, p, interval=0.05)
    answers: list[int | Exception] = []

    def stop() -> None:
        eventually(lambda: sorted(sink.records) == list(range(10)))
        job.request_checkpoint(CheckpointRequest(CheckpointKind.FINAL, stop=True), answers.append)

    threading.Thread(target=stop).start()
    job.run()
    assert [type(one) for one in answers] == [int]
    assert sorted(sink.records) == list(range(10))


def test_what_a_users_function_raises_comes_to_the_driver(tmp_path: Path) -> None:
    def users_function(value: int) -> int:
        raise ValueError(f"no {value}s here")

    p = Pipeline("job", parallelism=1)
    p.source("in", TestingSource([7])).map(users_function, id="refuse").sink("out", TestingSink())
    job, progress = attempt(tmp_path, p)
    with pytest.raises(AttemptFailed, match="no 7s here") as caught:
        job.run()
    assert "in step 'refuse'" in str(caught.value)
    assert "users_function" in str(caught.value)
    assert progress.failed_at is not None


def test_a_process_of_another_version_says_so_before_it_reads_the_job(tmp_path: Path) -> None:
    p = Pipeline("job", parallelism=1)
    p.source("in", TestingSource([7])).sink("out", TestingSink())
    context = attempt_context(p.plan(), str(tmp_path))
    spec = replace(context.spec, versions={**versions(), "Weir": "99"})
    job = Attempt(replace(context, spec=spec), Progress(), ThreadsForProcesses())
    with pytest.raises(AttemptFailed, match="and the driver 99; install the same Weir on all hosts") as caught:
        job.run()
    assert caught.value.permanent


def test_a_job_that_fails_is_restarted_from_its_newest_checkpoint(tmp_path: Path) -> None:
    source, sink = TestingSource([*range(10), TestingSource.ABORT(), *range(10, 20)]), TestingSink()
    checkpoints = CheckpointConfig(str(tmp_path), interval=0.05)
    p = Pipeline("job", checkpoints=checkpoints, restart=RestartStrategy.fixed_delay(delay=0))
    p.source("in", source).rebalance().sink("out", sink)
    master = job_in_threads(p)
    master.start()
    assert master.ended.wait(PATIENCE)
    assert (master.status, master.failure, master.restarts) == ("finished", None, 1)
    assert sorted(sink.records) == list(range(20))
    (recovery,) = master.recoveries
    assert None not in recovery.phases.values()


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_restart_reads_the_files_of_an_incremental_checkpoint_from_their_local_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: Literal["heap", "rocksdb"]
) -> None:
    monkeypatch.setenv("WEIR_LOCAL_DIR", str(tmp_path / "local"))
    parts = [*records(0, 100), TestingSource.PAUSE(), TestingSource.ABORT(), *records(100, 200)]
    source, sink = TestingSource(parts), TestingSink()
    checkpoints = CheckpointConfig(
        str(tmp_path / "storage"), interval=0.05, incremental=True, local_recovery=True, state_backend=backend
    )
    p = Pipeline("job", checkpoints=checkpoints, restart=RestartStrategy.fixed_delay(delay=0))
    p.source("in", source).key_by("key").process("count", Count()).sink("out", sink)
    master = job_in_threads(p)
    master.start()
    source.wait_until_paused(PATIENCE)
    eventually(lambda: len(sink.records) == 100)
    # Without those that are being written.
    files = [path for path in (tmp_path / "storage").rglob("shared/*-state-*") if ".tmp-" not in path.name]
    assert files
    for file in files:  # the driver reads what they say about themselves, at their ends
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(data)
    source.release()
    assert master.ended.wait(PATIENCE)
    assert (master.status, master.failure, master.restarts) == ("finished", None, 1)
    assert sorted(record["id"] for record in sink.records) == list(range(200))
    assert max(record["number"] for record in sink.records) == 67
    assert [path for path in (tmp_path / "local").rglob("*") if path.is_file()] == []
