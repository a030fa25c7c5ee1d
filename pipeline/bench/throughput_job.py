"""A job of `weir bench throughput`, in a process of its own, so that its start and its memory are a job's and no more.

`python -m pipeline.bench.throughput_job SERVERS SOURCE TARGET FOLDER NAME JOB` prints what it measured as JSON; JOB is
JSON, too.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final

from pipeline.bench.errors import BenchFailed
from pipeline.bench.jobs import Job
from pipeline.bench.percentiles import percentile
from pipeline.bench.reading import Reading
from pipeline.bench.watch import Part, Watch, ran_from

_WEIGH_S: Final = 2.0
"""Between two looks at memory, for which the system goes through all pages."""


@dataclass(frozen=True)
class Measured:
    """Times are seconds from the start, Spark's included."""

    running_s: float
    """Until all subtasks ran."""
    first_output_s: float
    last_output_s: float
    steady_rate: float | None
    cpu_s: float
    """Of all processes since they ran."""
    pss_peak: int
    pss_parts: dict[Part, int]
    checkpoints: int
    checkpoint_p50_s: float | None
    checkpoint_p95_s: float | None


def main(arguments: list[str]) -> None:
    servers, source, target, folder, name, job = arguments
    reading = Reading()
    with Watch(servers, target, _WEIGH_S) as watch:
        began = time.monotonic()
        handle = Job(**json.loads(job)).pipeline(name, servers, source, target, folder).start(restore="none")
        try:
            watch.until_ended(handle, lambda: reading.look(handle, time.monotonic()))
        finally:
            handle.cancel()
    try:
        running = ran_from(handle)
    except BenchFailed as error:
        raise SystemExit(str(error)) from error
    took = [row.duration for row in handle.checkpoints() if row.status == "completed" and row.duration is not None]
    measured = Measured(
        running_s=running - began,
        first_output_s=watch.first_change - began,
        last_output_s=watch.last_change - began,
        steady_rate=reading.steady,
        cpu_s=watch.meter.seconds,
        pss_peak=watch.pss_peak,
        pss_parts=watch.pss_parts,
        checkpoints=len(took),
        checkpoint_p50_s=percentile(took, 0.5),
        checkpoint_p95_s=percentile(took, 0.95),
    )
    print(json.dumps(asdict(measured)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
