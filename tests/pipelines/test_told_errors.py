"""Whatever a user's code raises, and wherever, the job says what it was and where it came from; in one piece."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from small_job import failure_of, records

from pipeline import CheckpointConfig, KeyedOperator, Pipeline, RestartStrategy, ValueState
from pipeline.testing import TestingSink, TestingSource

Name = Callable[[str], str]


class Evil(Exception):
    """Its text can't be encoded, and one of its notes raises."""

    def __str__(self) -> str:
        return "half a pair: \ud83d"


def users_function() -> None:
    error = Evil()
    error.add_note("a note: \udcff")
    raise error


class Place:
    """Raises in one place."""

    def __init__(self, name: str, act: Callable[[], None] = users_function) -> None:
        self.name = name
        self.act = act

    def __call__(self, name: str) -> None:
        if name == self.name:
            self.act()


class Operator(KeyedOperator):
    count = ValueState(default=0)

    def __init__(self, place: Place) -> None:
        self._place = place

    def open(self, ctx: Any) -> None:
        self._place("open")

    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        self._place("process")
        self.count.value += 1
        ctx.processing_timer(0)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        self._place("on_timer")
        return []

    def snapshot(self, checkpoint_id: int) -> Any:
        self._place("snapshot")
        return None

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._place("on_checkpoint_complete")

    def close(self) -> None:
        self._place("close")


class Source(TestingSource):
    def __init__(self, place: Place) -> None:
        super().__init__(records(0, 30))
        self._place = place

    def validate(self) -> None:
        self._place("validate")

    def create_reader(self, ctx: Any) -> Any:
        self._place("create_reader")
        reader = super().create_reader(ctx)
        poll = reader.poll

        def placed(*args: Any) -> Any:
            self._place("poll")
            return poll(*args)

        reader.poll = placed
        return reader


class Sink(TestingSink):
    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = place

    def create_writer(self, ctx: Any) -> Any:
        self._place("create_writer")
        writer = super().create_writer(ctx)
        write, prepare = writer.write, writer.prepare_commit

        def placed_write(*args: Any) -> Any:
            self._place("write")
            return write(*args)

        def placed_prepare(*args: Any) -> Any:
            self._place("prepare_commit")
            return prepare(*args)

        writer.write, writer.prepare_commit = placed_write, placed_prepare
        return writer

    def create_committer(self, ctx: Any) -> Any:
        self._place("create_committer")
        committer = super().create_committer(ctx)
        commit = committer.commit

        def placed_commit(*args: Any) -> Any:
            self._place("commit")
            return commit(*args)

        committer.commit = placed_commit
        return committer


def job(name: str, folder: Path, place: Place, restart: RestartStrategy | None = None) -> Pipeline:
    config = CheckpointConfig(folder.as_uri(), interval=0.1)
    p = Pipeline(name, 1, checkpoints=config, restart=restart or RestartStrategy.none())

    def key(value: Any) -> Any:
        place("key function")
        return value["key"]

    def to_subtask(value: Any, subtasks: int) -> int:
        place("partitioner")
        return 0

    keyed = p.source("in", Source(place)).partition_custom(to_subtask).map(lambda value: value, id="pass").key_by(key)
    keyed.process("count", Operator(place)).sink("out", Sink(place))
    return p


PLACES = (
    "process",
    "commit",
    "open",
    "on_timer",
    "snapshot",
    "on_checkpoint_complete",
    "close",
    "key function",
    "partitioner",
    "validate",
    "create_reader",
    "poll",
    "create_writer",
    "write",
    "prepare_commit",
    "create_committer",
)


STEPS = {
    "process": "count",
    "open": "count",
    "on_timer": "count",
    "commit": "out",
    "write": "out",
    "prepare_commit": "out",
    "create_committer": "out",
}
"""Where the step is told: those of the chain of `count` and `out`."""


@pytest.mark.parametrize(
    "place", [pytest.param(one, marks=[] if one in PLACES[:2] else pytest.mark.full) for one in PLACES]
)
def test_an_error_that_cannot_be_encoded_is_told(place: str, unique_name: Name, tmp_path: Path, spark: Any) -> None:
    failure = failure_of(job(unique_name("job"), tmp_path, Place(place)), spark)
    assert failure.encode()
    assert "half a pair: \\ud83d" in failure
    if place != "validate":  # whose text is all there is
        assert "Evil: half" in failure.splitlines()[0]
        assert "a note: \\udcff" in failure
        assert "in users_function" in failure
        assert failure.count("half a pair") == 1
        if place in STEPS:
            assert failure.splitlines()[2] == f"in step {STEPS[place]!r}"
        assert "/pipeline/runtime/" not in failure


def test_an_exit_is_told(unique_name: Name, tmp_path: Path, spark: Any) -> None:
    failure = failure_of(job(unique_name("job"), tmp_path, Place("process", lambda: sys.exit(3))), spark)
    assert "failed: SystemExit: 3" in failure.splitlines()[0]
    assert "sys.exit(3)" in failure


def test_a_process_that_ends_itself_is_told(unique_name: Name, tmp_path: Path, spark: Any) -> None:
    failure = failure_of(job(unique_name("job"), tmp_path, Place("open", lambda: os._exit(3))), spark)
    assert "is gone" in failure
    assert "is in open() of 'count'" in failure
    assert "os._exit" in failure


def test_a_stack_that_is_too_deep_is_told(unique_name: Name, tmp_path: Path, spark: Any) -> None:
    def down() -> None:
        down()

    failure = failure_of(job(unique_name("job"), tmp_path, Place("process", down)), spark)
    assert "failed: RecursionError" in failure.splitlines()[0]
    assert "down()" in failure
    assert len(failure) < 20_000


def test_each_restart_is_one_line_in_the_log(
    unique_name: Name, tmp_path: Path, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = job(unique_name("job"), tmp_path, Place("process"), RestartStrategy.fixed_delay(1, 0))
    with caplog.at_level(logging.WARNING):
        failure = failure_of(pipeline, spark)
    lines = [record.getMessage() for record in caplog.records if "restarting" in record.getMessage()]
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert "Evil: half a pair: \\ud83d" in lines[0]
    assert failure.count("half a pair") == 1
