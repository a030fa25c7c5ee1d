"""What no restart can heal ends the job at once, and says so briefly; what may heal goes through the strategy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE
from small_job import Count, checkpoints_of, failure_of, folder_of, records, running, small_job

from pipeline import KeyedOperator, Pipeline, RestartStrategy, ValueState
from pipeline.testing import TestingSink, TestingSource

Name = Callable[[str], str]


class Renamed(KeyedOperator):
    number = ValueState(default=0)

    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        self.number.value += 1
        yield value


class NotRestorable(Count):
    """Its own `restore` fails, which may heal: it is the user's code, and may ask somebody."""

    def restore(self, state: Any) -> None:
        raise ConnectionError("the registry is away")

    def snapshot(self, checkpoint_id: int) -> Any:
        return 1


class Wide(KeyedOperator):
    """Refuses itself, as a part of the graph, where it is opened."""

    def open(self, ctx: Any) -> None:
        raise ValueError("it may be there at the next attempt")

    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value


class Stage:
    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._folder = folder
        self._sink = TestingSink()
        self._source = TestingSource([*records(0, 30), TestingSource.PAUSE(), *records(30, 60)])

    def job(self, operator: KeyedOperator | None = None) -> Pipeline:
        restart = RestartStrategy.fixed_delay(3, 0)
        return small_job(
            self._name, self._folder / "c", self._source, self._sink, operator=operator, restart=restart, parallelism=2
        )

    def run(self, spark: Any, operator: KeyedOperator | None = None) -> None:
        """Leave a checkpoint."""
        with running(self.job(operator), spark) as handle:
            self._source.wait_until_paused(PATIENCE)
            handle.checkpoint(PATIENCE)

    def restarts(self, spark: Any, caplog: pytest.LogCaptureFixture, operator: KeyedOperator | None) -> tuple[int, str]:
        """How often the next run is restarted, and what it says in the end."""
        with caplog.at_level(logging.WARNING):
            failure = failure_of(self.job(operator), spark)
        return sum("restarting in" in record.getMessage() for record in caplog.records), failure


@pytest.fixture
def stage(unique_name: Name, tmp_path: Path) -> Stage:
    return Stage(unique_name("job"), tmp_path)


def test_a_state_that_was_renamed(stage: Stage, spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    stage.run(spark)
    restarts, failure = stage.restarts(spark, caplog, Renamed())
    assert restarts == 0
    (line,) = failure.splitlines()
    assert "holds state 'count' for Renamed, which declares 'number'" in line
    assert "allow_unclaimed=True" in line


@pytest.mark.full
def test_a_file_that_is_damaged(stage: Stage, spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    stage.run(spark)
    ref = checkpoints_of(stage.job())[-1]
    files = [path for path in folder_of(stage.job(), ref).rglob("*") if path.is_file() and path.name != "_metadata"]
    for path in files:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
    restarts, failure = stage.restarts(spark, caplog, None)
    assert restarts == 0
    assert "is damaged" in failure
    assert "Traceback" not in failure


@pytest.mark.full
def test_a_restore_of_the_users_that_fails_is_restarted(
    stage: Stage, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    stage.run(spark, NotRestorable())
    restarts, failure = stage.restarts(spark, caplog, NotRestorable())
    assert restarts == 3
    assert "ConnectionError: the registry is away" in failure.splitlines()[0]
    assert failure.count("the registry is away") == 2  # the source line is there, too
    assert "3 restarts are used up" in failure


@pytest.mark.full
def test_an_open_that_fails_is_restarted(stage: Stage, spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    restarts, failure = stage.restarts(spark, caplog, Wide())
    assert restarts == 3
    assert "in open" in failure
