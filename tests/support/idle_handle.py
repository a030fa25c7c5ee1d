"""A handle of a job that is made and not started: tests say how it is doing."""

from __future__ import annotations

import time
from typing import Any

from checkpoint.checkpoint_kind import CheckpointKind
from pipeline import JobHandle, KeyedOperator, Pipeline
from pipeline.runtime.driver.job_master import JobMaster
from pipeline.runtime.driver.signals import Watched
from pipeline.testing import TestingSink, TestingSource

IDLE: dict[str, Any] = {
    "recordsIn": 0,
    "recordsOut": 0,
    "recordsInPerSecond": 0.0,
    "recordsOutPerSecond": 0.0,
    "bytesIn": 0,
    "bytesOut": 0,
    "inFlightBytes": 0,
    "busyMsPerSecond": 0.0,
    "idleMsPerSecond": 1000.0,
    "backPressuredMsPerSecond": 0.0,
    "sourceGateClosedMsPerSecond": 0.0,
    "sourceGateClosedMs": 0.0,
    "waitingMs": 0.0,
    "heldMs": 0.0,
    "gcMs": 0.0,
    "waits": [],
}
"""What a subtask reports that does nothing."""


class Same(KeyedOperator):
    def process(self, value: Any, ctx: Any) -> Any:
        yield value


def idle_handle(
    name: str = "orders", parallelism: int = 2, kind: type[JobHandle] = JobHandle, max_parallelism: int = 128
) -> JobHandle:
    """Of in → totals → out, whose subtasks are `in[0]`, `totals → out[0]` and so on."""
    p = Pipeline(name, parallelism, max_parallelism=max_parallelism)
    keyed = p.source("in", TestingSource([]), parallelism=1).key_by("key").process("totals", Same())
    keyed.sink("out", TestingSink())
    options = p.options("latest", spark=None, claim=None, rewind=False, allow_unclaimed=False, ignore_in_flight=None)
    master = JobMaster(options)
    return kind(master, Watched(name, master, 30.0))


def run(handle: JobHandle, **subtasks: dict[str, Any]) -> None:
    """All its subtasks run, with these figures beside those of `IDLE`; the name of `totals → out[0]` is `totals_0`."""
    master, plan = handle._master, handle._master.options.plan
    names = [plan.subtask_name(i) for vertex in plan.vertices for i in vertex.subtasks]
    master.status = "running"
    now = master.progress.running_at = time.monotonic()
    master.progress.start.begin("checks", now - 1)
    master.progress.start.run(now)
    for name in names:
        key = name.replace(" → out", "").replace("[", "_").rstrip("]")
        master.progress.metrics[name] = {**IDLE, **subtasks.get(key, {})}


def completed(handle: JobHandle, id: int, **parts: dict[str, Any]) -> None:
    """A checkpoint that took two seconds, with these statistics of subtasks (`in_0`, as for `run`)."""
    plan, history = handle._master.options.plan, handle._master.history
    history.triggered(id, CheckpointKind.CHECKPOINT, 100.0, time.time() - 2)
    for name in (plan.subtask_name(i) for vertex in plan.vertices for i in vertex.subtasks):
        key = name.replace(" → out", "").replace("[", "_").rstrip("]")
        history.acknowledged(id, name, {"start_delay": 0.1, "size": 100, "written": 100, **parts.get(key, {})}, 101.5)
    history.completed(id, 102.0)
