"""One point of `weir bench growth`, in a process of its own, so that memory and starts are those of one job.

`python -m pipeline.bench.growth_point SERVERS SOURCE TARGET FOLDER INTERVAL SHAPE` prints what it measured as JSON;
SHAPE is JSON, too.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from checkpoint.config import CheckpointConfig
from pipeline.bench.errors import BenchFailed
from pipeline.bench.growth_axes import Shape
from pipeline.bench.jobs import RunningSum
from pipeline.bench.percentiles import percentile
from pipeline.bench.watch import Watch, ran_from
from pipeline.job import Pipeline
from sinks import KafkaSink
from sources import KafkaSource

_WEIGH_S: Final = 1.0


class Summed(RunningSum):
    """A running sum that hands the rest of the record on, so that the record stays as large."""

    def process(self, record: dict[str, Any], ctx: Any) -> Iterator[dict[str, Any]]:
        for result in super().process(record, ctx):
            yield {**result, "pad": record["pad"]}


def handed_on(record: dict[str, Any]) -> dict[str, Any]:
    return record


def _pipeline(servers: str, source: str, target: str, folder: str, interval: float, shape: Shape) -> Pipeline:
    p = Pipeline(target, shape.parallelism, checkpoints=CheckpointConfig(folder, interval=interval))
    stream = p.source("records", KafkaSource(servers, topics=[source], end="latest", value_format="json"))
    for number in range(shape.steps):
        stream = stream.map(handed_on, id=f"step-{number}")
    stream.key_by("user").process("sums", Summed()).sink("out", KafkaSink(servers, topic=target, key="user"))
    return p


def main(arguments: list[str]) -> None:
    servers, source, target, folder, interval, shape_json = arguments
    shape = Shape(**json.loads(shape_json))
    with Watch(servers, target, _WEIGH_S) as watch:
        began = time.monotonic()
        handle = _pipeline(servers, source, target, folder, float(interval), shape).start(restore="none")
        watch.until_ended(handle)
    try:
        running = ran_from(handle)
    except BenchFailed as error:
        raise SystemExit(str(error)) from error
    took = [row.duration for row in handle.checkpoints() if row.status == "completed" and row.duration is not None]
    result = {
        "start_s": running - began,
        "checkpoint_s": percentile(took, 0.5),
        "memory": watch.pss_peak,
        "second_a_record": (watch.last_change - running) / shape.records,
        "cpu_a_record": watch.meter.seconds / shape.records,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
