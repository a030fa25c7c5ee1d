"""An attempt is over once Spark's job has ended and all its processes have left, or its patience is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from checkpoint.checkpoint_kind import CheckpointKind
from pipeline.runtime.driver.attempt_context import CheckpointRequest
from pipeline.runtime.driver.attempt_end import AttemptEnd
from pipeline.runtime.driver.attempt_events import CheckpointRequestedByUser, Lost, Received, SparkEnded
from pipeline.runtime.protocol import Committed, PhaseEntered


class Peers:
    def __init__(self, *connections: str) -> None:
        self.all = {connection: SimpleNamespace(connection=connection, gone=False) for connection in connections}

    def __iter__(self) -> Any:
        return iter(self.all.values())

    def get(self, connection: Any) -> Any:
        return self.all.get(connection)

    def name(self, peer: Any) -> str:
        return str(peer.connection)


class Ending:
    def __init__(self, spark_ended: bool = False) -> None:
        self.told: list[Any] = []
        peers: Any = Peers("a", "b")
        processes: Any = SimpleNamespace(cancel=lambda: self.told.append("cancel"))
        self.end = AttemptEnd(peers, processes, spark_ended, 100.0, self._on_committed, self.told.append)

    def _on_committed(self, peer: Any, committed: Committed) -> None:
        self.told.append((peer.connection, committed))

    def handle(self, *events: Any) -> None:
        for event in events:
            self.end.handle(event)


def lost(connection: Any) -> Lost:
    return Lost(connection, "gone")


def test_it_is_over_when_spark_and_all_processes_have_ended() -> None:
    ending = Ending()
    ending.handle(lost("a"), lost("stranger"), SparkEnded(None))
    assert ending.end.tick(100.0) is not None
    ending.handle(lost("b"))
    assert ending.end.tick(100.0) is None
    assert ending.told == []
    spark_stays = Ending()
    spark_stays.handle(lost("a"), lost("b"))
    assert spark_stays.end.tick(100.0) is not None


def test_spark_is_asked_again_each_second_until_it_has_ended() -> None:
    ending = Ending()
    assert [ending.end.tick(now) for now in (100.0, 100.9, 101.0, 101.5)] == [101.0, 101.9, 102.0, 102.5]
    assert ending.told == ["cancel"] * 2
    ending.handle(SparkEnded(None))
    ending.end.tick(105.0)
    assert ending.told == ["cancel"] * 2
    over = Ending(spark_ended=True)
    over.end.tick(100.0)
    assert over.told == []


@pytest.mark.parametrize("spark_ended", [False, True])
def test_its_patience_is_ten_seconds(spark_ended: bool, caplog: pytest.LogCaptureFixture) -> None:
    ending = Ending(spark_ended)
    assert ending.end.tick(109.5) == 110.0
    assert ending.end.tick(110.0) is None
    has = "has ended" if spark_ended else "has not ended"
    assert f"10 s after the end of the attempt, Spark's job {has}; processes not gone: a, b" in caplog.text


def test_commits_under_way_and_users_requests_are_heard_and_nothing_else() -> None:
    ending = Ending()
    connection: Any = "a"
    stranger: Any = "stranger"
    committed = Committed("out", 7, True)
    request = CheckpointRequestedByUser(CheckpointRequest(CheckpointKind.CHECKPOINT), lambda answer: None)
    ending.handle(Received(connection, committed), Received(stranger, committed), request)
    ending.handle(Received(connection, PhaseEntered("is closing")))
    assert ending.told == [("a", committed), request]
