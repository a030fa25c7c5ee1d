"""Throughput of a job beside a bare consume → produce loop, in one run on one machine."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from pipeline.bench.errors import BenchFailed
from pipeline.bench.helpers import Helper
from pipeline.bench.input import RECORD_BYTES, USERS, records
from pipeline.bench.jobs import TITLES, Alignment, Job, JobKind
from pipeline.bench.report import Figure, figure
from pipeline.bench.throughput_job import Measured
from pipeline.bench.topics import topics
from pipeline.bench.watch import Part
from pipeline.broker.topics import Follower, publish
from sinks.kafka.clients import Delivery

PARTITIONS: Final = 4


@dataclass(frozen=True)
class Loop:
    """The bare loop, one process. Rates are records/s."""

    rate: float
    cpu_s_per_million: float


@dataclass(frozen=True)
class JobRun:
    """The job under one guarantee."""

    delivery: Delivery
    rate: float
    """From the moment that all subtasks run until the last output is visible."""
    ratio: float
    """Of `rate` to the bare loop."""
    steady_rate: float | None
    """What the sources read, from the first completed checkpoint until all is read; `None` if that was too short."""
    whole_rate: float
    """From the start, Spark's included, until the last output is visible."""
    whole_s: float
    """How long that was."""
    cpu_s_per_million: float
    """CPU time of all the job's processes, driver and JVM included, from the same moment on; without the broker."""
    first_output_s: float
    """From the start, Spark's included, until a `read_committed` reader could have had something."""
    pss_peak: int
    """Bytes of memory of all the job's processes, driver and JVM included, at the worst time; shared pages count once.
    """
    pss_parts: dict[Part, int]
    """What of it driver, JVM, subtasks and others had."""
    checkpoints: int
    checkpoint_p50_s: float | None
    checkpoint_p95_s: float | None


@dataclass(frozen=True)
class Throughput:
    job: JobKind
    records: int
    record_bytes: int
    users: int
    partitions: int
    parallelism: int
    interval_s: float
    alignment: Alignment
    bare_loop: Loop
    jobs: list[JobRun]

    def settings(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in ("bare_loop", "jobs")}

    def figures(self) -> list[Figure | None]:
        loop = self.bare_loop
        found = [
            figure("bare loop", loop.rate, "records/s", "higher"),
            figure("bare loop, CPU", loop.cpu_s_per_million, "s for a million", "lower"),
        ]
        for job in self.jobs:
            name = job.delivery.replace("_", " ")
            found += [
                figure(name, job.rate, "records/s", "higher"),
                figure(f"{name}, ratio to the bare loop", job.ratio, "", "higher"),
                figure(f"{name}, steady", job.steady_rate, "records/s", "higher"),
                figure(f"{name}, whole run", job.whole_rate, "records/s", "higher"),
                figure(f"{name}, CPU", job.cpu_s_per_million, "s for a million", "lower"),
                figure(f"{name}, first output", job.first_output_s, "s", "lower"),
                figure(f"{name}, memory", job.pss_peak, "bytes", "lower"),
                figure(f"{name}, checkpoint p50", job.checkpoint_p50_s, "s", "lower"),
                figure(f"{name}, checkpoint p95", job.checkpoint_p95_s, "s", "lower"),
            ]
        return found

    def fields(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name in ("bare_loop", "jobs")}


@dataclass(frozen=True)
class ThroughputOptions:
    job: JobKind = "sum"
    records: int = 1_000_000
    parallelism: int = 2
    interval: float = 1.0
    """Seconds between checkpoints."""
    alignment: Alignment = "unaligned"
    deliveries: tuple[Delivery, ...] = ("exactly_once", "at_least_once")
    loops: int = 2
    """Runs of the bare loop, of which the median counts."""


def measure(servers: str, options: ThroughputOptions, say: Callable[[str], None]) -> Throughput:
    """
    Raises:
        BenchFailed: a run did not end well, or its output is not complete.
        TopicTrouble: the broker doesn't do what is needed.
    """
    o, name = options, f"weir-bench-{uuid.uuid4().hex[:8]}"
    source = f"{name}-in"
    targets = {delivery: f"{name}-{delivery.replace('_', '-')}" for delivery in o.deliveries}
    bare = f"{name}-bare"
    with topics(servers, dict.fromkeys([source, bare, *targets.values()], PARTITIONS)):
        say(f"publishing {o.records:,} records of {RECORD_BYTES} bytes")
        publish(servers, source, records(o.records))
        loops = []
        for _ in range(o.loops):
            loops.append(_bare_loop(servers, source, bare, o.records))
            say(f"bare loop: {loops[-1].rate:,.0f} records/s")
        loop = Loop(
            statistics.median(one.rate for one in loops), statistics.median(one.cpu_s_per_million for one in loops)
        )
        jobs = []
        for delivery, target in targets.items():
            say(f"{TITLES[o.job]}, {delivery}: starting")
            jobs.append(_job(f"{name}-{delivery}", servers, source, target, delivery, o, loop.rate))
            say(f"{TITLES[o.job]}, {delivery}: {jobs[-1].rate:,.0f} records/s")
    return Throughput(
        job=o.job,
        records=o.records,
        record_bytes=RECORD_BYTES,
        users=USERS,
        partitions=PARTITIONS,
        parallelism=o.parallelism,
        interval_s=o.interval,
        alignment=o.alignment,
        bare_loop=loop,
        jobs=jobs,
    )


def _bare_loop(servers: str, source: str, target: str, count: int) -> Loop:
    # A process of its own, as it would be: nothing of Weir's or Spark's in it.
    command = [sys.executable, "-m", "pipeline.bench.bare_loop", servers, source, target, str(count)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchFailed(f"the bare loop failed:\n{done.stderr}")
    result = json.loads(done.stdout)
    return Loop(count / result["seconds"], 1e6 * result["cpu_seconds"] / count)


def _job(
    name: str, servers: str, source: str, target: str, delivery: Delivery, o: ThroughputOptions, bare_rate: float
) -> JobRun:
    job = Job(o.job, o.parallelism, o.interval, delivery, o.alignment)
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        arguments = (servers, source, target, folder, name, json.dumps(asdict(job)))
        with Helper("pipeline.bench.throughput_job", *arguments) as helper:
            found = Measured(**helper.line())
    seen = _count(servers, target, job)
    if seen != o.records:
        raise BenchFailed(f"what came out stands for {seen} records, and there were {o.records}")
    rate = o.records / (found.last_output_s - found.running_s)
    return JobRun(
        delivery=delivery,
        rate=rate,
        ratio=rate / bare_rate,
        steady_rate=found.steady_rate,
        whole_rate=o.records / found.last_output_s,
        whole_s=found.last_output_s,
        cpu_s_per_million=1e6 * found.cpu_s / o.records,
        first_output_s=found.first_output_s,
        pss_peak=found.pss_peak,
        pss_parts=found.pss_parts,
        checkpoints=found.checkpoints,
        checkpoint_p50_s=found.checkpoint_p50_s,
        checkpoint_p95_s=found.checkpoint_p95_s,
    )


def _count(servers: str, topic: str, job: Job) -> int:
    """How many records of the input those of the output stand for."""
    with Follower(servers, topic) as follower:
        return sum(job.inputs_of(one.value()) for batch in follower.to_end() for one in batch)
