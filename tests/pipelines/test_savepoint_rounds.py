"""Rounds of savepoints, stops, cancels and restores (`make stress`), with workers killed in between, at another
parallelism and alignment each time.

WEIR_STRESS_SEED repeats the choices of a run (not the timing of processes); WEIR_STRESS_ROUNDS sets its length.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from rounds_driver import PARTITIONS, first_anomaly, schedule_of, sink_of
from topology import EXACT, build, validate

from checkpoint.storage.storage import CheckpointStorage
from pipeline import JobFailed, JobHandle, Pipeline, RestartStrategy

SEED = int(os.environ.get("WEIR_STRESS_SEED", random.SystemRandom().randrange(2**32)))
ROUNDS = int(os.environ.get("WEIR_STRESS_ROUNDS", 40))


class Rounds:
    def __init__(self, folder: Path, name: str, rng: random.Random) -> None:
        self.folder, self.name, self.rng = folder, name, rng
        self.schedule = schedule_of(folder)
        (folder / "sink").mkdir()
        self.sink = sink_of(folder, 0)
        self.restore = "latest"
        self._savepoints = 0

    def job(self) -> Pipeline:
        rng = self.rng
        restarts = rng.choice([0, 5])
        return build(
            self.name,
            self.folder / "checkpoints",
            self.sink,
            self.schedule,
            rng.choice([1, 2, 3]),
            partitions=PARTITIONS,
            whole_keys=True,
            restart=RestartStrategy.fixed_delay(restarts, 0.05) if restarts else RestartStrategy.none(),
            alignment=rng.choice(["unaligned", "unaligned", "aligned", 0.05]),
            max_concurrent=rng.choice([1, 3]),
            interval=rng.choice([0.05, 0.1, 0.3]),
        )

    def where(self) -> Path:
        self._savepoints += 1
        return self.folder / f"savepoint-{self._savepoints}"

    def play(self, spark: Any) -> str:
        """One start of the job, to its end; what was done, in words."""
        rng = self.rng
        handle = self.job().start(restore=self.restore, spark=spark)
        self.restore = "latest"
        done: list[str] = []
        try:
            eventually(lambda: handle.running_since is not None or handle.status == "failed")
            if rng.random() < 0.5:  # else while what was restored still drains
                time.sleep(rng.uniform(0.0, 0.8))
            if rng.random() < 0.4:
                self._kill_soon(handle, 0.15)
                done.append("kill")
            for step in (self._savepoint, rng.choice([self._stop, self._stop_and_move, self._cancel_behind_savepoint])):
                done.append(step.__name__.strip("_"))
                if rng.random() < 0.2:
                    self._kill_soon(handle, 0.3)
                try:
                    step(handle)
                except (RuntimeError, JobFailed) as error:  # a worker was killed at that moment
                    done.append(f"failed: {error}"[:80])
        finally:
            handle.cancel()
        return ", ".join(done)

    def _savepoint(self, handle: JobHandle) -> None:
        handle.savepoint(self.where(), PATIENCE)

    def _stop(self, handle: JobHandle) -> None:
        handle.stop(self.where() if self.rng.random() < 0.7 else None, timeout=PATIENCE)

    def _stop_and_move(self, handle: JobHandle) -> None:
        where = self.where()
        handle.stop(where, timeout=PATIENCE)
        self.restore = str(where.rename(f"{where}-moved"))

    def _cancel_behind_savepoint(self, handle: JobHandle) -> None:
        """The savepoint is restored if nothing behind it is committed."""
        where = handle.savepoint(self.where(), PATIENCE)
        handle.cancel()
        taken = CheckpointStorage(where, None).load_savepoint().id
        rows = handle.checkpoints()
        newest = max((row.id for row in rows if row.status == "completed" and row.kind != "savepoint"), default=0)
        if newest < taken:
            self.restore = where

    def _kill_soon(self, handle: JobHandle, most: float) -> None:
        pids = list(handle.processes().values())
        if pids:
            pid = self.rng.choice(pids)
            threading.Timer(self.rng.uniform(0.0, most), _kill, [pid]).start()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has left meanwhile


@pytest.mark.stress
@pytest.mark.timeout(7200)
def test_savepoints_stops_and_restores_at_random_moments_leave_the_output_exact(
    tmp_path: Path, unique_name: Callable[[str], str], spark: Any
) -> None:
    print(f"WEIR_STRESS_SEED={SEED}")
    rounds = Rounds(tmp_path, unique_name("rounds"), random.Random(SEED))
    for number in range(ROUNDS):
        what = rounds.play(spark)
        print(f"round {number}: {what}")
        assert first_anomaly(rounds.sink.records) is None, f"round {number} of WEIR_STRESS_SEED={SEED}: {what}"
    rounds.schedule.stop()
    rounds.job().run(restore=rounds.restore, spark=spark, timeout=PATIENCE)
    assert validate(rounds.sink.records, rounds.schedule.emitted()) == EXACT, f"WEIR_STRESS_SEED={SEED}"
