"""A slow service asked by a job on Spark: workers killed, another parallelism, and each result once."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deadlines import PATIENCE, eventually
from small_job import Count, assert_exact, records, running

from pipeline import CheckpointConfig, Pipeline, RestartStrategy
from pipeline.testing import FakeService, TestingSink, TestingSource

Name = Callable[[str], str]
RECORDS = 600
KEYS = 20


def test_each_record_is_asked_for_and_its_result_comes_out_once_whoever_is_killed(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    """Records of a key stay in order throughout: in front of the service, behind it, and over the rescaling."""
    rng = random.Random(15)
    first, second = records(0, RECORDS, KEYS), records(RECORDS, 2 * RECORDS, KEYS)
    source = TestingSource([*first, TestingSource.PAUSE(), *second], batch_size=50, directory=tmp_path / "source")
    sink, name = TestingSink(tmp_path / "sink"), unique_name("job")
    with FakeService(delay=0.2) as service:

        def job(parallelism: int) -> Pipeline:
            config = CheckpointConfig(tmp_path.as_uri(), interval=0.2, alignment="unaligned")
            p = Pipeline(name, checkpoints=config, restart=RestartStrategy.fixed_delay(attempts=5, delay=0.1))
            asked = (
                p.source("in", source)
                .key_by("key")
                .map_async(service.client(), "ask", parallelism=parallelism, capacity=50, ordered="key", retries=2)
            )
            counted = asked.key_by("key").process("count", Count(), parallelism=2)
            counted.sink("out", sink)
            return p

        with running(job(2), spark) as handle:
            eventually(lambda: len(service.requests) > RECORDS // 4)
            eventually(lambda: any(one.in_flight_records for one in handle.checkpoints()))
            victims = [pid for name, pid in handle.processes().items() if name.startswith("ask")]
            os.kill(rng.choice(victims), signal.SIGKILL)
            eventually(lambda: handle.restarts == 1 and handle.status == "running")
            # As many as are asked and not answered stay so, over the rescaling.
            service.hold()
            eventually(lambda: service.in_flight >= 50)
            done = len(handle.checkpoints())
            handle.checkpoint(PATIENCE)
            assert len(handle.checkpoints()) > done
            assert handle.checkpoints()[-1].in_flight_records >= 50
        service.release()
        source.release()
        with running(job(3), spark) as handle:
            handle.wait(PATIENCE)
        assert handle.restarts == 0
    assert_exact(sink, first + second)
    asked = Counter(request["id"] for request in service.requests)
    assert set(asked) == set(range(2 * RECORDS))
    assert len(service.requests) > 2 * RECORDS  # some twice, since their answers were lost
