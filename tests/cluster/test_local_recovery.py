"""Executors that die and come back: their subtasks return to where their state was, and read it from there."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from cluster_driver import DAEMON, Driver, Session
from spark_cluster import Daemon, SparkCluster

pytestmark = pytest.mark.slow

EXACT = {"lost": 0, "duplicated": 0, "corrupted": 0, "misnumbered": 0, "out_of_order": 0}
STATEFUL = ("count[0]", "count[1]")


def _workers(cluster: SparkCluster, placement: dict[str, tuple[int, int]]) -> dict[str, Daemon]:
    """Daemons of the subtasks with state."""
    return {
        name: next(worker for worker in cluster.workers if placement[name][1] in worker.executors())
        for name in STATEFUL
    }


def test_subtasks_come_back_to_the_workers_that_hold_their_state(cluster: SparkCluster, tmp_path: Path) -> None:
    # Aligned, so that only the subtasks with state have files, and there is room for both at any worker.
    options = {"local_recovery": True, "inline_bytes": 0, "alignment": "aligned"}
    session = Session(parallelism=2, checkpoints=40, conf=dict(DAEMON), checkpoint_options=options)
    with Driver(cluster, tmp_path, session) as driver:
        placement = driver.placement()
        workers = _workers(cluster, placement)
        for attempt, victim in enumerate(STATEFUL, 1):
            for worker in set(workers.values()):
                assert list(worker.folder.glob("local/*/*/weir-local/*/chk-*")), (
                    "no copies where an executor's death leaves them"
                )
            os.kill(placement[victim][1], signal.SIGKILL)
            placement = driver.placement(attempt=attempt)
            assert _workers(cluster, placement) == workers
        job = driver.job()
    assert (job["status"], job["findings"]) == ("finished", EXACT), job
    assert job["restarts"] == 2
    for name in STATEFUL:
        metrics = job["metrics"][name]
        assert metrics["restoredLocalBytes"] == metrics["restoredBytes"] > 0
