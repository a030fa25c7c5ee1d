"""`map_async` in a harness: any interleaving, any order of answers, snapshots and rescaling anywhere."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.errors import PermanentFailure
from pipeline import (
    AsyncFunction,
    AtMost,
    KeyedOperator,
    LookupCache,
    Operator,
    Pipeline,
    Skip,
    ValueState,
    WatermarkStrategy,
)
from pipeline.runtime.subtask.steps.failed_records import TooManyFailures
from pipeline.testing import FakeService, PipelineHarness, TestingSource


class Judge(KeyedOperator):
    """Numbers the records of a key, and says whether they are late."""

    seen = ValueState(default=0)

    def process(self, value: Any, ctx: Any) -> Any:
        self.seen.value += 1
        late = ctx.watermark is not None and ctx.timestamp <= ctx.watermark
        yield {**value, "number": self.seen.value, "late": late, "timestamp": ctx.timestamp}


async def by_delay(value: Any) -> Any:
    await asyncio.sleep(value["delay"])
    return {**value, "asked": True}


def job(parallelism: int, downstream: int, capacity: int, ordered: Any) -> Pipeline:
    p = Pipeline("job", max_parallelism=16)
    timed = p.source("in", TestingSource(), parallelism=2).assign_timestamps(
        WatermarkStrategy.bounded("at", lateness=0), id="time"
    )
    asked = timed.key_by("key").map_async(
        by_delay, "ask", parallelism=parallelism, capacity=capacity, ordered=ordered, timeout=None
    )
    asked.key_by("key").process("judge", Judge(), parallelism=downstream)
    return p


_RECORDS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from("abcde"), st.sampled_from([0, 0.1, 0.5, 2.0])), max_size=25
)
_WIDTHS = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(
    records=_RECORDS,
    seed=st.none() | st.integers(0, 1000),
    widths=st.lists(_WIDTHS, min_size=4, max_size=4),
    capacity=st.integers(1, 6),
    ordered=st.sampled_from([True, False, "key"]),
    breaks=st.sets(st.integers(0, 25), max_size=3),
    ticks=st.integers(0, 3),
)
@settings(max_examples=120, deadline=None)
def test_each_result_comes_out_once_none_late_and_a_keys_in_order(
    records: list[tuple[int, str, float]],
    seed: int | None,
    widths: list[tuple[int, int]],
    capacity: int,
    ordered: Any,
    breaks: set[int],
    ticks: int,
) -> None:
    options = {"seed": seed, "partitions": {"in": 2}}
    harness = PipelineHarness(job(*widths[0], capacity, ordered), **options)  # type: ignore[arg-type]
    outputs: list[Any] = []
    restored = 0
    sent: list[Any] = []
    for number, (partition, key, delay) in enumerate(records):
        # A key is in one partition only, so that its records have an order.
        value = {"key": f"{key}{partition}", "id": number, "delay": delay, "at": number * 10}
        harness.send("in", value, partition=partition)
        sent.append(value)
        if ticks and number % (ticks + 1) == 0:
            harness.advance_time(0.3)
        if number in breaks:
            restored += 1
            snapshot = harness.snapshot()
            outputs += harness.take("judge")
            # Whatever the old one would have done is nobody's.
            harness.close()
            harness = PipelineHarness.restore(job(*widths[restored], capacity, ordered), snapshot, seed=seed)
    harness.end_of_input()
    harness.run_async()
    outputs += harness.take("judge")
    harness.close()
    assert Counter(one["id"] for one in outputs) == Counter(range(len(records)))
    assert all(one["asked"] and one["timestamp"] == one["at"] for one in outputs)
    numbers = Counter(value["key"] for value in sent)
    for key, count in numbers.items():
        own = [one for one in outputs if one["key"] == key]
        assert [one["number"] for one in own] == list(range(1, count + 1))
        if ordered:
            assert [one["id"] for one in own] == [value["id"] for value in sent if value["key"] == key]
    # All come in order within their partition, so none is late for what its own partition says.
    assert not any(one["late"] for one in outputs)


def simple(function: Any, **options: Any) -> PipelineHarness:
    p = Pipeline("job")
    p.source("in", TestingSource()).map_async(function, "ask", **options)
    return PipelineHarness(p)


def test_time_passes_only_when_the_test_says_so() -> None:
    service = FakeService(lambda value: value * 2, delay=0.2)
    harness = simple(service.ask)
    for value in range(3):
        harness.send("in", value)
    assert (harness.outputs("ask"), service.in_flight) == ([], 3)
    harness.advance_time(0.19)
    assert harness.outputs("ask") == []
    harness.advance_time(0.01)
    assert harness.outputs("ask") == [0, 2, 4]


def test_capacity_is_what_is_asked_and_not_emitted() -> None:
    service = FakeService(delay=1)
    harness = simple(service.ask, capacity=2, ordered=False)
    for value in range(5):
        harness.send("in", value)
    assert service.requests == [0, 1]
    harness.advance_time(1)
    assert service.requests == [0, 1, 2, 3]
    harness.run_async()
    assert harness.outputs("ask") == [0, 1, 2, 3, 4]
    assert service.most_in_flight == 2


def test_a_retry_waits_longer_each_time_and_gets_the_record_as_it_came() -> None:
    service = FakeService()
    service.fail(times=2)
    seen: list[float] = []

    class Once(AsyncFunction):
        async def __call__(self, value: dict[str, Any]) -> Any:
            value["changed"] = value.get("changed", 0) + 1
            return await service.ask(value)

    harness = simple(Once(), retries=2, backoff=1)
    harness.send("in", {"id": 1})
    for _ in range(40):
        seen.append(len(service.requests))
        harness.advance_time(0.1)
    first, second = seen.index(2) / 10, seen.index(3) / 10
    assert 0.5 <= first <= 1.1
    assert 1.0 <= second - first <= 2.1
    assert harness.outputs("ask") == [{"id": 1, "changed": 1}]


def test_no_answer_in_time_is_a_failure_that_may_be_tried_again() -> None:
    service = FakeService(delay=5)
    harness = simple(service.ask, timeout=1, retries=1, backoff=0)
    harness.send("in", 7)
    harness.advance_time(1)
    assert service.requests == [7, 7]
    with pytest.raises(RuntimeError, match="the request for 7 failed, 2 times: RequestTimeout: no answer within 1 s"):
        harness.advance_time(1)


def test_only_what_retry_on_names_is_tried_again() -> None:
    service = FakeService()
    service.fail()
    harness = simple(service.ask, retries=5, retry_on=(ConnectionError,))
    with pytest.raises(RuntimeError, match="the request for 7 failed: ServiceError: 503") as caught:
        harness.send("in", 7)
    assert service.requests == [7]
    assert "in step 'ask'" in caught.value.__notes__[0]


def test_a_batch_is_asked_for_when_it_is_full_or_has_waited() -> None:
    service = FakeService(lambda values: [-value for value in values])
    harness = simple(service.ask, batch_size=3, batch_wait=1, capacity=10)
    for value in range(4):
        harness.send("in", value)
    assert service.requests == [[0, 1, 2]]
    harness.advance_time(0.99)
    assert len(service.requests) == 1
    harness.advance_time(0.01)
    assert service.requests == [[0, 1, 2], [3]]
    assert harness.outputs("ask") == [0, -1, -2, -3]


def test_a_watermark_and_a_full_step_send_a_batch_off() -> None:
    service = FakeService(delay=1)
    harness = simple(service.ask, batch_size=3, batch_wait=60, capacity=4)
    for value in range(5):
        harness.send("in", value)
    assert service.requests == [[0, 1, 2], [3]]
    harness.advance_time(1)
    assert service.requests == [[0, 1, 2], [3]]
    harness.watermark("in", 100)
    assert service.requests == [[0, 1, 2], [3], [4]]


@pytest.mark.parametrize("result", [[1], "no list", None])
def test_a_batch_with_another_number_of_results_is_refused(result: Any) -> None:
    async def wrong(values: list[int]) -> Any:
        return result

    harness = simple(wrong, batch_size=2)
    harness.send("in", 1)
    with pytest.raises(RuntimeError, match="got a batch of 2 records and returned"):
        harness.send("in", 2)


def test_a_watermark_waits_for_the_requests_in_front_of_it() -> None:
    class Times(Operator):
        def on_watermark(self, timestamp: int, ctx: Any) -> Any:
            yield f"watermark {timestamp}"

        def process(self, value: Any, ctx: Any) -> Any:
            yield value

    service = FakeService(delay=1)
    p = Pipeline("job")
    p.source("in", TestingSource()).map_async(service.ask, "ask", ordered=False).process("times", Times())
    harness = PipelineHarness(p)
    harness.send("in", "slow", timestamp=5)
    harness.watermark("in", 10)
    service.delay = 0
    harness.send("in", "quick", timestamp=15)
    assert (harness.outputs("times"), harness.watermarks("ask")) == ([], [None])
    harness.advance_time(1)
    assert harness.outputs("times") == ["slow", "watermark 10", "quick"]


def test_a_lookup_join_with_a_cache_by_the_harness_clock() -> None:
    service = FakeService({"a": "Ann"}.get)
    p = Pipeline("job")
    keyed = p.source("in", TestingSource()).key_by("user")
    keyed.join_lookup(service.ask, "names", how="inner", cache=LookupCache(ttl=10))
    harness = PipelineHarness(p)
    for user in "ab":
        harness.send("in", {"user": user})
    assert harness.take("names") == [{"left": {"user": "a"}, "right": "Ann"}]
    harness.advance_time(9)
    harness.send("in", {"user": "a"})
    assert service.count("a") == 1
    harness.advance_time(1)
    harness.send("in", {"user": "a"})
    assert service.count("a") == 2


def test_of_a_batch_of_lookups_only_the_record_that_fails_is_left_out() -> None:
    service = FakeService(lambda keys: {key: key.upper() for key in keys})
    p = Pipeline("job")
    read = p.source("in", TestingSource())
    names = read.join_lookup(service.ask, "names", key="user", batch_size=3, on_error="skip")
    names.errors().map(lambda error: error["record"], id="failed")
    harness = PipelineHarness(p)
    for value in ({"user": "a"}, {"name": "b"}, {"user": "c"}):
        harness.send("in", value)
    harness.run_async()
    assert [one["right"] for one in harness.outputs("names")] == ["A", "C"]
    assert harness.outputs("failed") == [{"name": "b"}]


def test_a_watermark_that_waits_is_part_of_a_snapshot() -> None:
    service = FakeService(delay=1)

    def job() -> Pipeline:
        p = Pipeline("job")
        p.source("in", TestingSource()).map_async(service.ask, "ask")
        return p

    harness = PipelineHarness(job())
    harness.send("in", "slow", timestamp=5)
    harness.watermark("in", 10)
    restored = PipelineHarness.restore(job(), harness.snapshot())
    restored.run_async()
    assert restored.outputs("ask") == ["slow"]
    assert restored.watermarks("ask") == [10]
    assert service.requests == ["slow", "slow"]


class Silent(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_failure_that_has_no_text_is_told(on_error: Any) -> None:
    async def fails(value: int) -> int:
        raise Silent

    harness = simple(fails, on_error=on_error)
    if on_error == "fail":
        with pytest.raises(
            RuntimeError, match=r"'ask': the request for 7 failed: Silent: <str\(\) of it raised ValueE"
        ):
            harness.send("in", 7)
    else:
        harness.send("in", 7)
        assert harness.outputs("ask") == []


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), MemoryError(), PermanentFailure("give up")])
def test_what_is_no_records_fault_fails_the_attempt_whatever_on_error_says(error: BaseException) -> None:
    async def fails(value: int) -> int:
        raise error

    harness = simple(fails, on_error="skip")
    with pytest.raises(Exception, match=r"the request for 7 failed") as caught:
        harness.send("in", 7)
    assert type(caught.value.__cause__) is type(error)
    # By its class the driver knows that no restart helps.
    assert isinstance(caught.value, PermanentFailure) == isinstance(error, PermanentFailure)


def test_a_permanent_failure_is_not_tried_again() -> None:
    service = FakeService()

    async def fails(value: int) -> int:
        await service.ask(value)
        raise PermanentFailure("give up")

    harness = simple(fails, retries=5, backoff=0)
    with pytest.raises(PermanentFailure, match="map_async 'ask': the request for 7 failed: PermanentFailure: give up"):
        harness.send("in", 7)
    assert service.requests == [7]


def test_a_request_that_was_cancelled_is_a_failed_record() -> None:
    async def cancelled(value: int) -> int:
        if value == 7:
            raise asyncio.CancelledError
        return value

    harness = simple(cancelled, on_error="skip")
    for value in (7, 8):
        harness.send("in", value)
    assert harness.outputs("ask") == [8]


def test_a_failed_request_is_told_by_the_class_of_what_the_function_has_raised() -> None:
    async def fails(value: int) -> Any:
        if value == 1:
            raise LookupError(value)
        if value == 2:
            await asyncio.sleep(60)
        return object()

    p = Pipeline("job")
    asked = p.source("in", TestingSource()).map_async(fails, "ask", timeout=5, on_error="skip")
    asked.errors().map(lambda letter: (letter["record"], letter["error"], letter["reason"]), id="failed")
    harness = PipelineHarness(p)
    for value in (1, 2, 3):
        harness.send("in", value)
    harness.run_async()
    told = {record: (error.rpartition(".")[2], reason) for record, error, reason in harness.outputs("failed")}
    assert [error for error, _ in told.values()] == ["LookupError", "RequestTimeout", "EncodingError"]
    assert told[1][1] == "map_async 'ask': the request for 1 failed: LookupError: 1"


def test_failures_are_measured_by_the_records_that_are_done_with_them() -> None:
    """Not by those that were asked at the same time: with a slow service they are of another minute."""
    service = FakeService(delay=90)
    service.fail(when=lambda value: value % 20 == 0)
    harness = simple(service.ask, capacity=1000, timeout=None, on_error=Skip(at_most=AtMost(0.1, within=60)))
    for value in range(300):
        harness.send("in", value)
    harness.advance_time(90)
    assert len(harness.outputs("ask")) == 285
    service.fail()
    for value in range(100):
        harness.send("in", value)
    with pytest.raises(TooManyFailures, match="failed within 60 s"):
        harness.advance_time(90)


def test_of_a_batch_some_records_may_fail() -> None:
    async def odd_ones(values: list[int]) -> list[Any]:
        return [LookupError(value) if value % 2 else -value for value in values]

    harness = simple(odd_ones, batch_size=4, retries=3, backoff=100, on_error="skip")
    for value in range(4):
        harness.send("in", value)
    assert harness.outputs("ask") == [0, -2]
    strict = simple(odd_ones, batch_size=2)
    strict.send("in", 4)
    with pytest.raises(RuntimeError, match="'ask': the request for 5 failed: LookupError: 5"):
        strict.send("in", 5)
