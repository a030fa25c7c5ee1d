"""What a look after the topics finds, by what a cluster says of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from deadlines import eventually

from checkpoint.waiting import Waiting
from sources import KafkaSource
from sources.kafka import discovery
from sources.kafka.discovery import PartitionDiscovery
from sources.kafka.errors import DataLoss, KafkaUnavailable, MissingPermission
from sources.kafka.options import PartitionKey
from sources.kafka.splits import Split

Answer = dict[str, tuple[str, int]] | Exception
"""By topic its id and how many partitions it has; or what the look raises."""


class Topic:
    def __init__(self, name: str, id: str, partitions: int) -> None:
        self.name, self.id, self.partitions = name, id, partitions


class Cluster:
    """Gives one answer after the other, and then the last one over and over."""

    def __init__(self, answers: list[Answer]) -> None:
        self._answers = answers
        self.looks = 0

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None: ...

    def topics(self) -> dict[str, Topic]:
        answer = self._answers[min(self.looks, len(self._answers) - 1)]
        self.looks += 1
        if isinstance(answer, Exception):
            raise answer
        return {name: Topic(name, *what) for name, what in answer.items()}

    def earliest(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        return dict.fromkeys(keys, 3)


class Looking:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Answer, **options: Any) -> None:
        self.cluster = Cluster(list(answers))
        monkeypatch.setattr(discovery, "Cluster", lambda options: self.cluster)
        known: dict[PartitionKey, str] = {("t", 0): "id"}
        self.waiting = Waiting()
        source = KafkaSource("b:1", topics=["t"], **options).options
        self.discovery = PartitionDiscovery(source, 0.001, known, "in", self.waiting)
        self.found: list[Split] = []

    def until_all_is_told(self) -> list[Split]:
        """Have it look more often than it has answers."""
        looks = self.cluster.looks + 4
        try:
            eventually(lambda: self._take() or self.cluster.looks >= looks)
        finally:
            self.discovery.stop()
        self._take()
        return self.found

    def _take(self) -> bool:
        self.found += self.discovery.found()
        return False


ONE: Answer = {"t": ("id", 1)}
TWO: Answer = {"t": ("id", 2)}
THREE: Answer = {"t": ("id", 3), "u": ("u's", 1)}
REFUSED = KafkaUnavailable("no", True, True)
AWAY = KafkaUnavailable("no", False, False)


def test_each_new_partition_is_told_once_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Looking(monkeypatch, ONE, TWO, TWO, THREE).until_all_is_told()
    assert found == [Split("t", 1, "id", 3), Split("t", 2, "id", 3), Split("u", 0, "u's", 3)]


@pytest.mark.parametrize("trouble", [AWAY, REFUSED, MissingPermission("no", ["t"]), ValueError("no topic t")])
def test_one_look_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch, trouble: Exception) -> None:
    found = Looking(monkeypatch, trouble, ONE, trouble, TWO).until_all_is_told()
    assert found == [Split("t", 1, "id", 3)]


@pytest.mark.parametrize("trouble", [REFUSED, MissingPermission("no", ["t", "new"])])
def test_being_refused_twice_in_a_row_is_an_error(monkeypatch: pytest.MonkeyPatch, trouble: Exception) -> None:
    with pytest.raises(type(trouble)):
        Looking(monkeypatch, trouble, trouble, ONE).until_all_is_told()


@pytest.mark.parametrize("trouble", [AWAY, MissingPermission("no", ["new"])])
def test_brokers_that_are_away_and_topics_that_are_not_read_yet_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    found = Looking(monkeypatch, trouble, trouble, trouble, TWO).until_all_is_told()
    assert found == [Split("t", 1, "id", 3)]


@pytest.mark.parametrize("gone", [ValueError("no topic t"), {}])
def test_a_topic_that_is_missing_twice_in_a_row_was_deleted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gone: Answer
) -> None:
    with pytest.raises(DataLoss, match="a topic was deleted under the running source"):
        Looking(monkeypatch, gone, gone, ONE).until_all_is_told()
    caplog.clear()
    Looking(monkeypatch, gone, ONE, gone, ONE).until_all_is_told()
    assert "looking after the topics" in caplog.text


def test_a_topic_that_is_gone_is_only_told_of_where_losses_may_be(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Looking(monkeypatch, ValueError("no topic t"), on_data_loss="earliest").until_all_is_told()
    assert "no topic t" in caplog.text


@pytest.mark.parametrize("gone", [ValueError("no topic t"), {}])
def test_a_topic_that_is_gone_is_waited_for_until_it_is_back(monkeypatch: pytest.MonkeyPatch, gone: Answer) -> None:
    looking = Looking(monkeypatch, gone, on_data_loss="earliest")
    eventually(lambda: bool(looking.waiting))
    ((what, _, _),) = looking.waiting.report()
    assert what.startswith("its topics: no topic t")
    assert what.endswith("(source 'in')")
    looking.cluster._answers.append(ONE)
    looking.cluster.looks = 1
    eventually(lambda: not looking.waiting)
    looking.until_all_is_told()


@pytest.mark.parametrize("policy", ["fail", "earliest"])
def test_a_topic_that_was_created_again_is_a_loss_whatever_may_be(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """The client would read on in the new one, in front of whose records it may stand."""
    with pytest.raises(DataLoss, match="t was deleted and created again under the running source"):
        Looking(monkeypatch, ONE, {"t": ("new", 2)}, on_data_loss=policy).until_all_is_told()
