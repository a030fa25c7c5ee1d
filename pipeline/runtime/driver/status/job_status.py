"""How a job is doing, as data: what `weir status` prints and the web server gives."""

from __future__ import annotations

import os
import socket
import time
from collections import defaultdict
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

from pipeline.diagnosis import Sentence, diagnose
from pipeline.runtime.driver.scaling.advice import advice_of
from pipeline.runtime.driver.status.checkpoint_stats import CheckpointStats
from pipeline.runtime.driver.status.event_time_status import event_time_of
from pipeline.runtime.driver.status.gate_status import gates_of
from pipeline.runtime.driver.status.hot_key_status import hot_keys_of

if TYPE_CHECKING:
    from pipeline.handle import JobHandle

_SUMMED: Final = (
    "recordsIn",
    "recordsOut",
    "recordsInPerSecond",
    "recordsOutPerSecond",
    "inFlightBytes",
    "sourceGateClosedMs",
    "recordsFailed",
)
_LARGEST: Final = ("busyMsPerSecond", "backPressuredMsPerSecond", "pendingCommits")
_CAUSES: Final = 20
"""Newest restarts whose causes a status has."""
_LOOKED_AT: Final = 10
"""Newest checkpoints among which a diagnosis finds what it is about."""
_SHOWN: Final = 10
"""Newest checkpoints in a status."""


def status_of(name: str, address: str | None, handle: JobHandle, metrics: dict[str, Any]) -> dict[str, Any]:
    """
    Args:
        address: where `weir status` and others ask it.
        metrics: what `handle.metrics()` has given.
    """
    since = handle.running_since
    running_for = None if since is None else time.monotonic() - since
    recoveries = handle.recoveries()
    return {
        "name": name,
        "address": address,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "status": handle.status,
        "started": handle._started,
        "attempt_started": handle._master.progress.began,
        "uptime": time.time() - handle._started,
        "running_for": running_for,
        "restarts": handle.restarts,
        "encrypted": handle._master.options.encrypt,
        "otel": None if handle._otel is None else asdict(handle._otel.sending),
        "rescaling": handle._master.rescaling,
        "rescales": [asdict(one) for one in handle.rescales],
        "autoscale": None if (autoscaler := handle._master.autoscaler) is None else autoscaler.status,
        "failure": handle.failure,
        "failed_step": handle._master.failed_step,
        "start": handle.start_phases,
        "checkpoints": [row_of(row) for row in handle.checkpoints()[-_SHOWN:]],
        "checkpoints_completed": handle._master.history.completed_count,
        "checkpoints_failed": handle._master.history.failed_count,
        "recoveries": [one.phases for one in recoveries],
        "restart_causes": [{"at": one.restarted, "cause": one.cause} for one in recoveries[-_CAUSES:]],
        **figures_of(metrics),
        "advice": [one.text for one in advice_of(metrics["subtasks"], running_for)],
    }


def graph_of(handle: JobHandle) -> dict[str, Any]:
    """Its vertices and edges. A job that is rescaled has others then."""
    plan = handle._master.options.plan
    return {
        "vertices": [
            {
                "name": vertex.name,
                "parallelism": vertex.parallelism,
                "is_source": vertex.is_source,
                "subtasks": [vertex.subtask_name(i) for i in vertex.subtasks],
                "steps": [{"id": step.id, "kind": step.kind.name.lower()} for step in vertex.steps],
            }
            for vertex in plan.vertices
        ],
        "edges": [
            {
                "upstream": plan.vertices[edge.upstream].name,
                "downstream": plan.vertices[edge.downstream].name,
                "upstream_step": edge.upstream_step,
                "downstream_step": edge.downstream_step,
                "distribution": edge.partitioner.distribution.name.lower(),
                "side_output": edge.tag,
            }
            for edge in plan.edges
        ],
    }


def diagnosis_of(handle: JobHandle, status: dict[str, Any]) -> list[Sentence]:
    """
    Args:
        status: the job's, with `graph` and `subtasks`.
    """
    rows = handle.checkpoints()[-_LOOKED_AT:]
    under_way = next((row for row in rows if row.status == "in_progress"), None)
    newest = next((row for row in reversed(rows) if row.status in ("completed", "failed")), None)
    return diagnose(
        status,
        None if under_way is None else with_subtasks(under_way),
        None if newest is None else with_subtasks(newest),
        time.time(),
    )


def row_of(row: CheckpointStats) -> dict[str, Any]:
    """A checkpoint without the parts of its subtasks."""
    return {one.name: getattr(row, one.name) for one in fields(row) if one.name != "subtasks"}


def with_subtasks(row: CheckpointStats) -> dict[str, Any]:
    """A checkpoint with the parts of its subtasks, as far as they are known."""
    return {**row_of(row), "subtasks": [asdict(one) for one in row.subtasks]}


def figures_of(metrics: dict[str, Any]) -> dict[str, Any]:
    """By vertex, in the current attempt; and what the job waits for.

    Args:
        metrics: as `JobHandle.metrics()` has them.
    """
    vertices: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, values in metrics["subtasks"].items():
        vertices[name.rpartition("[")[0]].append(values)
    return {
        "vertices": {name: vertex_of(subtasks) for name, subtasks in vertices.items()},
        "totals": metrics["totals"],
        "waits": metrics["waits"],
        "event_time": event_time_of(metrics["subtasks"]),
        "gates": gates_of(metrics["subtasks"]),
        "hot_keys": hot_keys_of(metrics["subtasks"]),
    }


def vertex_of(subtasks: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums over a vertex's subtasks; the busiest one's time, and the most commits that one has pending."""
    sums = {metric: sum(values.get(metric) or 0 for values in subtasks) for metric in _SUMMED}
    most = {metric: max((values.get(metric) or 0 for values in subtasks), default=0) for metric in _LARGEST}
    lags = [values["recordsLag"] for values in subtasks if "recordsLag" in values]
    # A sum without a subtask whose lag isn't known would look smaller than it is.
    lag = None if None in lags or not lags else sum(lags)
    failures = sorted({values["lastFailure"] for values in subtasks if values.get("lastFailure")})
    return {"subtasks": len(subtasks), **sums, **most, "recordsLag": lag, "lastFailures": failures}
