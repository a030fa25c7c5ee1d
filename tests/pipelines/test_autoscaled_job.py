"""A job on Spark that is rescaled by itself, as far as Spark's slots go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from deadlines import eventually
from small_job import WAIT, Count, assert_exact, records, running, small_job
from spark_fixture import SLOTS

from pipeline import Autoscale
from pipeline.testing import TestingSink, TestingSource


class SlowCount(Count):
    """Takes a millisecond a record."""

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        time.sleep(0.001)
        yield from super().process(value, ctx)


def test_a_job_on_spark_follows_its_load(tmp_path: Path, unique_name: Callable[[str], str], spark: Any) -> None:
    all_ = records(0, 8_000, keys=64)
    source, sink = TestingSource(all_, batch_size=20), TestingSink()
    p = small_job(unique_name("autoscaled"), tmp_path, source, sink, operator=SlowCount(), interval=1.0)
    p.autoscale = Autoscale(most=2, pause=0.5, window=1.2)
    with running(p, spark) as handle:
        eventually(lambda: bool(handle.rescales), WAIT)
        assert handle._master.room == SLOTS
        handle.wait(WAIT)
    assert (handle.status, handle.restarts) == ("finished", 0)
    assert handle.rescales[0].what.endswith("count, out 1 → 2")
    assert_exact(sink, all_)
