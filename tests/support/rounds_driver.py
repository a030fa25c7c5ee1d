"""A driver in a process of its own that runs one job again and again, each time with the settings that it is told, for
tests that kill its workers and itself in rounds: `RoundsDriver`.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from deadlines import PATIENCE, eventually
from topology import KEYS, MAGIC, Record, Schedule, SlowSink, build

from pipeline import JobFailed, JobHandle, RestartStrategy
from pipeline.runtime.driver.spark.spark_job import local_context

PARTITIONS = 3
SLOTS = 16
_MARK = "WEIR_TEST_ROUNDS"


@dataclass
class UntilTold(Schedule):
    """The sources end once `stop` was called."""

    checkpoints: int = 0
    failures: int = 0

    def done(self) -> bool:
        return (self.folder / "stop").exists()

    def stop(self) -> None:
        (self.folder / "stop").touch()

    def note_complete(self, id: int) -> None:
        """Not of interest; there would be thousands of files."""


@dataclass
class Settings:
    """What one start of the job is given."""

    number: int
    """Which start it is; put into every record that its sinks write."""
    parallelism: int
    alignment: str | float
    max_concurrent: int
    interval: float
    restarts: int
    """How many failures the driver gets over by itself, before it ends the job and it has to be started again."""
    incremental: bool


@dataclass
class Status:
    """What a driver says of its job."""

    number: int = -1
    """Number of its newest start."""
    restarts: int = 0
    running: bool = False
    """All subtasks run with their state restored."""
    pids: dict[str, int] = field(default_factory=dict)
    """Process ids of the current attempt, once it is deployed."""
    ended: str | None = None
    failure: str | None = None


def schedule_of(folder: Path) -> UntilTold:
    (folder / "schedule").mkdir(exist_ok=True)
    return UntilTold(folder / "schedule")


def sink_of(folder: Path, number: int = -1) -> SlowSink:
    return SlowSink(0.001, folder / "sink", number)


class RoundsDriver:
    """The driver's process, from the outside."""

    def __init__(self, folder: Path, name: str, script: str = __file__, *arguments: str):
        """Started as `python <script> <folder> <name> <arguments>`; one that `watch`es its jobs into the folder."""
        self.folder, self.name = folder, name
        (folder / "status.json").unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, script, str(folder), name, *arguments],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), _MARK: name},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )

    def run(self, settings: Settings) -> None:
        """Start the job, which must not run; returns at once."""
        self.tell(asdict(settings))

    def tell(self, message: Any) -> None:
        """Hand the driver a line, which is JSON."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def status(self) -> Status:
        assert self._process.poll() is None, f"the driver ended with {self._process.returncode}"
        path = self.folder / "status.json"
        return Status(**json.loads(path.read_text())) if path.exists() else Status()

    def kill(self) -> None:
        self._process.kill()
        self.end()

    def end(self) -> None:
        """Wait for its end; it ends by itself when it is told nothing more."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)


def await_none_left(name: str) -> None:
    """Until all that drivers of this name have started has ended by itself."""
    eventually(lambda: not any(_mark(process) == name for process in psutil.process_iter()))


def _mark(process: psutil.Process) -> str | None:
    try:
        mark: str | None = process.environ().get(_MARK)
        return mark
    except (psutil.Error, OSError):
        return None  # it has ended, or is another user's


def first_anomaly(outputs: Iterable[Record]) -> str | None:
    """The first record that isn't the next one of its key, in the order of the commits. Also before the job's end."""
    step = math.lcm(PARTITIONS, KEYS)
    seen: Counter[str] = Counter()
    for record in outputs:
        id, key = record["id"], record["key"]
        first = next(i for i in range(id % KEYS, step, KEYS) if i % PARTITIONS == record["partition"])
        number, wanted = seen[key] + 1, first + seen[key] * step
        if record["magic"] != MAGIC or id != wanted or record["number"] != number:
            return f"record {number} of key {key} should have id {wanted}, and this came: {record}"
        seen[key] = number
    return None


# -- in the driver's process ----------------------------------------------------------------------------------------


def main(folder: Path, name: str) -> None:
    schedule, spark = schedule_of(folder), local_context(SLOTS, name)
    for line in sys.stdin:
        told = Settings(**json.loads(line))
        restart = RestartStrategy.none()
        if told.restarts:
            restart = RestartStrategy.fixed_delay(attempts=told.restarts, delay=0.05)
        handle = build(
            name,
            folder / "checkpoints",
            sink_of(folder, told.number),
            schedule,
            told.parallelism,
            partitions=PARTITIONS,
            whole_keys=True,
            restart=restart,
            alignment=told.alignment,
            max_concurrent=told.max_concurrent,
            interval=told.interval,
            incremental=told.incremental,
        ).start(spark=spark)
        watcher = threading.Thread(target=watch, args=(handle, told.number, folder / "status.json"))
        watcher.start()
        try:
            handle.wait()
        except JobFailed:
            pass  # the status says so
        watcher.join()
    spark.stop()


def watch(handle: JobHandle, number: int, path: Path) -> None:
    """Keep the status file up to date until the job has ended."""
    poll, before = threading.Event(), None
    while True:
        ended = handle.status if handle.status in ("finished", "failed", "cancelled") else None
        # An attempt's processes come after the count of restarts, and its statistics are new with it.
        restarts, running, pids = handle.restarts, handle.running_since is not None, handle.processes()
        if restarts == handle.restarts and handle.status != "restarting":
            now = Status(number, restarts, running, pids, ended, handle.failure)
            if now != before:
                write(path, asdict(now))
                before = now
            if ended is not None:
                return
        poll.wait(0.01)


def write(path: Path, value: Any) -> None:
    """Whole or not at all."""
    staged = path.with_suffix(".staged")
    staged.write_text(json.dumps(value))
    staged.rename(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
