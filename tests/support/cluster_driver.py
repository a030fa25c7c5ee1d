"""`Driver`: a process with a Spark session of its own on a cluster, since PySpark allows one a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from spark_cluster import JVM_OPTIONS, SparkCluster, tail
from topology import Shape

_SCRIPT = Path(__file__).with_name("jobs") / "standalone.py"
_TIMEOUT = 280.0
_STOP_TIMEOUT = 20.0
_POLL = 0.05

LEAN: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JVM_OPTIONS,
    "spark.driver.extraJavaOptions": JVM_OPTIONS,
}
"""What a session on a small cluster needs; nothing that changes how jobs run."""
DAEMON: Mapping[str, str] = {"spark.python.daemon.module": "pipeline.runtime.spark_daemon"}
"""What Weir recommends: Python workers that are up at once."""


@dataclass
class Session:
    """One Spark session and the topology's jobs in it."""

    shape: Shape = "pipeline"
    parallelism: int = 1
    """A `pipeline` has four times as many subtasks."""
    jobs: int = 1
    checkpoints: int = 6
    """How many each job takes before it ends."""
    failures: int = 0
    """How many of the topology's scheduled failures of user code come before."""
    conf: dict[str, str] = field(default_factory=dict)
    timeout: float = 150.0
    """Seconds that each job may take."""
    checkpoint_folder: str | None = None
    checkpoint_options: dict[str, Any] = field(default_factory=dict)
    """More options of the jobs' `CheckpointConfig`."""
    env: dict[str, str] = field(default_factory=dict)
    """The driver's variables, from this session on."""
    inspect_workers: int = 0
    """Look into so many Python workers, all at once, before and after each job."""


class Driver:
    """Runs `sessions` in a process of its own; a context manager that ends it."""

    def __init__(self, cluster: SparkCluster, folder: Path, *sessions: Session):
        self._cluster = cluster
        self._folder = folder / "driver"
        self._folder.mkdir()
        self._log = self._folder / "log"
        at = {"spark.driver.host": cluster.host, "spark.driver.bindAddress": cluster.host}
        request = {
            "name": f"cluster-{folder.name}",
            "master": cluster.url,
            "folder": str(self._folder),
            "sessions": [{**asdict(session), "conf": {**LEAN, **at, **session.conf}} for session in sessions],
        }
        path = self._folder / "request.json"
        path.write_text(json.dumps(request))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*cluster.prefix, sys.executable, str(_SCRIPT), str(path)],
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": cluster.host},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def placement(self, session: int = 0, job: int = 0, attempt: int = 0) -> dict[str, tuple[int, int]]:
        """Process ids of each subtask and of its executor by name, once the attempt has taken a few checkpoints."""
        read = self._await(f"session-{session}/job-{job}/placement-{attempt}.json")
        return {name: (pid, executor) for name, (pid, executor) in read.items()}

    def completed(self) -> int:
        """How many checkpoints the first job has completed so far."""
        return len(list((self._folder / "session-0" / "job-0" / "schedule").glob("complete-*")))

    def result(self) -> list[dict[str, Any]]:
        """What came of each session."""
        found: list[dict[str, Any]] = self._await("result.json")
        return found

    def job(self) -> dict[str, Any]:
        """What came of the only job."""
        (session,) = self.result()
        (job,) = session["jobs"]
        return {**job, "spark_jobs": session["spark_jobs"]}

    def log(self) -> str:
        """All that it and its JVM have said so far."""
        return self._log.read_text(errors="replace")

    def _await(self, name: str) -> Any:
        deadline = time.monotonic() + _TIMEOUT
        path = self._folder / name
        while not path.exists():
            ended = self._process.poll()
            if (ended is not None and not path.exists()) or time.monotonic() >= deadline:
                what = "still runs" if ended is None else f"ended with {ended}"
                raise AssertionError(
                    f"no {name}; the driver {what}; its log ends with\n{tail(self._log, 60)}\n{self._cluster.logs()}"
                )
            time.sleep(_POLL)
        return json.loads(path.read_text())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._process.wait(_STOP_TIMEOUT if error is None else 0.1)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its JVM ends with it: its standard input is closed
            self._process.wait()
