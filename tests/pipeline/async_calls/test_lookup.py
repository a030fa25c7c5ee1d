"""A lookup join: who is asked how often, and what becomes of those for whom there is nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pipeline.async_calls.cache import DEFAULT_CACHE
from pipeline.async_calls.lookup import How, LookupJoin
from pipeline.async_calls.options import NOTHING
from pipeline.testing import FakeService, ServiceError


def join(lookup: Any, how: How = "left", cache: Any = DEFAULT_CACHE, select: Any = None, batched: bool = False) -> Any:
    return LookupJoin(lookup, 0, how, cache, select, batched)


def run(function: LookupJoin, *rounds: list[Any]) -> list[list[Any]]:
    """What it gives for the values of each round, which are asked side by side."""

    async def all_of_them() -> list[list[Any]]:
        await function.open()
        found = [await asyncio.gather(*map(function, values), return_exceptions=True) for values in rounds]
        await function.close()
        return found

    return asyncio.run(all_of_them())


def found(left: Any, right: Any) -> dict[str, Any]:
    return {"left": left, "right": right}


def test_records_with_one_key_ask_once_and_those_that_come_later_not_at_all() -> None:
    service = FakeService(str.upper)
    function = join(service.ask)
    first, second = run(function, [["a", 1], ["b", 2], ["a", 3]], [["b", 4]])
    assert first == [found(["a", 1], "A"), found(["b", 2], "B"), found(["a", 3], "A")]
    assert second == [found(["b", 4], "B")]
    assert sorted(service.requests) == ["a", "b"]
    assert function.counts() == {"lookupCacheHits": 2, "lookupCacheMisses": 2}


def test_without_a_cache_only_what_is_under_way_is_shared() -> None:
    service = FakeService(str.upper)
    run(join(service.ask, cache=None), [["a"], ["a"]], [["a"]])
    assert service.requests == ["a", "a"]


def test_equal_keys_of_different_types_are_different_keys() -> None:
    service = FakeService(lambda key: type(key).__name__)
    ((one, true),) = run(join(service.ask), [[1], [True]])
    assert (one["right"], true["right"]) == ("int", "bool")


def test_for_whom_there_is_nothing() -> None:
    service = FakeService(lambda key: None)
    assert run(join(service.ask), [["a"]]) == [[found(["a"], None)]]
    assert run(join(service.ask, how="inner"), [["a"]]) == [[NOTHING]]


def test_what_select_does_to_what_was_found_stays_with_its_record() -> None:
    service = FakeService(lambda key: {"key": key})

    def taken(left: Any, right: Any) -> Any:
        return [left[1], right.pop("key")]

    assert run(join(service.ask, select=taken), [["a", 1], ["a", 2]], [["a", 3]]) == [[[1, "a"], [2, "a"]], [[3, "a"]]]


def test_an_error_comes_to_all_who_wait_and_is_not_remembered() -> None:
    service = FakeService(str.upper)
    service.fail(times=1)
    (first, second), (third,) = run(join(service.ask), [["a"], ["a"]], [["a"]])
    assert isinstance(first, ServiceError)
    assert isinstance(second, ServiceError)
    assert third == found(["a"], "A")


def test_who_waits_for_one_whose_time_is_over_asks_itself() -> None:
    service = FakeService(str.upper)
    service.hold()

    async def scene() -> Any:
        function = join(service.ask)
        await function.open()
        first = asyncio.create_task(function(["a", 1]))
        await asyncio.sleep(0)
        second = asyncio.create_task(function(["a", 2]))
        await asyncio.sleep(0)
        first.cancel()
        service.release()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second

    assert asyncio.run(scene()) == found(["a", 2], "A")
    assert service.requests == ["a", "a"]


def test_a_batch_asks_for_the_keys_that_are_not_known_each_once() -> None:
    service = FakeService(lambda keys: [key.upper() for key in keys])
    first, second = run(join(service.ask, batched=True), [[["a"], ["b"], ["a"]]], [[["b"], ["c"]]])
    assert first == [[found(["a"], "A"), found(["b"], "B"), found(["a"], "A")]]
    assert second == [[found(["b"], "B"), found(["c"], "C")]]
    assert service.requests == [["a", "b"], ["c"]]


def test_a_batch_may_be_answered_by_key() -> None:
    service = FakeService(lambda keys: {"a": 1})
    assert run(join(service.ask, batched=True), [[["a"], ["b"]]]) == [[[found(["a"], 1), found(["b"], None)]]]


def test_a_batch_with_another_number_of_answers_is_refused() -> None:
    service = FakeService(lambda keys: [1])
    ((error,),) = run(join(service.ask, batched=True), [[["a"], ["b"]]])
    assert "asked for 2 keys and returned 1 answer:" in str(error)


def test_in_a_batch_a_record_fails_alone_whose_key_answer_or_result_does() -> None:
    service = FakeService(lambda keys: [LookupError(key) if key == "b" else key.upper() for key in keys])

    def taken(left: Any, right: Any) -> Any:
        return right * left[1]

    function = join(service.ask, select=taken, batched=True)
    batch = [["a", 2], [], ["b", 1], ["c", "?"], [{1}], ["d", 1]]
    ((results,), (again,)) = run(function, [batch], [[["b", 1], ["a", 1]]])
    assert [type(one).__name__ for one in results] == [
        "str",
        "KeyMissing",
        "LookupError",
        "TypeError",
        "EncodingError",
        "str",
    ]
    assert (results[0], results[-1]) == ("AA", "D")
    assert type(again[0]) is LookupError
    assert again[1] == "A"
    assert service.requests == [["a", "b", "c", "d"], ["b"]], "an error is not remembered"


def test_an_answer_that_is_an_exception_fails_its_record_without_batches_too() -> None:
    service = FakeService(LookupError)
    (first, second) = run(join(service.ask), [["a"]], [["a"]])
    assert [type(one) for one in first + second] == [LookupError, LookupError]
    assert service.requests == ["a", "a"]
