"""Kill-and-restore rounds (`make stress`): in each one a worker, or the driver, of one long-lived job is killed at a
random moment, and the job is restored, often with another parallelism and alignment.

WEIR_STRESS_SEED repeats the choices of a run (not the timing of processes); WEIR_STRESS_ROUNDS sets its length.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from deadlines import PATIENCE
from rounds_driver import RoundsDriver, Settings, Status, await_none_left, first_anomaly, schedule_of, sink_of
from topology import EXACT, validate

SEED = int(os.environ.get("WEIR_STRESS_SEED", random.SystemRandom().randrange(2**32)))
ROUNDS = int(os.environ.get("WEIR_STRESS_ROUNDS", 200))
VALIDATE_EVERY = 20
"""Seconds that a start or restart may take."""
LEAST_RECORDS = 20
"""A round."""


class Rounds:
    """One job, its current driver and its current start."""

    def __init__(self, folder: Path, name: str):
        self.folder, self.name = folder, name
        self.driver: RoundsDriver | None = None
        self.starts = 0
        self.kills = 0
        """How many workers were killed since the newest start."""
        self.settings: Settings | None = None
        """Settings of the newest start, while the job runs."""

    def ensure_running(self, rng: random.Random) -> None:
        """Start a driver and the job, unless they run."""
        if self.driver is None:
            self.driver = RoundsDriver(self.folder, self.name)
        if self.settings is None:
            self.settings = Settings(
                number=self.starts,
                parallelism=rng.choice([1, 2, 3]),
                alignment=rng.choice(["unaligned", "unaligned", "aligned", 0.001, 0.05]),
                max_concurrent=rng.choice([1, 3]),
                interval=rng.choice([0.05, 0.1, 0.2]),
                restarts=rng.choice([0, 0, 1, 3]),
                incremental=rng.choice([True, True, False]),
            )
            self.driver.run(self.settings)
            self.starts += 1
            self.kills = 0

    def status(self) -> Status:
        assert self.driver is not None
        return self.driver.status()

    def await_attempt(self, running: bool) -> Status:
        """Until the attempt behind the last kill is deployed, or all of it runs."""
        assert self.settings is not None
        deadline = time.monotonic() + PATIENCE
        while True:
            status = self.status()
            if status.number == self.settings.number:
                assert status.ended is None, f"the job ended: {status}"
                assert status.restarts <= self.kills, f"it failed without a kill: {status}"
                if status.restarts == self.kills and status.pids and (status.running or not running):
                    return status
            assert time.monotonic() < deadline, f"not {'running' if running else 'deployed'}: {status}"
            time.sleep(0.005)

    def kill_worker(self, rng: random.Random) -> str:
        """Returns whose."""
        pids = self.status().pids
        victim = rng.choice(sorted(pids))
        os.kill(pids[victim], signal.SIGKILL)
        self.kills += 1
        assert self.settings is not None
        if self.kills > self.settings.restarts:
            self._await_failed()
        return victim

    def _await_failed(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while (status := self.status()).ended is None:
            assert time.monotonic() < deadline, f"a worker was killed, and the job does not end: {status}"
            time.sleep(0.005)
        assert status.ended == "failed", status
        assert status.restarts == self.kills - 1, f"it failed without a kill: {status}"
        self.settings = None

    def kill_driver(self) -> None:
        assert self.driver is not None
        self.driver.kill()
        self.driver, self.settings = None, None

    def finish(self, rng: random.Random) -> None:
        """Let the sources end, and the job with them."""
        schedule_of(self.folder).stop()
        self.ensure_running(rng)
        deadline = time.monotonic() + PATIENCE
        while (status := self.status()).number != self.starts - 1 or status.ended is None:
            assert time.monotonic() < deadline, f"the job does not end: {status}"
            time.sleep(0.05)
        assert (status.ended, status.restarts) == ("finished", self.kills), status

    def close(self) -> None:
        if self.driver is not None:
            self.driver.kill()
        await_none_left(self.name)


def play(rounds: Rounds, number: int) -> str:
    """One round. Returns what was done, in words."""
    rng = random.Random(f"{SEED} {number}")
    rounds.ensure_running(rng)
    how, restores = rounds.settings, rng.random() < 0.25
    moment = rng.uniform(0, 0.4 if restores else 1.5)
    if rng.random() < 0.2:
        victim, early = "the driver", rng.random() < 0.25
        if early:  # it starts Spark, claims the job, restores
            moment = rng.uniform(0, 5)
        else:
            rounds.await_attempt(running=not restores)
        time.sleep(moment)
        rounds.kill_driver()
        since = "it started" if early else "the deployment" if restores else "all ran"
    else:
        rounds.await_attempt(running=not restores)
        time.sleep(moment)
        victim = rounds.kill_worker(rng)
        since = "the deployment" if restores else "all ran"
    return f"{victim} killed {moment:.3f} s after {since}, {how}"


@pytest.mark.stress
@pytest.mark.timeout(14_400)
def test_rounds_of_killing_and_restoring_leave_the_output_exact(
    tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    print(f"WEIR_STRESS_SEED={SEED} WEIR_STRESS_ROUNDS={ROUNDS}")
    rounds, sink = Rounds(tmp_path, unique_name("job")), sink_of(tmp_path)
    number = 0
    try:
        for number in range(ROUNDS):
            print(f"round {number}: {play(rounds, number)}", flush=True)
            if (number + 1) % VALIDATE_EVERY == 0:
                anomaly = first_anomaly(sink.records)
                assert anomaly is None, f"seen after round {number}: {anomaly}"
        rounds.finish(random.Random(f"{SEED} end"))
        records = sink.records
        assert first_anomaly(records) is None
        assert validate(records, schedule_of(tmp_path).emitted()) == EXACT
        assert len(records) >= LEAST_RECORDS * ROUNDS
    except BaseException:
        print(f"round {number} of WEIR_STRESS_SEED={SEED} WEIR_STRESS_ROUNDS={ROUNDS} failed")
        raise
    finally:
        rounds.close()
