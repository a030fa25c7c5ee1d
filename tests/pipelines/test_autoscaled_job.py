"""A job on Spark that is rescaled by itself, as far as Spark's slots go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from deadlines import PATIENCE, eventually
from small_job import SlowCount, assert_exact, records, running, small_job
from spark_fixture import SLOTS

from pipeline import Autoscale
from pipeline.testing import TestingSink, TestingSource


def test_a_job_on_spark_follows_its_load(tmp_path: Path, unique_name: Callable[[str], str], spark: Any) -> None:
    all_ = records(0, 8_000, keys=64)
    source, sink = TestingSource(all_, batch_size=20), TestingSink()
    p = small_job(unique_name("autoscaled"), tmp_path, source, sink, operator=SlowCount(), interval=1.0)
    p.autoscale = Autoscale(most=2, pause=0.5, window=1.2)
    with running(p, spark) as handle:
        eventually(lambda: bool(handle.rescales))
        assert handle._master.room == SLOTS
        handle.wait(PATIENCE)
    assert (handle.status, handle.restarts) == ("finished", 0)
    assert handle.rescales[0].what.endswith("count, out 1 → 2")
    assert_exact(sink, all_)
