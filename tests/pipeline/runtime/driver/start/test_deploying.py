"""Which process becomes which subtask, and what each is told of what is restored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from attempt_parts import JOB, attempt_context, job_options
from checkpoint_folders import metadata_of

from checkpoint.committables import Committable, CommittableName, SinkState
from checkpoint.storage.handles import StateFile
from checkpoint.storage.local_copies import copy_of
from checkpoint.storage.metadata import OperatorSnapshot, SubtaskSnapshot, VertexSnapshot
from checkpoint.storage.naming import CheckpointRef, private_path
from checkpoint.storage.probe import answer_probe, write_probe
from checkpoint.storage.restore import RestorePoint
from checkpoint.storage.storage import INLINE_STATE_LIMIT, CheckpointStorage
from pipeline import KeyedOperator, Pipeline, ValueState
from pipeline.plan import Plan
from pipeline.runtime.deployment import Deployment
from pipeline.runtime.driver.attempt_context import AttemptContext
from pipeline.runtime.driver.failures import AttemptFailed
from pipeline.runtime.driver.start.deploying import deployments
from pipeline.runtime.driver.start.placement import Slot
from pipeline.runtime.topology_changes import snapshot_edges
from pipeline.testing import TestingSink, TestingSource

REF = CheckpointRef(7, 1)


class Count(KeyedOperator):
    count = ValueState(default=0)

    def process(self, value: Any, ctx: Any) -> Any:
        yield value


def plan(parallelism: int = 2) -> Plan:
    """`in[0]` is subtask 0, `count → out[0]` subtask `parallelism`, and so on."""
    p = Pipeline(JOB, parallelism=parallelism)
    p.source("in", TestingSource()).key_by(0).process("count", Count()).sink("out", TestingSink())
    return p.plan()


HERE = Slot("here")


@dataclass
class Process:
    partition: int
    slot: Slot = HERE

    @property
    def address(self) -> tuple[str, int]:
        return ("host", 5000 + self.partition)


def processes(count: int = 4) -> list[Process]:
    return [Process(partition) for partition in range(count)]


def state_of(storage: CheckpointStorage, step: str, index: int) -> tuple[StateFile, ...]:
    return (StateFile(storage.write_file(private_path(REF, f"{step}-{index}", "state"), b"state")),)


def restored(folder: Path, *, pipeline: str = JOB, parallelism: int = 2, **start: Any) -> AttemptContext:
    """The context of an attempt that restores a checkpoint of a plan with this parallelism.

    Args:
        pipeline: whose checkpoint it is.
        start: of `StartPoint`.
    """
    context, old = attempt_context(plan(), str(folder)), plan(parallelism)
    storage = context.start.storage
    name = CommittableName(7, 0)
    sink = {"sink": SinkState({0: (Committable(name, "rows"),)}, {0: "marker"}).to_wire()}
    source = storage.spill(OperatorSnapshot({"source": "x" * (2 * INLINE_STATE_LIMIT)}), f"{REF.path}/in-0.msgpack")
    counts = [
        SubtaskSnapshot(
            {
                "count": OperatorSnapshot(keyed_state=state_of(storage, "count", index)),
                "out": OperatorSnapshot(sink if index == 0 else {}),
            }
        )
        for index in range(parallelism)
    ]
    vertices = {
        "in": VertexSnapshot(tuple(SubtaskSnapshot({"in": source}) for _ in range(parallelism))),
        "count → out": VertexSnapshot(tuple(counts)),
    }
    edges = snapshot_edges(old)
    metadata = metadata_of(REF, pipeline=pipeline, max_parallelism=128, vertices=vertices, edges=edges)
    point = RestorePoint(storage, REF, metadata, storage.uri_of(REF.path))
    return replace(context, start=replace(context.start, point=point, **start))


def of(context: AttemptContext, *, replay: bool = False) -> list[Deployment]:
    return deployments(context, processes(), replay)


def test_without_a_restore_each_process_becomes_the_subtask_of_its_partition(tmp_path: Path) -> None:
    found = of(attempt_context(plan(), str(tmp_path)))
    assert [one.subtask for one in found] == [0, 1, 2, 3]
    assert all(one.peers == {i: ("host", 5000 + i) for i in range(4)} for one in found)
    told = found[0]
    assert (told.lineage, told.restored_checkpoint, told.rewind, told.fork) == (("L1", None), 0, False, False)
    assert (told.ignore_earlier_output, told.replay, told.same_topology) == (False, False, False)
    assert told.restored_from == (str(tmp_path), JOB)


def test_subtasks_come_where_copies_of_their_state_are(tmp_path: Path) -> None:
    context = restored(tmp_path)
    assert context.start.restored is not None
    (count,) = context.start.restored.operator("count")[1].keyed_state
    copy = copy_of(count.file.path)
    assert copy is not None
    there = [Process(0, Slot("with a copy", frozenset({copy}))), *(Process(n, Slot(f"{n}")) for n in (1, 2, 3))]
    found = deployments(context, there, False)
    assert found[0].subtask == 3
    assert sorted(one.subtask for one in found) == [0, 1, 2, 3]
    for one in found:
        assert one.peers == {other.subtask: process.address for other, process in zip(found, there, strict=True)}
    assert [file.file for file in found[0].restore.keyed_state["count"]] == [count.file]


@pytest.mark.parametrize("pipeline", [JOB, "another"])
@pytest.mark.parametrize("claimed", [True, False])
def test_output_that_is_not_this_jobs_is_not_committed(tmp_path: Path, pipeline: str, claimed: bool) -> None:
    told = of(restored(tmp_path, pipeline=pipeline, claimed=claimed))[2]
    assert (told.fork, told.restored_checkpoint) == (pipeline != JOB, 7)
    held = told.restore.sinks["out"]
    assert list(held.pending) == ([0] if claimed else [])
    assert held.committers == ({0: "marker"} if claimed or pipeline == JOB else {})


@pytest.mark.parametrize(("parallelism", "same"), [(2, True), (3, False)])
def test_whether_edges_are_as_they_were_is_told(tmp_path: Path, parallelism: int, same: bool) -> None:
    found = of(restored(tmp_path, parallelism=parallelism), replay=True)
    assert [(one.same_topology, one.replay) for one in found] == [(same, True)] * 4


def test_what_a_user_has_said_of_earlier_output_is_told(tmp_path: Path) -> None:
    context = restored(tmp_path, rewind=True)
    told = of(context)[0]
    assert (told.rewind, told.ignore_earlier_output, told.allow_unclaimed) == (True, False, False)
    job = job_options(context.plan, restore="none", allow_unclaimed=True)
    told = of(replace(context, job=job))[0]
    assert (told.ignore_earlier_output, told.allow_unclaimed) == (True, True)


def test_state_that_lies_in_a_file_is_read_once_for_all_subtasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, read = restored(tmp_path), []
    unspill = CheckpointStorage.unspill

    def noting(storage: CheckpointStorage, snapshot: OperatorSnapshot) -> OperatorSnapshot:
        read.append(snapshot.state_file)
        return unspill(storage, snapshot)

    monkeypatch.setattr(CheckpointStorage, "unspill", noting)
    for one in of(context)[:2]:
        assert [len(state) for state in one.restore.sources["in"]] == [2 * INLINE_STATE_LIMIT] * 2
    assert len(read) == 1


def test_a_damaged_file_is_told_as_damage_of_the_checkpoint(tmp_path: Path) -> None:
    context = restored(tmp_path)
    (tmp_path / JOB / REF.path / "in-0.msgpack").write_bytes(b"damaged")
    with pytest.raises(AttemptFailed, match=r"in-0\.msgpack is damaged") as caught:
        of(context)
    assert caught.value.damaged == str(caught.value)
    assert not caught.value.permanent


@pytest.mark.parametrize("first", [True, False])
def test_a_process_that_does_not_see_the_folder_ends_the_first_attempt_for_good(tmp_path: Path, first: bool) -> None:
    context = attempt_context(plan(), str(tmp_path))
    storage = context.start.storage
    probe = write_probe(storage)
    context = replace(
        context, start=replace(context.start, probe=probe), spec=replace(context.spec, first_attempt=first)
    )
    for worker in ("0", "1", "2"):
        answer_probe(storage, probe, worker)
    with pytest.raises(AttemptFailed, match="what worker 3 wrote is not seen") as caught:
        of(context)
    assert caught.value.permanent is first
    probe = write_probe(storage)
    for worker in ("0", "1", "2", "3"):
        answer_probe(storage, probe, worker)
    assert len(of(replace(context, start=replace(context.start, probe=probe)))) == 4
