"""A job that tells how its start goes, in a process of its own.

`python -m pipeline.bench.start_job SERVERS SOURCE TARGET FOLDER INTERVAL PARALLELISM NAME SESSION` prints a line of
JSON once the job runs, and one with its phases once there is output, and goes on until it is killed. With SESSION
`running` it makes a Spark session first, prints a line, and waits for one.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Final

from pipeline.bench.jobs import Job
from pipeline.runtime.driver.start.start_phases import OUTPUT_PHASES

_LONGEST_S: Final = 60.0
"""That its output is waited for, beyond the interval."""


def main(arguments: list[str]) -> None:
    servers, source, target, folder, interval, parallelism, name, session = arguments
    job = Job("sum", int(parallelism), float(interval), "exactly_once", ends=False)
    if session == "running":
        from pyspark.sql import SparkSession

        SparkSession.builder.master(f"local[{2 * int(parallelism)}]").getOrCreate()
        print(json.dumps({"session": True}), flush=True)
        sys.stdin.readline()
    began = time.monotonic()
    handle = job.pipeline(name, servers, source, target, folder).start()
    while (running := handle.running_since) is None:
        if handle.status == "failed":
            raise SystemExit(handle.failure)
        time.sleep(0.01)
    print(json.dumps({"began": began, "running": running}), flush=True)
    until = running + float(interval) + _LONGEST_S
    while OUTPUT_PHASES[-1] not in handle.start_phases and time.monotonic() < until:
        time.sleep(0.01)
    print(json.dumps({"phases": handle.start_phases}), flush=True)
    handle.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
