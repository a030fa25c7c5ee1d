"""What users get wrong gets a clear error and loses nothing; what their code raises comes back with its traceback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE
from small_job import NEVER, Count, assert_exact, checkpoints_of, failure_of, records, running, small_job
from spark_fixture import SLOTS

from pipeline import CheckpointConfig, JobFailed, Operator, Pipeline, RestartStrategy
from pipeline.streams import Stream
from pipeline.testing import TestingSink, TestingSource
from sinks import Committer, Sink, SinkWriter
from sources import END, Source, SourceReader

Name = Callable[[str], str]


# -- records and code -----------------------------------------------------------------------------------------


def test_a_record_without_the_key_field_is_shown_and_nothing_before_it_is_lost(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    name, sink = unique_name("job"), TestingSink()
    good, bad = records(0, 5), {"id": 5, "user": "no key"}
    source = TestingSource([*good, TestingSource.PAUSE(), bad], directory=tmp_path / "source")
    with running(small_job(name, tmp_path, source, sink), spark) as handle:
        source.wait_until_paused(PATIENCE)
        handle.checkpoint(PATIENCE)
        source.release()
        with pytest.raises(JobFailed) as caught:
            handle.wait(PATIENCE)
    message = str(caught.value)
    assert (
        "subtask in[0] failed: KeyMissing: key_by('key'): the record has no 'key': {'id': 5, 'user': 'no key'}"
        in message
    )
    assert "filter such records out before key_by" in message
    assert "Traceback" not in message
    mended = TestingSource([*good, TestingSource.PAUSE(), *records(5, 8)], directory=tmp_path / "source")
    small_job(name, tmp_path, mended, sink).run(spark=spark, timeout=PATIENCE)
    assert_exact(sink, records(0, 8))


def divide(record: dict[str, Any]) -> float:
    return 1 / record["id"]


def test_an_exception_of_user_code_comes_with_the_users_traceback(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    p = small_job(
        unique_name("job"), tmp_path, TestingSource(records(0, 1)), TestingSink(), then=lambda s: s.map(divide)
    )
    message = failure_of(p, spark)
    assert "ZeroDivisionError: division by zero" in message
    assert "test_bad_input.py" in message
    assert 'return 1 / record["id"]' in message
    assert message.endswith("(no restarts are configured)")


def test_a_value_that_cannot_travel_is_refused_where_it_would_enter_a_channel(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    def tags(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "tags": object()}

    p = small_job(
        unique_name("job"),
        tmp_path,
        TestingSource(records(0, 1)),
        TestingSink(),
        then=lambda s: s.map(tags, id="tags").rebalance(),
    )
    message = failure_of(p, spark)
    assert "EncodingError: can't encode object at value['tags']: convert it to plain values" in message
    assert "tags" in message.partition(" failed")[0]  # the subtask's name
    assert "in step 'tags'" in message
    assert "Traceback" not in message


class Unkeepable(Operator):
    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value

    def snapshot(self, checkpoint_id: int) -> Any:
        return {"ids": object()}


def test_a_snapshot_that_cannot_be_kept_fails_the_checkpoint_and_names_the_step(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    p = small_job(
        unique_name("job"),
        tmp_path,
        TestingSource(records(0, 1)),
        TestingSink(),
        then=lambda s: s.process("unkeepable", Unkeepable()),
    )
    message = failure_of(p, spark)
    assert "what step 'unkeepable' returned from snapshot" in message
    assert "can't encode object at value['operator']['ids']: convert it to plain values" in message


# -- an exception in any hook fails the attempt ---------------------------------------------------------------


def boom(fails: str, hook: str) -> None:
    if fails == hook:
        raise RuntimeError(f"boom in {hook}")


class HookedSource(Source):
    bounded = True

    def __init__(self, fails: str) -> None:
        self.fails = fails

    def create_reader(self, ctx: Any) -> SourceReader:
        boom(self.fails, "create_reader")
        return HookedReader(self.fails)


class HookedReader(SourceReader):
    def __init__(self, fails: str) -> None:
        self.fails = fails
        self.left = records(0, 3)

    def poll(self, max_records: int, timeout: float) -> Any:
        boom(self.fails, "poll")
        left, self.left = self.left, []
        return left or END

    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        boom(self.fails, "source snapshot")
        return None

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        boom(self.fails, "source complete")

    def close(self) -> None:
        boom(self.fails, "source close")


class HookedOperator(Operator):
    def __init__(self, fails: str) -> None:
        self.fails = fails

    def open(self, ctx: Any) -> None:
        boom(self.fails, "open")

    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        boom(self.fails, "process")
        yield value

    def snapshot(self, checkpoint_id: int) -> Any:
        boom(self.fails, "snapshot")
        return None

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        boom(self.fails, "complete")

    def close(self) -> None:
        boom(self.fails, "close")


class HookedSink(Sink):
    def __init__(self, fails: str) -> None:
        self.fails = fails

    def create_writer(self, ctx: Any) -> SinkWriter:
        boom(self.fails, "create_writer")
        return HookedWriter(self.fails)

    def create_committer(self, ctx: Any) -> Committer:
        boom(self.fails, "create_committer")
        return HookedCommitter(self.fails)


class HookedWriter(SinkWriter):
    def __init__(self, fails: str) -> None:
        self.fails = fails

    def write(self, value: Any, ctx: Any) -> None:
        boom(self.fails, "write")

    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        boom(self.fails, "prepare_commit")
        return ["x"]

    def close(self) -> None:
        boom(self.fails, "writer close")


class HookedCommitter(Committer):
    def __init__(self, fails: str) -> None:
        self.fails = fails

    def open(self, restored: Any) -> Any:
        boom(self.fails, "committer open")
        return restored

    def commit(self, checkpoint_id: int, committables: Any) -> None:
        boom(self.fails, "commit")

    def snapshot(self) -> Any:
        boom(self.fails, "committer snapshot")
        return None


@pytest.mark.parametrize(
    "hook",
    [
        "create_reader",
        "poll",
        "source snapshot",
        "source complete",
        "source close",
        "open",
        "process",
        "snapshot",
        "complete",
        "close",
        "create_writer",
        "write",
        "prepare_commit",
        "writer close",
        "create_committer",
        "committer open",
        "committer snapshot",
        "commit",
    ],
)
def test_an_exception_in_any_hook_fails_the_job_with_its_traceback(
    tmp_path: Path, unique_name: Name, spark: Any, hook: str
) -> None:
    p = small_job(
        unique_name("job"),
        tmp_path,
        HookedSource(hook),
        HookedSink(hook),
        then=lambda s: s.process("hooked", HookedOperator(hook)),
        **NEVER,
    )
    message = failure_of(p, spark)
    assert f"RuntimeError: boom in {hook}" in message
    assert "test_bad_input.py" in message


def test_without_a_failing_hook_that_job_finishes(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    p = small_job(
        unique_name("job"),
        tmp_path,
        HookedSource(""),
        HookedSink(""),
        then=lambda s: s.process("hooked", HookedOperator("")),
    )
    assert p.run(spark=spark, timeout=PATIENCE).status == "finished"


# -- before anything runs -------------------------------------------------------------------------------------


class HasLock(Count):
    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_an_operator_that_cannot_be_pickled_is_named_with_its_attribute(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    p = small_job(unique_name("job"), tmp_path, TestingSource(), TestingSink(), operator=HasLock())
    message = failure_of(p, spark)
    assert "step 'count': HasLock can't be sent to the workers: its attribute 'lock' (lock)" in message
    assert checkpoints_of(p) == []


def test_a_checkpoint_folder_that_cannot_be_written_is_named(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    (tmp_path / "file").write_text("not a folder")
    p = small_job(unique_name("job"), tmp_path / "file" / "below", TestingSource(), TestingSink())
    message = failure_of(p, spark)
    assert f"StorageError: cannot write to the checkpoint folder file://{tmp_path}/file/below/{p.name}" in message
    assert "choose another folder in CheckpointConfig(uri)" in message


def test_too_few_slots_are_an_error_at_once_with_both_numbers(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    p = small_job(unique_name("job"), tmp_path, TestingSource(), TestingSink(), parallelism=SLOTS)
    message = failure_of(p, spark)
    assert f"NotEnoughSlots: the job needs {2 * SLOTS} slots, one for each subtask" in message
    assert f"(in × {SLOTS}, count → out × {SLOTS})" in message
    assert f"has {SLOTS}; lower the parallelism" in message


class Invalid(TestingSource):
    def validate(self) -> None:
        raise ValueError("topic 'orders' doesn't exist; create it first")


def test_what_a_source_or_sink_finds_wrong_beforehand_names_its_step(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    p = small_job(unique_name("job"), tmp_path, Invalid(), TestingSink())
    assert "PipelineError: step 'in': topic 'orders' doesn't exist; create it first" in failure_of(p, spark)


def test_an_unbounded_job_whose_output_would_never_be_visible_is_refused(unique_name: Name, spark: Any) -> None:
    source = TestingSource()
    source.bounded = False  # type: ignore[misc]
    p = Pipeline(unique_name("job"))
    p.source("in", source).sink("out", TestingSink())
    message = failure_of(p, spark)
    assert "sink 'out' commits when checkpoints complete, and source 'in' never ends" in message
    assert "checkpoints=CheckpointConfig(folder)" in message


@pytest.mark.parametrize("wrong", ["session", 5])
def test_what_is_no_spark_session_is_refused(tmp_path: Path, unique_name: Name, wrong: Any) -> None:
    p = small_job(unique_name("job"), tmp_path, TestingSource(), TestingSink())
    assert "spark must be a classic SparkSession, a SparkContext or a master" in failure_of(p, wrong)


def test_mistakes_in_the_pipeline_are_raised_where_it_is_started(tmp_path: Path, unique_name: Name) -> None:
    p = Pipeline(unique_name("job"), checkpoints=CheckpointConfig(tmp_path.as_uri()), restart=RestartStrategy.none())
    stream: Stream = p.source("in", TestingSource())
    with pytest.raises(ValueError, match="two steps have the id 'in'"):
        stream.map(str, id="in")
    with pytest.raises(ValueError, match="is read by no step"):
        p.start()
