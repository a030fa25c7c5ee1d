"""Jobs on a standalone Spark cluster: a master and two workers, each driver in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from cluster_driver import DAEMON, Driver, Session
from spark_cluster import SparkCluster
from topology import Shape

from pipeline import Pipeline
from pipeline.errors import JobFailed
from pipeline.testing.sink import TestingSink
from sources import SequenceSource

pytestmark = pytest.mark.slow

EXACT = {"lost": 0, "duplicated": 0, "corrupted": 0, "misnumbered": 0, "out_of_order": 0}
SLOTS = 8
LEAST_RECORDS = 100
REFUSED = pytest.mark.sample(1 / 5, together="refused")


def _assert_exact(job: dict[str, Any]) -> None:
    assert (job["status"], job["findings"]) == ("finished", EXACT), job
    assert job["records"] >= LEAST_RECORDS


def _assert_spark_retried_nothing(job: dict[str, Any], log: str) -> None:
    """Restarts are Weir's alone, once there are slots: what Spark starts again would belong to an attempt that is over,
    and for slots it looks every 15 s only."""
    assert "slots, but only" not in log, log
    attempts = job["spark_jobs"]
    assert len(attempts) == job["restarts"] + 1
    assert [each["stage_attempts"] for each in attempts] == [1] * len(attempts)
    assert [each["status"] for each in attempts] == ["FAILED"] * job["restarts"] + ["SUCCEEDED"]


def test_a_session_of_the_users_runs_job_after_job_over_both_workers_and_keeps_nothing_of_them(
    cluster: SparkCluster, tmp_path: Path
) -> None:
    session = Session(jobs=2, failures=2, inspect_workers=SLOTS)
    with Driver(cluster, tmp_path, session) as driver:
        executors = {executor for _, executor in driver.placement(job=1).values()}
        (result,) = driver.result()
    assert len(executors) == len(cluster.workers) == 2
    for job in result["jobs"]:
        _assert_exact(job)
        assert job["restarts"] == 2
    # The first job may leave what it imported; the second one nothing.
    fresh, after_first, after_second = result["workers"]
    pids, after_first, after_second = ({w["pid"] for w in fresh}, _by_pid(after_first), _by_pid(after_second))
    assert pids & after_first.keys() & after_second.keys(), "no Python worker was used again"
    for worker in (*after_first.values(), *after_second.values()):
        assert worker["threads"] == ["MainThread"]
        assert worker["switch_interval"] == fresh[0]["switch_interval"]
        assert worker["sockets"] == fresh[0]["sockets"]
    for pid in after_first.keys() & after_second.keys():
        assert after_second[pid] == after_first[pid]


def _by_pid(workers: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {worker["pid"]: worker for worker in workers}


@pytest.mark.parametrize(
    ("shape", "parallelism", "alignment", "victim"),
    [
        ("pipeline", 2, "unaligned", "count"),
        pytest.param("multi-input", 1, 0.05, "second", marks=pytest.mark.matrix),
        # All of them fit into the cluster's eight slots.
        *(
            pytest.param(*row, marks=pytest.mark.full)
            for row in (
                ("pipeline", 2, "aligned", "numbers"),
                ("pipeline", 2, 0.05, "out"),
                ("multi-input", 1, "unaligned", "join three"),
                ("multi-input", 1, "aligned", "join two"),
                ("union", 1, "unaligned", "count"),
                ("union", 1, "aligned", "third"),
                ("union", 1, 0.05, "out"),
                ("broadcast", 2, "unaligned", "announce"),
                ("broadcast", 2, "aligned", "elements"),
                ("broadcast", 2, 0.05, "numbers"),
            )
        ),
    ],
)
def test_a_killed_executor_leaves_the_output_exact(
    cluster: SparkCluster, tmp_path: Path, shape: Shape, parallelism: int, alignment: str | float, victim: str
) -> None:
    session = Session(
        shape, parallelism, checkpoints=12, conf=dict(DAEMON), checkpoint_options={"alignment": alignment}
    )
    with Driver(cluster, tmp_path, session) as driver:
        executor = next(executor for name, (_, executor) in driver.placement().items() if name.startswith(victim))
        os.kill(executor, signal.SIGKILL)
        job = driver.job()
    _assert_exact(job)
    assert job["restarts"] >= 1
    _assert_spark_retried_nothing(job, driver.log())
    recovery = job["recoveries"][0]
    times = [recovery[name] for name in ("failed_at", "ended_at", "submitted_at", "deployed_at", "running_at")]
    assert times == sorted(times)
    assert recovery["first_commit_at"] >= recovery["deployed_at"]


def test_a_worker_that_dies_and_comes_back_leaves_the_output_exact(cluster: SparkCluster, tmp_path: Path) -> None:
    with Driver(cluster, tmp_path, Session(parallelism=2, checkpoints=12, conf=dict(DAEMON))) as driver:
        _, executor = driver.placement()["count[0]"]
        (victim,) = [worker for worker in cluster.workers if executor in worker.executors()]
        victim.kill()
        cluster.remove_worker(victim)
        cluster.add_worker()
        job = driver.job()
    _assert_exact(job)
    assert job["restarts"] >= 1
    _assert_spark_retried_nothing(job, driver.log())


@pytest.fixture(scope="module")
def refused(cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What came of jobs in sessions that can't run them, by what is wrong. One driver runs one after the other."""
    folder = tmp_path_factory.mktemp("refused")
    sessions = {
        "too many subtasks": Session(parallelism=3),
        "too few cores asked for": Session(parallelism=2, conf={"spark.cores.max": "4"}),
        "dynamic allocation": Session(conf={"spark.dynamicAllocation.enabled": "true"}),
        "speculation": Session(conf={"spark.speculation": "true"}),
        "another Weir": Session(conf={"spark.executorEnv.PYTHONPATH": str(_other_weir(folder))}),
        "no Weir": Session(env={"PYSPARK_PYTHON": _python_without_weir(folder)}),
        "no Weir for the daemon": Session(conf=dict(DAEMON)),
    }
    if python := _other_python():
        sessions["another Python"] = Session(env={"PYSPARK_PYTHON": python})
    with Driver(cluster, folder, *sessions.values()) as driver:
        jobs = [session["jobs"][0] for session in driver.result()]
    for job in jobs:
        assert (job["status"], job["restarts"], job["records"]) == ("failed", 0, 0), job
    return dict(zip(sessions, jobs, strict=True))


def _other_weir(folder: Path) -> Path:
    """To be put first on a worker's path: there, Weir is of another version."""
    path = folder / "other"
    path.mkdir()
    (path / "sitecustomize.py").write_text(
        "import sys, types\n"
        "version = types.ModuleType('pipeline.version')\n"
        "version.VERSION = '9.9.9'\n"
        "sys.modules['pipeline.version'] = version\n"
    )
    return path


def _python_without_weir(folder: Path) -> str:
    venv.create(folder / "bare", with_pip=False)
    return str(folder / "bare" / "bin" / "python")


def _other_python() -> str | None:
    """A Python of another minor version on this machine, if there is one."""
    wanted = [f"python3.{minor}" for minor in range(10, 15) if minor != sys.version_info.minor]
    found = [path for name in wanted if (path := shutil.which(name))]
    found += [str(path) for name in wanted for path in Path.home().glob(f".pyenv/versions/*/bin/{name}")]
    for python in found:  # what is on the path may be a shim that runs nothing
        if subprocess.run([python, "-c", "import ctypes, ssl"], capture_output=True, check=False).returncode == 0:
            return python
    return None


@REFUSED
def test_too_few_slots_are_refused_with_both_numbers(refused: dict[str, dict[str, Any]]) -> None:
    job = refused["too many subtasks"]
    assert "NotEnoughSlots: the job needs 12 slots" in job["failure"]
    assert "has 8;" in job["failure"]
    job = refused["too few cores asked for"]
    assert "NotEnoughSlots: the job needs 8 slots" in job["failure"]
    assert "has 4 (spark.cores.max);" in job["failure"]


@REFUSED
def test_settings_that_no_job_can_run_with_are_refused_with_the_reason(refused: dict[str, dict[str, Any]]) -> None:
    assert "spark.dynamicAllocation.enabled is on" in refused["dynamic allocation"]["failure"]
    assert "spark.speculation is on" in refused["speculation"]["failure"]


@REFUSED
def test_a_worker_with_another_weir_is_refused_by_name_and_version(refused: dict[str, dict[str, Any]]) -> None:
    failure = refused["another Weir"]["failure"]
    assert "has Weir 9.9.9" in failure
    assert "install the same Weir on all hosts" in failure


@REFUSED
def test_a_worker_without_weir_says_what_to_install(refused: dict[str, dict[str, Any]]) -> None:
    failure = refused["no Weir"]["failure"]
    assert re.search("Weir can't be imported by .*/bare/bin/python", failure)
    assert "install weir-streams" in failure
    assert "PYSPARK_PYTHON" in failure
    assert len(failure.splitlines()) == 1
    failure = refused["no Weir for the daemon"]["failure"]
    assert "No module named 'pipeline'" in failure
    assert "install weir-streams" in failure
    assert "PYSPARK_PYTHON" in failure


@REFUSED
def test_a_worker_with_another_python_is_refused_by_version(refused: dict[str, dict[str, Any]]) -> None:
    if "another Python" not in refused:
        pytest.skip("this machine has no Python of another minor version")
    assert f"that in driver: {sys.version_info.major}.{sys.version_info.minor}" in refused["another Python"]["failure"]


@pytest.mark.sample(1)
def test_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    pipeline = Pipeline("connect")
    pipeline.source("numbers", SequenceSource(3)).sink("out", TestingSink())
    with pytest.raises(JobFailed, match="Spark Connect can't run barrier jobs"):
        pipeline.run()


def test_a_checkpoint_folder_that_a_worker_does_not_see_is_refused(
    cluster: SparkCluster, tmp_path: Path, folder: Path
) -> None:
    # A worker to which the folder is another one: what a host without the shared disk would have in its place.
    hide = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs tmpfs "{folder}" && exec "$@"', "sh"]
    trial = subprocess.run([*hide, "true"], capture_output=True, text=True, check=False)
    if trial.returncode:
        pytest.skip(f"no mount namespaces here: {trial.stderr.strip()}")
    worker = cluster.add_worker(prefix=hide)
    try:
        session = Session(parallelism=3, conf=dict(DAEMON), checkpoint_folder=str(folder))
        with Driver(cluster, tmp_path, session) as driver:
            job = driver.job()
    finally:
        cluster.remove_worker(worker)
    assert (job["status"], job["restarts"]) == ("failed", 0)
    assert os.uname().nodename in job["failure"]
    assert str(folder) in job["failure"]
    assert "use a folder that all hosts share" in job["failure"]
