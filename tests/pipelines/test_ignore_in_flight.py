"""A start that leaves out what was in flight in the restored checkpoint: that checkpoint and that start only."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE
from small_job import NEVER, checkpoints_of, failure_of, folder_of, records, running, small_job, storage_of

from checkpoint.storage.naming import CheckpointRef
from pipeline import Operator, Pipeline, RestartStrategy
from pipeline.testing import TestingSink, TestingSource

PAUSE = TestingSource.PAUSE
RECORDS = 20


class Obstacle(Operator):
    """Takes its time while the file `slow` exists; fails once if there is a file `fail`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        if (Path(self.folder) / "slow").exists():
            time.sleep(0.5)
        fail = Path(self.folder) / "fail"
        if fail.exists():
            fail.unlink()
            raise RuntimeError("failed once")
        yield value


class Stage:
    """A job, and a checkpoint of it with records in flight before `obstacle`."""

    def __init__(self, tmp_path: Path, name: str, spark: Any) -> None:
        self.name, self.folder, self.spark = name, tmp_path, spark
        self.source = TestingSource(
            [*records(0, RECORDS), PAUSE(), *records(RECORDS, RECORDS + 5)], directory=tmp_path / "source"
        )
        self.sink = TestingSink(tmp_path / "sink")
        slow = tmp_path / "slow"
        slow.touch()
        with running(self.job(), spark) as handle:
            self.source.wait_until_paused(PATIENCE)
            handle.checkpoint(PATIENCE)
        slow.unlink()
        (self.ref,) = checkpoints_of(self.job())
        self.in_flight = storage_of(self.job()).load(self.ref).in_flight_records
        assert self.in_flight > 0
        self.source.release()

    def job(self, **options: Any) -> Pipeline:
        return small_job(
            self.name,
            self.folder / "checkpoints",
            self.source,
            self.sink,
            then=lambda s: s.rebalance().process("obstacle", Obstacle(str(self.folder))),
            **{**NEVER, "alignment": "unaligned", "retained": 3, **options},
        )

    def channel_state(self) -> list[Path]:
        metadata = storage_of(self.job()).load(self.ref)
        folder = folder_of(self.job(), self.ref).parent
        subtasks = [subtask for vertex in metadata.vertices.values() for subtask in vertex.subtasks]
        return [folder / file.path for subtask in subtasks for file in subtask.channel_state]

    def ids(self) -> list[int]:
        return sorted(record["id"] for record in self.sink.records)


@pytest.fixture
def stage(tmp_path: Path, unique_name: Callable[[str], str], spark: Any) -> Stage:
    return Stage(tmp_path, unique_name("job"), spark)


def dropped(caplog: pytest.LogCaptureFixture, ref: CheckpointRef) -> list[int]:
    """How many records each restore dropped, as logged for its edges."""
    message = rf"checkpoint {ref.id} is restored without its in-flight data; records dropped: (.*)"
    logged = [found[1] for record in caplog.records if (found := re.search(message, record.getMessage()))]
    return [sum(map(int, re.findall(r"(\d+) from '\w+' to '\w+'", edges))) for edges in logged]


def test_what_was_in_flight_is_processed_after_a_restore(stage: Stage) -> None:
    stage.job().run(spark=stage.spark, timeout=PATIENCE)
    assert stage.ids() == list(range(RECORDS + 5))


def test_damaged_channel_state_is_named_and_can_be_left_out_with_its_records(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    for file in stage.channel_state():
        file.write_bytes(bytes(file.stat().st_size))
    assert re.search(r"in%2Dflight\.arrow is damaged", failure_of(stage.job(), stage.spark))
    with caplog.at_level(logging.WARNING):
        stage.job().run(spark=stage.spark, timeout=PATIENCE, ignore_in_flight=stage.ref.id)
    assert dropped(caplog, stage.ref) == [stage.in_flight]
    ids = stage.ids()
    assert len(ids) == len(set(ids)) == RECORDS + 5 - stage.in_flight
    assert set(range(RECORDS, RECORDS + 5)) <= set(ids)


def test_a_restart_that_restores_the_same_checkpoint_leaves_it_out_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    (stage.folder / "fail").touch()
    with caplog.at_level(logging.WARNING):
        job = stage.job(restart=RestartStrategy.fixed_delay(3, 0.0))
        handle = job.run(spark=stage.spark, timeout=PATIENCE, ignore_in_flight=stage.ref.id)
    assert handle.restarts == 1
    assert dropped(caplog, stage.ref) == [stage.in_flight] * 2
    assert len(stage.ids()) == RECORDS + 5 - stage.in_flight


def test_an_id_that_is_not_the_restored_one_is_refused(stage: Stage) -> None:
    wrong = stage.ref.id + 1
    message = failure_of(stage.job(), stage.spark, ignore_in_flight=wrong)
    assert f"ignore_in_flight={wrong}: checkpoint {stage.ref.id} is restored" in message
    message = failure_of(stage.job(), stage.spark, restore="none", ignore_in_flight=stage.ref.id)
    assert "nothing is restored" in message
