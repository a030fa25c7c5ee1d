"""A standalone Spark cluster out of the pip package: a master and workers, each with folders of its own; on loopback,
unless they are put on hosts of their own (see `hosts`)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

from pipeline.broker.java import java_path
from pipeline.class_archive import class_archive

LOOPBACK = "127.0.0.1"

_HOME = Path(pyspark.__file__).parent
_ARCHIVE = class_archive("spark", java_path(), _HOME / "jars", may_make=False)
JVM_OPTIONS = " ".join(("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_ARCHIVE.options))
"""Of daemons, executors and drivers: quick to start."""
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_START_TIMEOUT = 90.0
_STOP_TIMEOUT = 20.0
_POLL = 0.05
_TAIL = 25


class Daemon:
    """A master or worker process. Its log is what tells that it is ready."""

    def __init__(
        self,
        name: str,
        folder: Path,
        arguments: Sequence[str],
        env: Mapping[str, str],
        prefix: Sequence[str],
        host: str,
    ):
        self.name = name
        self.folder = folder
        folder.mkdir(parents=True)
        self.log = folder / "log"
        options = f"{JVM_OPTIONS} -Dspark.master.rest.enabled=false"
        environment = {
            **os.environ,
            "SPARK_HOME": str(_HOME),
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": options,
            "PYSPARK_PYTHON": sys.executable,
            **env,
        }
        with self.log.open("wb") as log:
            # spark-class ends in an exec, and so does every prefix: the pid is the JVM's.
            self._process = subprocess.Popen(
                [*prefix, str(_HOME / "bin" / "spark-class"), *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_line(self, pattern: str) -> re.Match[str]:
        """Wait until the log has a line that matches.

        Raises:
            RuntimeError: the process has ended, or says nothing of the kind in time; with the end of its log.
        """
        deadline = time.monotonic() + _START_TIMEOUT
        while True:
            ended = self._process.poll()
            if found := re.search(pattern, self.log.read_text(errors="replace")):
                return found
            if ended is not None or time.monotonic() >= deadline:
                what = f"ended with {ended}" if ended is not None else f"did not get ready in {_START_TIMEOUT:g} s"
                raise RuntimeError(f"{self.name} {what}; its log ends with\n{tail(self.log)}")
            time.sleep(_POLL)

    def executors(self) -> list[int]:
        """Process ids of the executors that it has started and that live."""
        try:
            children = psutil.Process(self.pid).children()
        except psutil.NoSuchProcess:
            return []
        return [child.pid for child in children if _EXECUTOR in _command(child)]

    def executor_log(self) -> str:
        """The end of the newest executor's log."""
        logs = sorted(self.folder.glob("work/*/*/stderr"), key=lambda path: path.stat().st_mtime)
        return tail(logs[-1]) if logs else "(no executor)"

    def kill(self) -> None:
        """SIGKILL; executors of a killed worker end by themselves, which is waited for."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, sign: signal.Signals) -> None:
        try:
            descendants = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            descendants = []
        if self._process.poll() is None:
            self._process.send_signal(sign)
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _, left = psutil.wait_procs(descendants, _STOP_TIMEOUT)
        for process in left:
            process.kill()
        psutil.wait_procs(left, _STOP_TIMEOUT)


class SparkCluster:
    """A master and workers; a context manager that stops all of them."""

    def __init__(
        self, folder: Path, workers: int = 2, cores: int = 4, host: str = LOOPBACK, prefix: Sequence[str] = ()
    ):
        """
        Args:
            workers: on loopback.
            cores: of each worker.
            host: address of the master, and of drivers.
            prefix: a command that executes the rest of its line there.
        """
        self.host, self.prefix = host, prefix
        self._folder = folder
        self._cores = cores
        self._count = 0
        self.workers: list[Daemon] = []
        self._master = Daemon(
            "the master",
            folder / "master",
            [_MASTER, "--host", host, "--port", "0", "--webui-port", "0"],
            {},
            prefix,
            host,
        )
        try:
            self.url = self._master.await_line(r"Starting Spark master at (spark://\S+)")[1]
            self._master.await_line(r"New state: ALIVE")
            started = [self._start_worker() for _ in range(workers)]
            for worker in started:
                worker.await_line(r"Successfully registered with master")
        except BaseException:
            self.stop()
            raise

    def add_worker(
        self, env: Mapping[str, str] | None = None, prefix: Sequence[str] = (), host: str = LOOPBACK
    ) -> Daemon:
        """Start one more and wait until the master knows it.

        Args:
            env: its executors and their Python workers inherit it.
            prefix: a command that executes the rest of its line.
            host: its address.
        """
        worker = self._start_worker(env or {}, prefix, host)
        worker.await_line(r"Successfully registered with master")
        return worker

    def remove_worker(self, worker: Daemon) -> None:
        worker.stop()
        self.workers.remove(worker)

    def _start_worker(
        self, env: Mapping[str, str] | None = None, prefix: Sequence[str] = (), host: str = LOOPBACK
    ) -> Daemon:
        self._count += 1
        folder = self._folder / f"worker-{self._count}"
        worker = Daemon(
            f"worker {self._count}",
            folder,
            [
                *(_WORKER, "--host", host, "--port", "0", "--webui-port", "0"),
                *("-c", str(self._cores), "-m", "640m", "-d", str(folder / "work"), self.url),
            ],
            env or {},
            prefix,
            host,
        )
        self.workers.append(worker)
        return worker

    def logs(self) -> str:
        """The end of every log, for a failed test."""
        parts = [f"--- {daemon.name}\n{tail(daemon.log)}" for daemon in (self._master, *self.workers)]
        parts += [f"--- executor of {worker.name}\n{worker.executor_log()}" for worker in self.workers]
        return "\n".join(parts)

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()
        self._master.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def tail(path: Path, lines: int = _TAIL) -> str:
    """The last lines of a file."""
    if not path.exists():
        return f"(no {path})"
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def executor_of(pid: int) -> int | None:
    """Process id of the executor that a Python worker belongs to."""
    for parent in psutil.Process(pid).parents():
        if _EXECUTOR in _command(parent):
            return int(parent.pid)
    return None


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
