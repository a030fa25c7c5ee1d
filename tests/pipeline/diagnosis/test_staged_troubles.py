"""Each of the troubles that a job may have is staged on a real job without Spark, and found from its page alone: the
cause, and the step, subtask or split that it is about. Those of Kafka are in `test_troubles_with_kafka.py`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deadlines import eventually
from diagnosed_job import diagnosed
from pyspark import SparkConf
from session_without_spark import FakeSession
from small_job import Count, records

import pipeline
from pipeline import CheckpointConfig, KeyedOperator, Pipeline, RestartStrategy, Tumbling, WatermarkStrategy
from pipeline.runtime.driver.job_master import JobMaster
from pipeline.runtime.driver.spark import slots
from pipeline.runtime.subtask.event_time import report
from pipeline.testing import TestingSink, TestingSource, failpoints


def job(tmp_path: Path, **options: Any) -> Pipeline:
    return Pipeline("orders", parallelism=2, checkpoints=CheckpointConfig(str(tmp_path), interval=0.5), **options)


class Slow(KeyedOperator):
    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        time.sleep(0.02)
        yield value


def slow(p: Pipeline, values: Iterable[Any]) -> Pipeline:
    source = p.source("in", TestingSource(values), parallelism=1)
    source.key_by("key").process("totals", Slow()).rebalance().sink("out", TestingSink())
    return p


def test_a_slow_operator(tmp_path: Path) -> None:
    with diagnosed(slow(job(tmp_path), records(0, 50_000, keys=1000))) as running:
        # Not the first sentence about it: one subtask may have begun long before the other.
        found = running.await_sentence("and in before it is held up", "Step 'totals' sets the pace of the job")
    assert found.severity == "trouble"
    assert found.text.startswith("totals[")


@pytest.mark.parametrize(("show_keys", "named"), [(True, "key 'hot'"), (False, "one key")])
def test_a_skewed_key(tmp_path: Path, show_keys: bool, named: str) -> None:
    values = [{"id": i, "key": "hot" if i % 20 else f"k{i}"} for i in range(50_000)]
    with diagnosed(slow(job(tmp_path, show_keys=show_keys), values)) as running:
        found = running.await_sentence("the load is uneven", f"median of the other subtasks: {named} has 9")
    assert found.severity == "trouble"
    assert found.text.startswith("totals[")


@pytest.fixture
def no_failpoints() -> Iterable[None]:
    yield
    failpoints.clear()


@pytest.mark.usefixtures("no_failpoints")
def test_slow_storage(tmp_path: Path) -> None:
    p = job(tmp_path)
    source = p.source("in", TestingSource([*records(0, 100), TestingSource.PAUSE()]), parallelism=1)
    source.key_by("key").process("count", Count()).rebalance().sink("out", TestingSink())
    failpoints.stall("snapshot.async_write", 2.5, subtask=0, times=1_000)
    with diagnosed(p) as running:
        under_way = running.await_sentence(
            "has been under way for", "writing what belongs to it", "the storage is slow"
        )
        completed = running.await_sentence("took 2.", "writing took at ", " bytes: the storage is slow")
    assert [under_way.severity, completed.severity] == ["trouble", "trouble"]
    assert re.search(r"(in|count|out)\[0\]", under_way.text)


def windows(p: Pipeline, source: TestingSource) -> Pipeline:
    timed = p.source("in", source, parallelism=1).assign_timestamps(WatermarkStrategy.bounded("at", 1), id="times")
    timed.key_by("id").window(Tumbling(1)).aggregate(n=pipeline.Count()).sink("out", TestingSink())
    return p


def orders(*times: float) -> list[dict[str, Any]]:
    now = time.time()
    return [{"id": i, "at": int((now + at) * 1000)} for i, at in enumerate(times)]


def test_a_quiet_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "HELD_BACK", 1.0)
    source = TestingSource(partitions=[[*orders(0, 1, 2), TestingSource.PAUSE()], [TestingSource.PAUSE()]])
    with diagnosed(windows(job(tmp_path), source)) as running:
        running.await_sentence(
            "in → times[0] waits for a first record of split 1, without which 'times' makes no", "idle_after"
        )


def test_a_timestamp_of_the_future(tmp_path: Path) -> None:
    values = orders(0, 1, 7 * 86_400, 2)
    with diagnosed(windows(job(tmp_path), TestingSource([*values, TestingSource.PAUSE()]))) as running:
        found = running.await_sentence(
            "The watermark of in → times is 167 h", "a record with a timestamp of the future"
        )
        running.await_sentence("in → times[0] waits for the clock", f"had a timestamp of {values[2]['at']}")
    assert found.severity == "trouble"
    assert "Use max_ahead= of the watermark strategy" in found.text


def test_a_poison_record(tmp_path: Path) -> None:
    tries, looked = tmp_path / "tries", tmp_path / "looked"

    def total(value: dict[str, Any]) -> Any:
        if "amount" not in value:
            with tries.open("a") as file:
                print("again", file=file)
            if tries.read_text().count("again") == 3:
                eventually(looked.exists)
        return value["amount"]

    p = job(tmp_path, restart=RestartStrategy.fixed_delay(attempts=2, delay=0.1))
    source = p.source("in", TestingSource([{"amount": 3}, {"id": 7}]), parallelism=1)
    source.rebalance().map(total, id="total").sink("out", TestingSink())
    advice = "on_error=DeadLetter(topic) or Skip on step 'total' leaves it out"
    with diagnosed(p) as running:
        again = running.await_sentence("The job was restarted 2 times", advice)
        looked.touch()
        failed = running.await_sentence("The job has failed", advice)
    for found in (again, failed):
        assert found.severity == "trouble"
        assert "failed: KeyError: 'amount', in step 'total'" in found.text


def test_too_few_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    available = [2]

    class Session(FakeSession):
        """Of a cluster whose other executors may be on their way."""

        def open(self, not_needed: Callable[[], bool]) -> bool:
            context = SimpleNamespace(master="yarn", getConf=lambda: SparkConf(loadDefaults=False))
            slots.require_slots(context, self._o.plan, self._tell)
            return True

    monkeypatch.setattr(slots, "free_slots", lambda context: available[0])
    p = slow(job(tmp_path), [])
    options = p.options("latest", spark=None, claim=None, rewind=False, allow_unclaimed=False, ignore_in_flight=None)
    with diagnosed(p, lambda _: JobMaster(options, session=Session)) as running:
        found = running.await_sentence("the job waits for slots: it needs 5, and Spark at yarn has 2")
        running.master.cancel()
        available[0] = 5
    assert found.text.endswith("Lower the parallelism, or give the cluster more cores.")
