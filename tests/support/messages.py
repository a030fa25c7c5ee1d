"""One message of each kind between driver and subtasks."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination import coordinator_events
from checkpoint.gate import gate_events
from checkpoint.storage.metadata import OperatorSnapshot, SubtaskSnapshot
from pipeline.runtime import protocol
from pipeline.runtime.deployment import Deployment, Restored
from pipeline.runtime.liveness import LIMITS
from pipeline.runtime.point_query import Found, PointQuery
from pipeline.runtime.versions import versions

EXAMPLES: dict[type[Any], Any] = {
    protocol.Job: protocol.Job(versions=versions(), first_attempt=True, limits=LIMITS, spec=b"pickled"),
    protocol.Deploy: protocol.Deploy(
        Deployment(
            subtask=1,
            peers={0: ("a", 80), 1: ("b", 81)},
            lineage=("L2", ("L1", 7)),
            restored_checkpoint=7,
            restored_from=("file:///weir", None),
            rewind=False,
            ignore_earlier_output=False,
            fork=False,
            allow_unclaimed=False,
            replay=True,
            same_topology=False,
            restore=Restored(),
        )
    ),
    protocol.Trigger: protocol.Trigger(7, CheckpointKind.SAVEPOINT, protocol.BarrierOptions("file:///sp", True)),
    protocol.BarrierPassed: protocol.BarrierPassed(gate_events.BarrierPassed(7, 0.5, 100.0, 0.0)),
    protocol.Completed: protocol.Completed(7, CheckpointKind.FINAL, True),
    protocol.Aborted: protocol.Aborted(7),
    protocol.Heartbeat: protocol.Heartbeat(
        coordinator_events.Heartbeat(((7, CheckpointKind.CHECKPOINT),), 1.0, None, ((7, 0.5, 100.0, 0.0),)),
        {7: protocol.BarrierOptions(stop=True)},
    ),
    protocol.ReleaseEpoch: protocol.ReleaseEpoch("out", 6),
    protocol.ReleaseNew: protocol.ReleaseNew("out"),
    protocol.Query: protocol.Query(5, PointQuery("totals", b"\xa3ann", 7, "seen", b"\x01")),
    protocol.Cancel: protocol.Cancel(job_over=True),
    protocol.Hello: protocol.Hello(
        versions=versions(), partition=0, host="a", pid=5, address=("a", 80), folder="a:/tmp", copies=((7, 1, "in-0"),)
    ),
    protocol.PhaseEntered: protocol.PhaseEntered("is closing"),
    protocol.Running: protocol.Running(7, {"out": (6, 7)}),
    protocol.SnapshotTaken: protocol.SnapshotTaken(7, 100, True),
    protocol.Acknowledged: protocol.Acknowledged(7, SubtaskSnapshot({"out": OperatorSnapshot({"n": 1})}), {"bytes": 5}),
    protocol.Declined: protocol.Declined(7, "no", False),
    protocol.CheckpointAsked: protocol.CheckpointAsked(6),
    protocol.Committed: protocol.Committed("out", 7, True),
    protocol.RestoredEpochCommitted: protocol.RestoredEpochCommitted("out", 6),
    protocol.Metrics: protocol.Metrics({"recordsIn": 5}),
    protocol.QueryAnswered: protocol.QueryAnswered(5, Found({"total": b"\x01"}, {"event": (5, 7)})),
    protocol.Failed: protocol.Failed(
        kind=protocol.FailureKind.DAMAGED, message="no", traceback="", where="in partition 0", step=None
    ),
    protocol.Closed: protocol.Closed({"recordsIn": 5}),
}


def example_of(cls: type[Any]) -> Any:
    return EXAMPLES[cls] if fields(cls) else cls()
