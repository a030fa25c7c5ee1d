"""A driver in a process of its own, for tests that kill drivers: `python kafka_driver.py '{"name": …}'` (see `start`).

Its last line of output is a JSON object with the job's end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kafka_job import Stage, await_processed

from pipeline import JobFailed
from pipeline.testing import KafkaBroker, failpoints


def start(
    stage: Stage,
    *,
    source: dict[str, Any] | None = None,
    pipeline: dict[str, Any] | None = None,
    crash: str | None = None,
    nth: int = 1,
    stop: tuple[int, str] | None = None,
    **run: Any,
) -> subprocess.Popen[str]:
    """Start a driver that runs the stage's job.

    Args:
        source: options of the source.
        pipeline: further arguments of `Stage.pipeline`.
        crash: the failpoint to be killed at.
        stop: once so many records are processed, stop the job with a savepoint at this URI.
        run: arguments of `Pipeline.start`.
    """
    arguments = {
        "stage": [stage.name, stage.source_topic, stage.out_topic, str(stage.folder)],
        "source": source or {},
        "pipeline": pipeline or {},
        "stop": stop,
        "crash": crash,
        "nth": nth,
        "run": run,
    }
    return subprocess.Popen(
        [sys.executable, __file__, json.dumps(arguments)],
        env={**os.environ, "WEIR_KAFKA_BOOTSTRAP": stage.broker.bootstrap_servers},
        stdout=subprocess.PIPE,
        text=True,
    )


def end(driver: subprocess.Popen[str], timeout: float = 90.0) -> dict[str, Any]:
    """Wait for the driver's end and return what it says of its job."""
    try:
        out, _ = driver.communicate(timeout=timeout)
    finally:
        if driver.poll() is None:
            driver.kill()
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


def main(arguments: dict[str, Any]) -> None:
    name, source_topic, out_topic, folder = arguments["stage"]
    stage = Stage(KafkaBroker.start(kind="running"), name, source_topic, out_topic, Path(folder))
    if arguments["crash"] is not None:
        failpoints.crash(arguments["crash"], nth=arguments["nth"], directory=stage.folder.parent / "failpoint")
    pipeline = stage.pipeline(source=stage.source(**arguments["source"]), **arguments["pipeline"])
    handle = pipeline.start(**arguments["run"])
    try:
        if arguments["stop"] is not None:
            records, savepoint = arguments["stop"]
            await_processed(handle, records)
            handle.stop(savepoint)
        handle.wait()
    except JobFailed:
        pass  # told below
    counts = {"restarts": handle.restarts, "records_in": handle.records_in}
    print(json.dumps({"status": handle.status, "failure": handle.failure, **counts}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
