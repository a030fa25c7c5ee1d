"""What a start refuses before anything of the job runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checkpoint_folders import JobFolder

from checkpoint.config import CheckpointConfig
from checkpoint.storage.restore import RestorePoint, newest
from checkpoint.storage.storage import CheckpointStorage
from pipeline import Pipeline, PipelineError
from pipeline.graph import StepKind
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.start.start_checks import (
    check_arguments,
    check_sinks,
    find_restore_point,
    invalid_steps,
    invisible_output,
    open_gates,
    shared_names,
    unclaimed_output,
)
from pipeline.testing import TestingSink, TestingSource
from sinks.sink import Lineage, WriterRestore


def options(name: str, **more: Any) -> JobOptions:
    p = Pipeline(name)
    p.source("in", TestingSource()).sink("out", TestingSink())
    chosen = p.options("latest", spark=None, claim=None, rewind=False, allow_unclaimed=False, ignore_in_flight=None)
    return replace(chosen, **more)


@pytest.mark.parametrize("name", ["Orders", "ORDERS"])
def test_a_folder_that_another_spelling_of_the_name_leads_to_is_refused(tmp_path: Path, name: str) -> None:
    storage = CheckpointStorage(str(tmp_path), "orders")
    JobFolder(storage).complete(1)
    # As on a file system that ignores case.
    with pytest.raises(PipelineError, match=f"those of pipeline 'orders', and this file system takes '{name}'"):
        find_restore_point(options(name), storage, False, {})


@pytest.mark.parametrize("name", ["orders", "payments"])
def test_a_folder_of_the_same_name_or_a_renamed_one_is_not(tmp_path: Path, name: str) -> None:
    storage = CheckpointStorage(str(tmp_path), "orders")
    JobFolder(storage).complete(1)
    assert find_restore_point(options(name), storage, False, {}) is not None


# -- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("restore", "claim", "ignore", "refused"),
    [
        ("latest", None, None, None),
        ("latest", None, 1, None),
        ("file:///chk-1", False, 7, None),
        ("latest", None, 0, "ignore_in_flight must be the id of a checkpoint, not 0"),
        ("latest", None, True, "ignore_in_flight must be the id of a checkpoint, not True"),
        ("latest", None, "7", "ignore_in_flight must be the id of a checkpoint, not '7'"),
        ("latest", True, None, "claim=True says .* not restore='latest'"),
        ("none", False, None, "claim=False says .* not restore='none'"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(
    restore: str, claim: bool | None, ignore: Any, refused: str | None
) -> None:
    if refused is None:
        check_arguments(restore, claim, ignore)
    else:
        with pytest.raises(PipelineError, match=refused):
            check_arguments(restore, claim, ignore)


# -- what is restored -------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    made = JobFolder(CheckpointStorage(str(tmp_path), "orders"))
    for id in (1, 2):
        made.complete(id)
    return made


def found(folder: JobFolder, restarted: bool = False, name: str = "orders", **more: Any) -> RestorePoint | None:
    return find_restore_point(options(name, **more), folder.storage, restarted, {})


def id_of(point: RestorePoint | None) -> int | None:
    return None if point is None else point.ref.id


def test_a_start_restores_what_it_says_and_a_restart_the_newest(folder: JobFolder) -> None:
    first = f"{folder.storage.location}/chk-1-{folder.ownership.attempt}"
    assert id_of(found(folder)) == 2
    assert id_of(found(folder, restore="none")) is None
    assert id_of(found(folder, restore=first)) == 1
    for restore in ("none", first):
        assert id_of(found(folder, restarted=True, restore=restore)) == 2


@pytest.mark.parametrize(("name", "claimed"), [("orders", True), ("payments", False)])
def test_output_in_the_newest_checkpoint_is_claimed_by_who_prepared_it(
    folder: JobFolder, name: str, claimed: bool
) -> None:
    point = found(folder, name=name)
    assert point is not None
    assert point.claimed is claimed


def test_records_in_flight_are_left_out_of_the_checkpoint_that_is_restored_only(folder: JobFolder) -> None:
    assert id_of(found(folder, ignore_in_flight=2)) == 2
    assert id_of(found(folder, restarted=True, ignore_in_flight=1)) == 2
    with pytest.raises(PipelineError, match="ignore_in_flight=1: checkpoint 2 is restored"):
        found(folder, ignore_in_flight=1)
    with pytest.raises(PipelineError, match="ignore_in_flight=1: nothing is restored"):
        found(folder, ignore_in_flight=1, restore="none")


def test_output_of_another_pipeline_can_not_be_claimed(folder: JobFolder) -> None:
    uri = f"{folder.storage.location}/chk-2-{folder.ownership.attempt}"
    assert id_of(found(folder, restore=uri, claim=True)) == 2
    assert id_of(found(folder, restore=uri, name="payments", claim=False)) == 2
    with pytest.raises(PipelineError, match=r"claim=True: output that .* was prepared by pipeline 'orders'"):
        found(folder, restore=uri, name="payments", claim=True)


# -- the pipeline -----------------------------------------------------------------------------------------------------


class Sink:
    """Notes what it is to say of a restore."""

    needs_checkpoints = True

    def __init__(self, *names: str, wrong: str | None = None, wrong_as: str | None = None) -> None:
        self._names = names
        self._wrong, self._wrong_as = wrong, wrong_as
        self.restores: list[WriterRestore] = []
        self.validated_as: list[tuple[str, str, int]] = []

    def exclusive_names(self, pipeline: str, id: str) -> list[str]:
        return [f"{pipeline}-{name}" for name in self._names]

    def validate(self) -> None:
        if self._wrong is not None:
            raise ValueError(self._wrong)

    def validate_as(self, pipeline: str, id: str, parallelism: int) -> None:
        self.validated_as.append((pipeline, id, parallelism))
        if self._wrong_as is not None:
            raise ValueError(self._wrong_as)

    def check_restore(self, restore: WriterRestore) -> None:
        self.restores.append(restore)

    def uncommitted(self, pipeline: str, step: str, writer: int, state: Any, committables: Any) -> Any:
        return committables


def source(bounded: bool = False, wrong: str | None = None, backpressure: bool = True) -> Any:
    payload = SimpleNamespace(
        bounded=bounded,
        validate=Sink(wrong=wrong).validate,
        max_span_records=None,
        max_span_bytes=None,
        span_window=True,
        active_backpressure=backpressure,
    )
    return SimpleNamespace(id="in", kind=StepKind.SOURCE, payload=payload)


def plan(head: Any, *sinks: tuple[str, Sink], parallelism: int = 2) -> Any:
    """A source, and a vertex with sinks behind it."""
    steps = [SimpleNamespace(id=id, kind=StepKind.SINK, payload=sink) for id, sink in sinks]
    vertices = [
        SimpleNamespace(steps=[head], head=head, is_source=True, parallelism=1),
        SimpleNamespace(steps=steps, head=None, is_source=False, parallelism=parallelism),
    ]
    return SimpleNamespace(vertices=vertices)


def test_sinks_that_would_fence_each_other_are_told() -> None:
    both = [("a", Sink("x", "y")), ("b", Sink("y", "z")), ("c", Sink("w"))]
    (told,) = shared_names(plan(source(), *both), "orders")
    assert told.startswith("sinks 'a' and 'b' would both use orders-y, and so fence each other")
    assert list(shared_names(plan(source(), ("a", Sink("x", "x"))), "orders")) == []


def test_each_source_and_sink_says_what_is_wrong_with_it_and_sinks_as_what_they_run() -> None:
    good = Sink()
    steps = plan(source(wrong="no topic"), ("a", Sink(wrong="bad")), ("b", good), ("c", Sink(wrong_as="taken")))
    assert list(invalid_steps(steps, "orders")) == [
        "step 'in': no topic",
        "step 'a': bad",
        "step 'c': taken",
    ]
    assert good.validated_as == [("orders", "b", 2)]


@pytest.mark.parametrize(("bounded", "needs", "told"), [(False, True, 1), (True, True, 0), (False, False, 0)])
def test_output_that_nobody_would_see_is_told(bounded: bool, needs: bool, told: int) -> None:
    sink = Sink()
    sink.needs_checkpoints = needs
    found = list(invisible_output(plan(source(bounded), ("out", sink))))
    assert len(found) == told
    assert all("sink 'out' commits" in one and "source 'in' never ends" in one for one in found)


def test_a_source_that_backpressure_can_not_hold_is_told() -> None:
    config = CheckpointConfig("/nowhere")
    assert list(open_gates(plan(source()), config)) == []
    (told,) = open_gates(plan(source(backpressure=False)), config)
    assert told.startswith("source 'in': active_backpressure=False: while ")


# -- sinks and what is restored ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "claim", "rewind", "lineage", "pending", "fork"),
    [
        ("orders", None, False, Lineage("l1", None), 1, False),
        ("orders", None, True, Lineage("new", ("l1", 2)), 1, False),
        ("orders", False, False, Lineage("new", ("l1", 2)), 0, False),
        ("payments", None, False, Lineage("new", ("l1", 2)), 0, True),
    ],
)
def test_each_writer_is_asked_whether_it_can_be_restored(
    folder: JobFolder, name: str, claim: bool | None, rewind: bool, lineage: Lineage, pending: int, fork: bool
) -> None:
    folder.complete(2, folder.segment())
    point = newest(folder.storage)
    assert point is not None
    sink = Sink()
    steps = plan(source(), ("out", sink))
    check_sinks(options(name, plan=steps, claim=claim, rewind=rewind), point)
    assert [one.writer for one in sink.restores] == [0, 1]
    assert [len(one.pending) for one in sink.restores] == [pending, 0]
    assert {(one.pipeline, one.sink_id, one.lineage, one.checkpoint) for one in sink.restores} == {
        (name, "out", lineage, 2)
    }
    assert {(one.rewind, one.fork) for one in sink.restores} == {(rewind, fork)}


@pytest.mark.parametrize(
    ("name", "becomes"), [("payments", "is left to pipeline 'orders'"), ("orders", "is DROPPED, since claim=False")]
)
def test_what_becomes_of_output_that_is_not_claimed_is_told(folder: JobFolder, name: str, becomes: str) -> None:
    point = newest(folder.storage)
    assert point is not None
    steps = plan(source(), ("out", Sink()))
    assert unclaimed_output(options(name, plan=steps), point) is None
    folder.complete(3, folder.segment())
    point = newest(folder.storage)
    assert point is not None
    told = unclaimed_output(options(name, plan=steps), point)
    assert told is not None
    assert told.endswith(f"it {becomes}")
