"""How far a source is behind, by what the client tells; with a broker: `test_statistics.py`."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from sources import KafkaSource
from sources.kafka import lag as lag_module
from sources.kafka.lag import Lag

A, B = ("t", 0), ("t", 1)


class Consumer:
    """Knows ends by what it has fetched; -1001 = it has not."""

    def __init__(self, **ends: int) -> None:
        self._ends = {"t": ends}

    def get_watermark_offsets(self, partition: TopicPartition, cached: bool) -> tuple[int, int]:
        assert cached
        return 0, self._ends[partition.topic].get(f"p{partition.partition}", -1001)


class Offset:
    def __init__(self, offset: int) -> None:
        self.offset = offset


class Admin:
    """Is asked for ends, and answers when a test says so."""

    asked: ClassVar[list[dict[tuple[str, int], Future[Any]]]] = []

    def __init__(self, config: Any) -> None:
        assert config["bootstrap.servers"] == "b:1"

    def list_offsets(self, request: Mapping[TopicPartition, Any], request_timeout: float) -> Any:
        futures: dict[TopicPartition, Future[Any]] = {partition: Future() for partition in request}
        self.asked.append({(one.topic, one.partition): future for one, future in futures.items()})
        return futures


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[tuple[str, int], Future[Any]]]:
    monkeypatch.setattr(lag_module, "AdminClient", Admin)
    monkeypatch.setattr(Admin, "asked", [])
    return Admin.asked


def behind(
    lag: Lag,
    positions: dict[Any, int],
    unread: dict[Any, int] | None = None,
    last: dict[Any, int] | None = None,
    **ends: int,
) -> int | None:
    consumer: Any = Consumer(**ends)
    lags = lag.behind(consumer, positions, last or {}, unread or {})
    known = [one for one in lags.values() if one is not None]
    return sum(known) if len(known) == len(lags) else None


@pytest.fixture
def lag() -> Lag:
    return Lag(KafkaSource("b:1", topics=["t"]).options, "in")


def test_offsets_up_to_all_ends_count_once_all_are_known(lag: Lag) -> None:
    assert behind(lag, {}) == 0
    assert behind(lag, {A: 4, B: 10}, p0=7, p1=10) == 3
    assert behind(lag, {A: 4, B: 9}, p0=7, p1=10) == 4
    assert behind(lag, {A: 4, B: 9}, p0=7) is None
    assert behind(lag, {A: 0}, p0=0) == 0
    assert behind(lag, {A: 9, B: 4}, p0=7, p1=5) == 1  # a position may be ahead of what the last fetch told


def test_the_larger_end_counts_of_the_one_fetched_and_the_one_asked_for(lag: Lag, asked: list[Any]) -> None:
    lag.ask([A, B], 0.0)
    asked[0][A].set_result(Offset(20))
    asked[0][B].set_result(Offset(20))
    assert behind(lag, {A: 5, B: 5}, p0=10, p1=30) == 15 + 25
    assert behind(lag, {A: 5}) == 15
    assert behind(lag, {A: 5}, {B: 12}, p0=10) == 15 + 8


def test_a_partition_that_is_read_to_an_end_of_its_own_counts_up_to_that(lag: Lag, asked: list[Any]) -> None:
    lag.ask([A, B], 0.0)
    for one in (A, B):
        asked[0][one].set_result(Offset(20))
    assert behind(lag, {A: 5, B: 5}, last={A: 7}, p0=10, p1=10) == 2 + 15
    assert behind(lag, {A: 7}, last={A: 7}) == 0
    assert behind(lag, {A: 9}, last={A: 7}) == 0


def test_partitions_that_are_not_read_count_once_their_end_is_known(lag: Lag) -> None:
    assert behind(lag, {A: 4}, {B: 7}, p0=5) == 1


def test_ends_are_asked_for_every_five_seconds_at_most(lag: Lag, asked: list[Any]) -> None:
    lag.ask([], 0.0)
    assert asked == []
    for now in (1.0, 2.0, 5.9, 6.0, 10.9, 11.0):
        lag.ask([A], now)
    assert [list(one) for one in asked] == [[A]] * 3


def test_an_end_that_is_not_told_leaves_the_one_told_before(lag: Lag, asked: list[Any]) -> None:
    for now in (0.0, 10.0):
        lag.ask([A], now)
    asked[0][A].set_result(Offset(20))
    asked[1][A].set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT)))
    assert behind(lag, {A: 5}) == 15
