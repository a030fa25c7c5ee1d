"""The daemon that is started beside the JVM takes the place of the one that Spark starts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from deadlines import PATIENCE, eventually
from pyspark.serializers import read_int

from pipeline.runtime.driver.spark.daemon_process import MODULE, DaemonProcess, _new_folder, daemons, start_daemon
from pyspark_weir.daemon import VARIABLE


class Spark:
    """Starts a daemon as Spark does, and asks it for workers."""

    def __init__(self, path: Path, folder: Path) -> None:
        env = {**os.environ, VARIABLE: str(path), "PYTHON_WORKER_FACTORY_SECRET": "s", "MARK": "of Spark"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", MODULE, "pyspark.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            cwd=folder,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.port = read_int(self.process.stdout)

    def worker(self) -> psutil.Process:
        """The connection stays open for as long as the test lasts."""
        self._socket = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        return psutil.Process(read_int(self._socket.makefile("rb")))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE)


def lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonProcess]:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    made = DaemonProcess()
    yield made
    made.end()


def test_workers_are_forked_from_it_in_sparks_folder_and_end_with_spark(daemon: DaemonProcess, tmp_path: Path) -> None:
    spark = Spark(daemon.path, tmp_path)
    worker = spark.worker()
    assert worker.ppid() == daemon.pid
    assert worker.cwd() == str(tmp_path)
    assert worker.pid in [one.pid for one in daemons()]
    assert not daemon.path.parent.exists()
    assert spark.process.poll() is None, "as long as the daemon lives, so does what Spark takes for it"
    both = (worker, psutil.Process(daemon.pid))
    spark.close()
    eventually(lambda: not any(map(lives, both)))


def test_without_it_what_spark_starts_is_the_daemon(daemon: DaemonProcess, tmp_path: Path) -> None:
    daemon.end()
    assert not daemon.path.parent.exists()
    spark = Spark(daemon.path, tmp_path)
    assert spark.worker().ppid() == spark.process.pid
    spark.close()


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "from pipeline.runtime.driver.spark.daemon_process import DaemonProcess as D; d = D(); print(d.pid, d.path)"
    )
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    out = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True).stdout
    pid, path = out.split()
    eventually(lambda: not psutil.pid_exists(int(pid)) and not Path(path).parent.exists())


@pytest.mark.parametrize("variable", ["PYSPARK_PYTHON", "SPARK_HOME"])
def test_there_is_none_where_workers_may_run_other_code(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv(variable, "/elsewhere")
    assert start_daemon() is None


@pytest.mark.parametrize("length", [1, 60, 150])
def test_a_long_path_of_temporary_files_keeps_no_job_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    temporary = tmp_path / ("x" * length)
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    folder = _new_folder()
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(folder / "socket"))
        (folder / "socket").unlink()
        assert list(temporary.iterdir()) == ([folder] if folder.parent == temporary else [])
    finally:
        folder.rmdir()
