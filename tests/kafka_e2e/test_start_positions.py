"""A start without restore: where sources begin is settled once for all attempts, and what an earlier run has not
delivered is not skipped unnoticed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafka_driver
import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from deadlines import eventually
from kafka_job import EXACT, Record, RunningSum, Stage, expected
from small_job import NEVER

from checkpoint.errors import PermanentFailure
from checkpoint.storage.storage import CheckpointStorage
from pipeline import JobFailed, RestartStrategy
from pipeline.testing import KafkaBroker, failpoints
from sources import KafkaSource, Source, SourceContext, SourceReader
from sources.kafka import DataLoss


class FailsOnce(RunningSum):
    """Raises at one record, in the first attempt that meets it."""

    def __init__(self, folder: Path, id: int):
        self.failed = folder / "failed"
        self.id = id

    def process(self, record: Record, ctx: Any) -> Any:
        if record["id"] == self.id and not self.failed.exists():
            self.failed.touch()
            raise RuntimeError("once")
        yield from super().process(record, ctx)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["latest", pytest.param("timestamp", marks=pytest.mark.matrix)])
def test_a_driver_that_dies_before_the_first_checkpoint_is_followed_by_one_with_the_same_start(
    make_stage: Callable[..., Stage], spark: Any, start: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The next start would look for "latest" behind all that the dead one had read and not delivered."""
    stage = make_stage(100)
    stage.inputs.clear()
    options = {"start": start if start == "latest" else {"timestamp": int(time.time() * 1000) + 3_600_000}, "end": None}
    driver = kafka_driver.start(stage, source=options, pipeline={**NEVER})
    try:
        storage = CheckpointStorage(stage.folder.as_uri(), stage.name)
        eventually(lambda: stage.folder.exists() and storage.restore_record() is not None)
        stage.produce_numbered(100, 200)
    finally:
        driver.kill()
        driver.communicate()
    stage.produce_numbered(200, 300)
    handle = stage.pipeline(source=stage.source(**options), **NEVER).start(spark=spark)
    try:
        eventually(lambda: handle.metrics()["totals"].get("recordsIn", 0) >= 400)
        handle.checkpoint(timeout=30)
        eventually(lambda: len(stage.outputs()) >= 200)
    finally:
        handle.cancel()
    assert stage.findings() == EXACT
    assert "source 'in' begins where the start of" in caplog.text


@pytest.mark.parametrize("start", ["latest", "timestamp"])
def test_an_attempt_that_fails_before_the_first_checkpoint_is_followed_by_one_with_the_same_start(
    make_stage: Callable[..., Stage], spark: Any, tmp_path: Path, start: str
) -> None:
    """A later look for the start would skip what the failed attempt had read and not delivered."""
    stage = make_stage(100)
    stage.inputs.clear()
    # The time is in the future, so that no record has it yet: then the start is the end of the log.
    start_at = "latest" if start == "latest" else {"timestamp": int(time.time() * 1000) + 3_600_000}
    pipeline = stage.pipeline(source=stage.source(start=start_at, end=None), operator=FailsOnce(tmp_path, 150), **NEVER)
    handle = pipeline.start(spark=spark)
    try:
        eventually(lambda: bool(handle.processes()))
        stage.produce_numbered(100, 200)
        eventually(lambda: handle.restarts == 1)
        stage.produce_numbered(200, 300)
        eventually(lambda: handle.metrics()["totals"].get("recordsIn", 0) >= 400)
        handle.checkpoint(timeout=30)
        eventually(lambda: len(stage.outputs()) >= 200)
    finally:
        handle.cancel()
    assert stage.findings() == EXACT


def test_an_end_at_latest_is_the_one_of_the_first_attempt(
    make_stage: Callable[..., Stage], spark: Any, tmp_path: Path
) -> None:
    stage = make_stage(200)
    wanted = list(stage.inputs)
    handle = stage.pipeline(
        source=stage.source(end="latest", rate_limit=None),
        operator=FailsOnce(tmp_path, 150),
        **NEVER,
        restart=RestartStrategy.fixed_delay(attempts=1, delay=1.0),
    ).start(spark=spark)
    eventually(lambda: handle.status == "restarting")
    stage.produce(200)
    handle.wait(300)
    assert {record["id"]: record for record in stage.outputs()} == expected(wanted)


@pytest.mark.parametrize("start", ["earliest", "latest", 0])
def test_a_topic_that_is_created_again_before_the_first_checkpoint_is_noticed(
    kafka: KafkaBroker, make_stage: Callable[..., Stage], start: str | int
) -> None:
    """What was in the first one may have been read, and not delivered."""
    stage = make_stage(20)
    source = stage.source(start={stage.source_topic: start} if start == 0 else start, end=None)
    settled = source.resolution(source.resolve())
    kafka.delete_topic(stage.source_topic)
    eventually(lambda: _created(kafka, stage))
    stage.produce(30)
    with pytest.raises(DataLoss, match=r"was deleted and created again since the start"):
        _open(source.with_resolution(settled))
    assert issubclass(DataLoss, PermanentFailure)  # no restart brings it back


def test_a_beginning_that_retention_passes_before_the_first_checkpoint_is_told(
    kafka: KafkaBroker, make_stage: Callable[..., Stage], caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on at the beginning, as a start at the earliest offset may meet retention at any moment."""
    stage = make_stage(20)
    source = stage.source(start="earliest", end=None, rate_limit=None)
    settled = source.resolution(source.resolve())
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(stage.source_topic, 0, 3)]).values():
        future.result()
    left = sum(kafka.end_offsets(stage.source_topic).values()) - 3
    reader = _open(source.with_resolution(settled))
    try:
        found: list[Any] = []
        eventually(lambda: bool(found.extend(_values(reader.poll(100, 0.1)))) or len(found) >= left)
    finally:
        reader.close()
    assert len(found) == left
    assert "[0]: the offset to start from is 0, but offsets 0 to 2 (3 offsets) are gone" in caplog.text
    assert 'going on at 3, as start="earliest" says' in caplog.text


def _created(kafka: KafkaBroker, stage: Stage) -> bool:
    try:
        kafka.create_topic(stage.source_topic, stage.partitions)
    except KafkaException:  # the old one is still being deleted
        return False
    return True


def _open(source: Source) -> SourceReader:
    return source.create_reader(SourceContext("p", "in", 0, 1, _NoMetrics()))


def test_a_partition_that_comes_after_the_start_is_read_from_its_beginning(
    kafka: KafkaBroker, make_stage: Callable[..., Stage]
) -> None:
    stage = make_stage(20)
    source = stage.source(start="latest", end=None, rate_limit=None).resolve()
    kafka.add_partitions(stage.source_topic, 3)
    kafka.produce(stage.source_topic, [{"id": 1000}], partition=2)
    reader = _open(source)
    try:
        found: list[Any] = []
        eventually(lambda: bool(found) or bool(found.extend(_values(reader.poll(100, 0.1)))))
    finally:
        reader.close()
    assert found == [{"id": 1000}]


def _values(batch: Any) -> list[Any]:
    return [] if batch is None else list(batch.values)


class _NoMetrics:
    def count(self, name: str, n: float = 1) -> None:
        """Nobody looks."""

    def gauge(self, name: str, value: float | str | None) -> None:
        """Nobody looks."""


# -- start="group" ---------------------------------------------------------------------------------------------------


def _group_source(stage: Stage, **options: Any) -> KafkaSource:
    return stage.source(group_id=f"{stage.name}-group", **options)


def test_a_start_at_the_groups_offsets_is_refused_while_a_checkpoint_holds_output_that_is_not_committed(
    stage: Stage, spark: Any
) -> None:
    none = RestartStrategy.none()
    with failpoints.crash("committer.mid_produce", nth=2), pytest.raises(JobFailed):
        stage.pipeline(source=_group_source(stage), parallelism=1, restart=none).run(spark=spark, timeout=300)
    fresh = stage.pipeline(source=_group_source(stage, start="group"), parallelism=1, restart=none)
    with pytest.raises(JobFailed, match=r"(?s)holds output of sink 'out' that is not committed.*'in' would begin"):
        fresh.run("none", spark=spark, timeout=300)
    stage.pipeline(source=_group_source(stage), parallelism=1).run(spark=spark, timeout=300)
    assert stage.findings() == EXACT


def test_a_start_at_the_groups_offsets_goes_on_behind_a_run_that_has_delivered_everything(
    make_stage: Callable[..., Stage], spark: Any
) -> None:
    stage = make_stage(400)
    stage.pipeline(source=_group_source(stage)).run(spark=spark, timeout=300)
    stage.produce(100)
    stage.pipeline(source=_group_source(stage, start="group")).run("none", spark=spark, timeout=300)
    ids = [record["id"] for record in stage.outputs()]
    assert sorted(ids) == list(range(500))
