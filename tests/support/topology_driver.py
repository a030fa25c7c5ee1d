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

from topology import Schedule, Shape, SlowSink, build

from pipeline.testing import failpoints


def parts(folder: Path, checkpoints: int) -> tuple[Schedule, SlowSink]:
    """The schedule and the sink of the job in this folder; in every process the same."""
    for name in ("schedule", "sink"):
        (folder / name).mkdir(exist_ok=True)
    return Schedule(folder / "schedule", checkpoints, failures=0), SlowSink(0.001, folder / "sink")


def start(
    folder: Path, name: str, shape: Shape, *, checkpoints: int, crash: str | None = None, nth: int = 1, **options: Any
) -> subprocess.Popen[str]:
    """Start a driver that runs the job to its end.

    Args:
        checkpoints: how many have to complete before the sources end.
        crash: the failpoint that the driver is killed at.
        options: of the job's `CheckpointConfig`.
    """
    arguments = {
        "folder": str(folder),
        "name": name,
        "shape": shape,
        "checkpoints": checkpoints,
        "crash": crash,
        "nth": nth,
        "options": options,
    }
    return subprocess.Popen(
        [sys.executable, __file__, json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        stdout=subprocess.PIPE,
        text=True,
    )


def end(driver: subprocess.Popen[str], timeout: float = 150.0) -> dict[str, Any]:
    """Wait for the driver's end and return what it says of its job; nothing if it was killed."""
    try:
        out, _ = driver.communicate(timeout=timeout)
    finally:
        if driver.poll() is None:
            driver.kill()
    result: dict[str, Any] = json.loads(out.splitlines()[-1]) if out else {}
    return result


def main(arguments: dict[str, Any]) -> None:
    folder = Path(arguments["folder"])
    schedule, sink = parts(folder, arguments["checkpoints"])
    if arguments["crash"] is not None:
        failpoints.crash(arguments["crash"], nth=arguments["nth"], directory=folder / "failpoint")
    options = arguments["options"]
    handle = build(arguments["name"], folder / "checkpoints", sink, schedule, 2, arguments["shape"], **options).run()
    print(json.dumps({"status": handle.status, "restarts": handle.restarts}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
