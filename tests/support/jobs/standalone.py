"""A driver of its own: runs topologies in Spark sessions with the settings that a JSON file names.

    python standalone.py REQUEST.json

Each session's jobs, one after another, leave what came of them in `result.json`; see `cluster_driver.Driver`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark import SparkConf
from pyspark.sql import SparkSession
from spark_cluster import executor_of
from topology import Schedule, SlowSink, build, validate

from pipeline.handle import JobHandle


def main(request: dict[str, Any]) -> None:
    folder = Path(request["folder"])
    results = [_session(folder / f"session-{i}", request, session) for i, session in enumerate(request["sessions"])]
    write(folder / "result.json", results)


def _session(folder: Path, request: dict[str, Any], session: dict[str, Any]) -> dict[str, Any]:
    conf = SparkConf().setMaster(request["master"]).setAppName(request["name"])
    for key, value in session["conf"].items():
        conf.set(key, value)
    os.environ.update(session["env"])
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    try:
        slots = session["inspect_workers"]
        workers = [_workers(spark, slots)] if slots else []
        jobs = []
        for number in range(session["jobs"]):
            jobs.append(_job(folder / f"job-{number}", spark, f"{request['name']}-{number}", session))
            if slots:
                workers.append(_workers(spark, slots))
        return {"jobs": jobs, "workers": workers, "spark_jobs": _spark_jobs(spark)}
    finally:
        spark.stop()


def _job(folder: Path, spark: SparkSession, name: str, session: dict[str, Any]) -> dict[str, Any]:
    marks = folder / "schedule"
    marks.mkdir(parents=True)
    schedule = Schedule(marks, session["checkpoints"], session["failures"])
    sink = SlowSink(0.001)
    checkpoints = Path(session["checkpoint_folder"] or folder / "checkpoints")
    options = {"interval": 0.2, **session["checkpoint_options"]}
    pipeline = build(name, checkpoints, sink, schedule, session["parallelism"], session["shape"], **options)
    started = time.monotonic()
    handle = pipeline.start(spark=spark)
    watcher = threading.Thread(target=_note_placement, args=(handle, schedule, folder), daemon=True)
    watcher.start()
    try:
        handle.wait(session["timeout"])
    except RuntimeError as error:
        print(f"{name}: {error}", file=sys.stderr)
    finally:
        handle.cancel()
    ended = handle.status in ("finished", "cancelled")
    return {
        "status": handle.status,
        "failure": handle.failure,
        "restarts": handle.restarts,
        "seconds": time.monotonic() - started,
        "recoveries": [asdict(recovery) for recovery in handle.recoveries()],
        "findings": asdict(validate(sink.records, schedule.emitted())) if ended else None,
        "records": len(sink.records),
        "metrics": handle.metrics()["subtasks"],
    }


def _note_placement(handle: JobHandle, schedule: Schedule, folder: Path) -> None:
    """Once an attempt has taken a few checkpoints: the process of each subtask, and that of its executor."""
    poll = threading.Event()
    attempt, before = 0, 0
    while handle.status in ("created", "running", "restarting"):
        if handle.restarts > attempt:
            attempt, before = handle.restarts, schedule.completed()
        path = folder / f"placement-{attempt}.json"
        if not path.exists() and schedule.completed() >= before + 2:
            write(path, {name: [pid, executor_of(pid)] for name, pid in handle.processes().items()})
        poll.wait(0.05)


def _workers(spark: SparkSession, slots: int) -> list[dict[str, Any]]:
    """What all Python workers of the session hold, found by a job of the user's own."""

    def look(_: Iterator[Any]) -> Iterator[dict[str, Any]]:
        import gc
        import threading

        gc.collect()
        fds = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)]
        yield {
            "pid": os.getpid(),
            "threads": [thread.name for thread in threading.enumerate()],
            "sockets": sum(fd.startswith("socket:") for fd in fds),
            "files": sorted(fd for fd in fds if not fd.startswith("socket:")),
            "switch_interval": sys.getswitchinterval(),
        }

    def _is_open(fd: str) -> bool:
        return os.path.lexists(f"/proc/self/fd/{fd}")

    rdd = spark.sparkContext.parallelize(range(slots), slots)
    rows: list[dict[str, Any]] = rdd.barrier().mapPartitions(look).collect()
    return rows


def _spark_jobs(spark: SparkSession) -> list[dict[str, Any]]:
    """Weir's attempts as Spark saw them, oldest first, and how often it tried each on its own."""
    java: Any = spark.sparkContext._jsc
    store = java.sc().statusStore()
    jobs = store.jobsList(None)
    found = []
    for i in range(jobs.size()):
        job = jobs.apply(i)
        description = job.description().get() if job.description().isDefined() else ""
        if description.startswith("Weir:"):
            attempts = 1 + store.lastStageAttempt(job.stageIds().apply(0)).attemptId()
            found.append({"id": job.jobId(), "status": job.status().toString(), "stage_attempts": attempts})
    return sorted(found, key=lambda each: each["id"])


def write(path: Path, value: Any) -> None:
    """As a whole or not at all: others wait for it."""
    staged = path.with_suffix(".staged")
    staged.write_text(json.dumps(value))
    staged.rename(path)


if __name__ == "__main__":
    logging.basicConfig(level="WARNING", format="%(asctime)s %(name)s: %(message)s")
    main(json.loads(Path(sys.argv[1]).read_text()))
