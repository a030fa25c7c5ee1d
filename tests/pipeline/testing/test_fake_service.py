"""A service that a test controls, by its client and within the process."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from deadlines import PATIENCE, eventually

from pipeline.testing import FakeService, ServiceError


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService(lambda value: value * 2) as service:
        yield service


def ask(service: FakeService, values: list[Any]) -> list[Any]:
    async def all_of_them() -> list[Any]:
        client = pickle.loads(pickle.dumps(service.client()))
        try:
            return await asyncio.gather(*map(client, values), return_exceptions=True)
        finally:
            await client.close()

    return asyncio.run(all_of_them())


def test_it_answers_and_counts(service: FakeService) -> None:
    assert ask(service, [1, 2, 2]) == [2, 4, 4]
    assert sorted(service.requests) == [1, 2, 2]
    assert service.count(2) == 2
    assert service.in_flight == 0


def test_it_fails_as_often_as_it_should_and_those_that_should(service: FakeService) -> None:
    service.fail(times=1, when=lambda value: value == 1)
    failed, answer = ask(service, [1, 5])
    assert isinstance(failed, ServiceError)
    assert failed.status == 503
    assert answer == 10
    assert ask(service, [1]) == [2]
    service.fail()
    assert [type(one) for one in ask(service, [1, 5])] == [ServiceError] * 2
    service.recover()
    assert ask(service, [1]) == [2]


def test_what_the_answer_raises_is_an_error_of_the_service() -> None:
    with FakeService(lambda value: 1 / value) as service:
        (error,) = ask(service, [0])
    assert isinstance(error, ServiceError)
    assert (error.status, str(error)) == (500, "500 ZeroDivisionError: division by zero")


def test_it_holds_answers_back(service: FakeService) -> None:
    service.hold()
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.extend(ask(service, [1, 2, 3])))
    thread.start()
    eventually(lambda: service.in_flight == 3)
    assert answers == []
    service.release()
    thread.join(PATIENCE)
    assert answers == [2, 4, 6]
    assert service.most_in_flight == 3


def test_a_service_that_has_gone_is_an_error_of_the_connection() -> None:
    with FakeService() as service:
        client = service.client()
    with pytest.raises(ConnectionError):
        asyncio.run(client(1))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="not started"):
        service.client()


def test_within_the_process_no_server_is_needed() -> None:
    service = FakeService(str)
    assert asyncio.run(service.ask(5)) == "5"
    assert service.requests == [5]
