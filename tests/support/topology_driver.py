"""A driver in a process of its own that runs one of the topologies, for tests that kill drivers: `start`.

What it leaves lies in one folder, so that the next driver goes on from there and the test can read the output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
from topology import Schedule, Shape, SlowSink, build

from pipeline import JobFailed
from pipeline.testing import failpoints

_MARK = "WEIR_TEST_DRIVER"
"""Inherited by whatever a driver starts."""


def parts(folder: Path, checkpoints: int, label: str = "") -> tuple[Schedule, SlowSink]:
    """The schedule and the sink of the job in this folder; in every process the same but for the label."""
    for name in ("schedule", "sink"):
        (folder / name).mkdir(exist_ok=True)
    return Schedule(folder / "schedule", checkpoints, failures=0), SlowSink(0.001, folder / "sink", label)


def start(
    folder: Path,
    name: str,
    shape: Shape,
    *,
    checkpoints: int,
    parallelism: int = 2,
    label: str = "",
    crash: str | None = None,
    nth: int = 1,
    take_over: bool = False,
    **options: Any,
) -> subprocess.Popen[str]:
    """Start a driver that runs the job to its end.

    Args:
        checkpoints: how many have to complete before the sources end.
        label: of this driver; among all that the job has it must be the only one, if `family` is asked for it.
        crash: the failpoint that the driver is killed at.
        take_over: from a driver that lives.
        options: of the job's `CheckpointConfig`.
    """
    arguments = {
        "folder": str(folder),
        "name": name,
        "shape": shape,
        "checkpoints": checkpoints,
        "parallelism": parallelism,
        "label": label,
        "crash": crash,
        "nth": nth,
        "take_over": take_over,
        "options": options,
    }
    return subprocess.Popen(
        [sys.executable, __file__, json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), _MARK: f"{name} {label}"},
        stdout=subprocess.PIPE,
        text=True,
    )


def end(driver: subprocess.Popen[str], timeout: float = 300.0) -> dict[str, Any]:
    """Wait for the driver's end and return what it says of its job; nothing if it was killed."""
    try:
        out, _ = driver.communicate(timeout=timeout)
    finally:
        if driver.poll() is None:
            driver.kill()
    result: dict[str, Any] = json.loads(out.splitlines()[-1]) if out else {}
    return result


def family(name: str, label: str) -> list[psutil.Process]:
    """The driver with this label and all that it has started, its JVM and workers, whether or not it still lives."""
    return [process for process in psutil.process_iter() if _mark(process) == f"{name} {label}"]


def _mark(process: psutil.Process) -> str | None:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        mark: str | None = process.environ().get(_MARK)
        return mark
    except (psutil.Error, OSError):
        return None  # it has ended, or is another user's


def main(arguments: dict[str, Any]) -> None:
    folder = Path(arguments["folder"])
    schedule, sink = parts(folder, arguments["checkpoints"], arguments["label"])
    if arguments["crash"] is not None:
        failpoints.crash(arguments["crash"], nth=arguments["nth"], directory=folder / "failpoint")
    name, parallelism, shape = arguments["name"], arguments["parallelism"], arguments["shape"]
    job = build(name, folder / "checkpoints", sink, schedule, parallelism, shape, **arguments["options"])
    handle = job.start(take_over=arguments["take_over"])
    try:
        handle.wait()
    except JobFailed:
        pass  # told below
    print(json.dumps({"status": handle.status, "restarts": handle.restarts, "failure": handle.failure}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
