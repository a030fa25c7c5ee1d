"""Calls of a client that may not return."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError, KafkaException

from sinks.kafka.bounded_calls import BoundedCalls


def test_a_call_gets_its_timeout_and_is_waited_for() -> None:
    calls, given = BoundedCalls("test"), list[float]()
    calls.run(3.5, given.append)
    assert given == [3.5]
    assert not calls.stuck


@pytest.mark.parametrize("error", [KafkaException(KafkaError(KafkaError._STATE)), KeyboardInterrupt()])
def test_what_a_call_raises_is_raised(error: BaseException) -> None:
    calls = BoundedCalls("test")

    def raise_it(_: float) -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        calls.run(3.5, raise_it)
    assert raised.value is error
    assert not calls.stuck


def test_a_call_may_take_a_little_longer_than_its_timeout() -> None:
    calls = BoundedCalls("test", grace=60.0)
    calls.run(0.0, lambda _: threading.Event().wait(0.05))
    assert not calls.stuck


def test_a_call_that_does_not_return_is_left_behind_and_told_as_a_timeout() -> None:
    calls, released = BoundedCalls("test", grace=0.05), threading.Event()
    with pytest.raises(KafkaException, match="the client didn't return within 0 s") as raised:
        calls.run(0.1, lambda _: released.wait(60))
    released.set()
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    assert calls.stuck
