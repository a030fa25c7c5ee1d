"""Requests in flight in whole jobs, whose processes are threads: in checkpoints, after restores, before watermarks."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from threads_for_processes import job_in_threads

from pipeline import AsyncFunction, CheckpointConfig, JobHandle, Operator, Pipeline, RestartStrategy, WatermarkStrategy
from pipeline.runtime.driver.signals import Watched
from pipeline.testing import FakeService, TestingSink, TestingSource

NEVER = {"interval": 3600.0}


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService() as service:
        yield service


def pipeline(tmp_path: Path, parallelism: int = 1, **checkpoints: Any) -> Pipeline:
    config = CheckpointConfig(str(tmp_path), **{**NEVER, **checkpoints})
    return Pipeline("job", parallelism=parallelism, checkpoints=config, restart=RestartStrategy.none())


def started(p: Pipeline) -> JobHandle:
    master = job_in_threads(p)
    master.start()
    return JobHandle(master, Watched("job", master, 30.0))


def finished(p: Pipeline) -> None:
    started(p).wait(PATIENCE)


def loop_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("weir-async")]


class Where(Operator):
    """What a record behind the step still has of its input, and in which subtask it comes out."""

    def process(self, value: Any, ctx: Any) -> Any:
        yield {"value": value, "key": ctx.key, "timestamp": ctx.timestamp, "subtask": ctx.subtask}


class Late(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        yield {**value, "late": ctx.watermark is not None and ctx.timestamp <= ctx.watermark}


def test_requests_run_side_by_side_and_results_keep_the_order_of_the_records(tmp_path: Path) -> None:
    async def slower_first(value: int) -> int:
        await asyncio.sleep(0.05 if value % 2 else 0.1)
        return value * 10

    sink = TestingSink()
    p = pipeline(tmp_path)
    p.source("in", TestingSource(range(200))).map_async(slower_first, capacity=200).sink("out", sink)
    finished(p)
    assert sink.records == [value * 10 for value in range(200)]
    assert loop_threads() == []


def test_unordered_results_come_as_they_are_answered_and_a_keys_in_order_if_asked(tmp_path: Path) -> None:
    async def later_is_faster(value: list[int]) -> list[int]:
        await asyncio.sleep((20 - value[1]) / 100)
        return value

    records = [[key, number] for number in range(20) for key in range(2)]
    for ordered in (False, "key"):
        sink = TestingSink()
        p = pipeline(tmp_path / str(ordered))
        stream = p.source("in", TestingSource(records)).key_by(0)
        stream.map_async(later_is_faster, capacity=100, ordered=ordered).sink("out", sink)
        finished(p)
        assert sorted(sink.records) == sorted(records)
        in_order = all(
            [number for key, number in sink.records if key == which] == list(range(20)) for which in range(2)
        )
        assert in_order == (ordered == "key")


@pytest.mark.parametrize("alignment", ["unaligned", "aligned"])
@pytest.mark.parametrize("ordered", [True, False, "key"])
def test_what_is_in_flight_is_asked_again_by_the_keys_owner_and_comes_out_once(
    tmp_path: Path, service: FakeService, alignment: str, ordered: Any
) -> None:
    values = [{"key": f"k{i % 10}", "id": i} for i in range(40)]
    source, sink = TestingSource([*values, TestingSource.PAUSE()], timestamp=lambda value: value["id"]), TestingSink()

    def job(parallelism: int) -> Pipeline:
        p = pipeline(tmp_path, alignment=alignment, retained=2)
        keyed = p.source("in", source).key_by("key")
        asked = keyed.map_async(service.client(), "ask", parallelism=parallelism, ordered=ordered)
        asked.process("where", Where()).sink("out", sink)
        return p

    service.hold()
    first = started(job(2))
    eventually(lambda: service.in_flight == 40)
    first.checkpoint(PATIENCE)
    (last,) = first.checkpoints()[-1:]
    assert last.in_flight_records == 40
    first.cancel()
    assert sink.records == []
    # What is restored and still not answered is part of a checkpoint of the replay, too.
    second = started(job(3))
    eventually(lambda: len(service.requests) == 80)
    second.checkpoint(PATIENCE)
    assert second.checkpoints()[-1].in_flight_records == 40
    second.cancel()
    service.release()
    source.release()
    finished(job(3))
    assert sorted(record["value"]["id"] for record in sink.records) == list(range(40))
    assert all(record["key"] == record["value"]["key"] for record in sink.records)
    assert all(record["timestamp"] == record["value"]["id"] for record in sink.records)
    owners = Counter({(record["key"], record["subtask"]) for record in sink.records})
    assert len(owners) == 10
    if ordered:
        for key in {value["key"] for value in values}:
            ids = [record["value"]["id"] for record in sink.records if record["key"] == key]
            assert ids == sorted(ids)
    assert Counter(request["id"] for request in service.requests) == dict.fromkeys(range(40), 3)
    assert loop_threads() == []


def test_unkeyed_requests_in_flight_are_spread_over_the_new_subtasks(tmp_path: Path, service: FakeService) -> None:
    source, sink = TestingSource([*range(60), TestingSource.PAUSE()]), TestingSink()

    def job(parallelism: int) -> Pipeline:
        p = pipeline(tmp_path)
        asked = p.source("in", source).rebalance().map_async(service.client(), "ask", parallelism=parallelism)
        asked.process("where", Where()).sink("out", sink)
        return p

    service.hold()
    first = started(job(1))
    eventually(lambda: service.in_flight == 60)
    first.checkpoint(PATIENCE)
    first.cancel()
    service.release()
    source.release()
    finished(job(3))
    assert sorted(record["value"] for record in sink.records) == list(range(60))
    assert sorted(Counter(record["subtask"] for record in sink.records).values()) == [20, 20, 20]


def test_answers_that_wait_for_an_earlier_one_are_in_the_checkpoint(tmp_path: Path) -> None:
    """They have come, but were not emitted: a checkpoint without them would lose them."""
    gate = tmp_path / "gate"

    async def first_is_held(value: int) -> int:
        while value == 0 and not gate.exists():
            await asyncio.sleep(0.01)
        return value

    source, sink = TestingSource([*range(50), TestingSource.PAUSE()]), TestingSink()

    def job() -> Pipeline:
        p = pipeline(tmp_path / "checkpoints")
        p.source("in", source).map_async(first_is_held, "ask").sink("out", sink)
        return p

    first = started(job())
    eventually(lambda: first.metrics()["subtasks"].get("ask → out[0]", {}).get("requestsAnswered") == 49)
    first.checkpoint(PATIENCE)
    assert first.checkpoints()[-1].in_flight_records == 50
    first.cancel()
    gate.touch()
    source.release()
    finished(job())
    assert sink.records == list(range(50))


@pytest.mark.parametrize("ordered", [True, False])
def test_no_result_is_late_by_its_request(tmp_path: Path, ordered: bool) -> None:
    """Watermarks wait for the requests in front of them, and results stay in front of those behind."""

    async def some_time(value: list[int]) -> list[int]:
        await asyncio.sleep(random.random() / 10)
        return value

    class Late(Operator):
        def process(self, value: Any, ctx: Any) -> Any:
            yield [value[0], ctx.watermark is not None and ctx.timestamp <= ctx.watermark]

        def on_watermark(self, timestamp: int, ctx: Any) -> Any:
            yield ["watermark", False]

    partitions = [[[at, partition] for at in range(0, 3000, 10)] for partition in range(2)]
    source, sink = TestingSource(partitions=partitions, batch_size=5), TestingSink()
    p = pipeline(tmp_path, interval=0.05)
    timed = p.source("in", source, parallelism=2).assign_timestamps(WatermarkStrategy.bounded(0, lateness=0))
    asked = timed.key_by(1).map_async(some_time, capacity=20, ordered=ordered, parallelism=2)
    asked.process("late", Late()).sink("out", sink)
    finished(p)
    records = [record for record in sink.records if record[0] != "watermark"]
    assert len(records) == 600
    assert not any(late for _, late in records)
    assert len(sink.records) > len(records) + 4  # watermarks come through in between, not just at the end


def test_a_watermark_behind_requests_in_flight_is_restored_behind_them(tmp_path: Path, service: FakeService) -> None:
    """Restored watermarks are those of the channels of then, which the subtask must know until the last of them."""
    values = [{"key": f"k{i % 10}", "at": 10 * i} for i in range(40)]
    source, sink = TestingSource([*values, TestingSource.PAUSE()]), TestingSink()

    def job(parallelism: int) -> Pipeline:
        p = pipeline(tmp_path)
        timed = p.source("in", source).assign_timestamps(WatermarkStrategy.bounded("at", lateness=0), id="times")
        asked = timed.key_by("key").map_async(service.client(), "ask", parallelism=parallelism, timeout=None)
        asked.process("late", Late()).sink("out", sink)
        return p

    service.hold()
    first = started(job(2))
    eventually(lambda: service.in_flight == 40)
    eventually(lambda: first.metrics()["subtasks"].get("in → times[0]", {}).get("watermark") is not None)
    first.checkpoint(PATIENCE)
    first.cancel()
    second = started(job(3))
    eventually(lambda: len(service.requests) == 80)
    service.release()
    source.release()
    second.wait(PATIENCE)
    assert sorted(record["at"] for record in sink.records) == [10 * i for i in range(40)]
    assert not any(record["late"] for record in sink.records)


def test_a_stop_keeps_what_is_in_flight_and_a_drain_waits_for_it(tmp_path: Path, service: FakeService) -> None:
    source, sink = TestingSource([*range(30), TestingSource.PAUSE(), 30, TestingSource.PAUSE()]), TestingSink()

    def job() -> Pipeline:
        p = pipeline(tmp_path)
        p.source("in", source).map_async(service.client(), "ask").sink("out", sink)
        return p

    service.hold()
    first = started(job())
    eventually(lambda: service.in_flight == 30)
    first.stop(timeout=PATIENCE)
    assert sink.records == []
    second = started(job())
    eventually(lambda: len(service.requests) == 60)
    threading.Timer(0.3, service.release).start()
    second.stop(drain=True, timeout=PATIENCE)
    assert sink.records == list(range(30))
    assert second.checkpoints()[-1].in_flight_records == 0


def test_capacity_holds_records_up_and_not_barriers(tmp_path: Path, service: FakeService) -> None:
    source, sink = TestingSource(range(100)), TestingSink()
    p = pipeline(tmp_path, alignment="unaligned")
    p.source("in", source).map_async(service.client(), "ask", capacity=10).sink("out", sink)
    service.hold()
    handle = started(p)
    eventually(lambda: service.in_flight == 10)
    for _ in range(3):
        handle.checkpoint(PATIENCE)
    assert handle.checkpoints()[-1].in_flight_records == 100
    eventually(lambda: bool(handle.metrics()["waits"]))
    assert [wait["what"] for wait in handle.metrics()["waits"]] == ["answers to the requests of step 'ask'"]
    service.release()
    handle.wait(PATIENCE)
    assert sink.records == list(range(100))
    assert service.most_in_flight == 10


def test_a_failed_request_names_step_and_record_and_has_the_users_traceback(tmp_path: Path) -> None:
    async def not_seven(value: int) -> int:
        if value == 7:
            raise KeyError("seven")
        await asyncio.sleep(10)
        return value

    p = pipeline(tmp_path)
    p.source("in", TestingSource(range(8))).map_async(not_seven, "ask", ordered=False).sink("out", TestingSink())
    handle = started(p)
    with pytest.raises(Exception, match="map_async 'ask': the request for 7 failed: KeyError: 'seven'") as caught:
        handle.wait(PATIENCE)
    assert "not_seven" in str(caught.value)
    assert "in step 'ask'" in str(caught.value)
    eventually(lambda: loop_threads() == [])


def test_a_client_lives_in_the_loop_of_its_subtask(tmp_path: Path) -> None:
    class Client(AsyncFunction):
        async def open(self) -> None:
            self.loop = asyncio.get_running_loop()
            tmp_path.joinpath("opened").touch()

        async def __call__(self, value: int) -> int:
            assert asyncio.get_running_loop() is self.loop
            return value + 1

        async def close(self) -> None:
            assert asyncio.get_running_loop() is self.loop
            tmp_path.joinpath("closed").touch()

    sink = TestingSink()
    p = pipeline(tmp_path / "checkpoints")
    p.source("in", TestingSource(range(5))).map_async(Client()).sink("out", sink)
    finished(p)
    assert sink.records == [1, 2, 3, 4, 5]
    assert tmp_path.joinpath("opened").exists()
    assert tmp_path.joinpath("closed").exists()


def test_batches_of_records(tmp_path: Path) -> None:
    async def sizes(values: list[int]) -> list[int]:
        return [len(values) for _ in values]

    sink = TestingSink()
    p = pipeline(tmp_path)
    p.source("in", TestingSource(range(25))).map_async(sizes, batch_size=10, batch_wait=60).sink("out", sink)
    finished(p)
    assert sink.records == [10] * 20 + [5] * 5


def test_a_request_that_fails_costs_one_record_where_the_step_has_on_error(tmp_path: Path) -> None:
    async def half(value: dict[str, int]) -> Any:
        if value["n"] == 3:
            return object()  # which can't travel
        return 12 // value["n"]

    out, failed = TestingSink(), TestingSink()
    p = pipeline(tmp_path)
    records = TestingSource([{"n": n} for n in (1, 0, 2, 3, 4)], timestamp=lambda value: value["n"])
    asked = p.source("in", records).key_by("n").map_async(half, "half", on_error="skip")
    asked.sink("out", out)
    asked.errors().sink("failed", failed)
    finished(p)
    assert out.records == [12, 6, 3]
    told = [(letter["record"], letter["key"], letter["timestamp"], letter["step"]) for letter in failed.records]
    assert told == [({"n": 0}, 0, 0, "half"), ({"n": 3}, 3, 3, "half")]
    assert "ZeroDivisionError" in failed.records[0]["reason"]


def test_a_client_that_cannot_be_opened_fails_the_step_by_name(tmp_path: Path) -> None:
    class Client(AsyncFunction):
        async def open(self) -> None:
            raise OSError("no route to the service")

        async def __call__(self, value: int) -> int:
            return value

    p = pipeline(tmp_path)
    p.source("in", TestingSource(range(5))).map_async(Client(), "ask").sink("out", TestingSink())
    with pytest.raises(Exception, match="no route to the service") as caught:
        finished(p)
    assert "in step 'ask'" in str(caught.value)
    eventually(lambda: loop_threads() == [])


def test_a_lookup_join_asks_once_for_each_key_and_tells_how_often_it_knew(tmp_path: Path) -> None:
    source, sink = TestingSource([*({"user": i % 5} for i in range(100)), TestingSource.PAUSE()]), TestingSink()
    p = pipeline(tmp_path, interval=0.1)
    with FakeService(lambda user: f"user {user}", delay=0.05) as service:
        keyed = p.source("in", source).key_by("user")
        keyed.join_lookup(service.client(), "users", parallelism=2, select=lambda left, right: right).sink("out", sink)
        handle = started(p)
        eventually(lambda: len(sink.records) == 100)
        eventually(
            lambda: sum(one.get("lookupCacheHits", 0) for one in handle.metrics()["subtasks"].values()) == 95, PATIENCE
        )
        assert sum(one.get("lookupCacheMisses", 0) for one in handle.metrics()["subtasks"].values()) == 5
        source.release()
        handle.wait(PATIENCE)
    assert Counter(sink.records) == {f"user {i}": 20 for i in range(5)}
    assert sorted(service.requests) == list(range(5))
