"""SIGTERM to a job, Kafka to Kafka, at random moments of its start, its run and its checkpoints.

Each run ends with status 0 and all that it has read is visible; the next one reads what comes behind. WEIR_STRESS_SEED
repeats the moments, WEIR_STRESS_ROUNDS sets how many there are.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

import kafka_driver
import pytest
from deadlines import eventually
from kafka_job import EXACT, Stage, count_open

SEED = int(os.environ.get("WEIR_STRESS_SEED", random.SystemRandom().randrange(2**32)))
TERMINATIONS = int(os.environ.get("WEIR_STRESS_ROUNDS", 50))
LATEST = 7.0
"""Seconds after the start of the process."""


def terminate(stage: Stage, after: float) -> int:
    """Run the job and end it; returns how many records it has read."""
    options = {"interval": 0.3, "timeout": 60.0}
    driver = kafka_driver.start(stage, source={"end": None, "rate_limit": 200}, pipeline=options)
    time.sleep(after)
    driver.send_signal(signal.SIGTERM)
    if driver.wait(300) in (-signal.SIGTERM, 128 + signal.SIGTERM):
        assert driver.communicate()[0] == ""  # there was no job yet
        return 0
    told = kafka_driver.end(driver)
    assert driver.returncode == 0
    assert (told["status"], told["restarts"]) == ("finished", 0)
    return int(told["records_in"])


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_a_job_that_is_terminated_at_any_moment_leaves_nothing_to_do_again(make_stage: Callable[..., Stage]) -> None:
    print(f"WEIR_STRESS_SEED={SEED}")
    rng = random.Random(SEED)
    stage = make_stage(400)
    read = 0
    moments = []
    for _ in range(TERMINATIONS):
        moments.append(rng.uniform(0.0, LATEST))
        now = terminate(stage, moments[-1])
        read += now
        print(f"SIGTERM after {moments[-1]:.3f} s: {now} records")
        # The broker has the commit when it answers, and shows the records a moment later.
        eventually(lambda: count_open(stage.broker, stage.out_topic) == 0)
        ids = [record["id"] for record in stage.outputs()]
        assert len(set(ids)) == len(ids) == read
        stage.produce(2 * now)
    last = kafka_driver.end(kafka_driver.start(stage))
    assert last["status"] == "finished"
    assert read + last["records_in"] == len(stage.inputs)
    assert read > 0
    assert stage.findings() == EXACT
