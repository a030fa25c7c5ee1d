"""Operator list and union state in whole jobs, restored at other parallelisms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from deadlines import PATIENCE, eventually
from small_job import NEVER, failure_of, running, storage_of

from pipeline import (
    CheckpointConfig,
    JobHandle,
    Operator,
    OperatorListState,
    OperatorUnionState,
    Pipeline,
    RestartStrategy,
)
from pipeline.testing import TestingSink, TestingSource

Name = Callable[[str], str]
PAD = "x" * 20_000
"""Makes the state of a subtask too large to be inline in the checkpoint's metadata."""


class Holder(Operator):
    """Holds every record in a list, lets the others know at each barrier what it holds, and reports for every record
    what it had found when it was opened."""

    held = OperatorListState[Any]()
    known = OperatorUnionState[Any]()

    def __init__(self) -> None:
        self.subtask = -1
        self.found: dict[str, Any] = {}

    def open(self, ctx: Any) -> None:
        self.subtask = ctx.subtask
        self.found = {"held": [id for id, _ in self.held], "known": list(self.known)}

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        self.held.append((value["id"], PAD))
        yield {"subtask": ctx.subtask, "parallelism": ctx.parallelism, "id": value["id"], **self.found}

    def snapshot(self, checkpoint_id: int) -> Any:
        self.known.update([(self.subtask, [id for id, _ in self.held])])
        return None


class Forgetful(Operator):
    """What `Holder` may become: without its list."""

    known = OperatorUnionState[Any]()

    def process(self, value: Any, ctx: Any) -> Any:
        return ()


def taken(handle: JobHandle) -> int:
    """Records that the operator has taken."""
    return sum(values["recordsIn"] for name, values in handle.metrics()["subtasks"].items() if name.startswith("hold"))


def cut(items: list[Any], parts: int) -> list[list[Any]]:
    """As evenly as possible, in order."""
    return [items[i * len(items) // parts : (i + 1) * len(items) // parts] for i in range(parts)]


def test_lists_are_shared_out_and_unions_come_to_everybody_at_every_restore(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    """3 → 5 → 5 → 2: every item that a subtask held at the barrier is in exactly one subtask afterwards."""
    # From the second phase on each subtask gets one record, at which it reports.
    phases, counts = [3, 5, 5, 2], [11, 5, 5, 2]
    firsts = [sum(counts[:i]) for i in range(len(counts))]
    script = [[{"id": first + i} for i in range(count)] for first, count in zip(firsts, counts, strict=True)]
    source = TestingSource(
        [record for part in script for record in (*part, TestingSource.PAUSE())], directory=tmp_path / "source"
    )
    sink, name = TestingSink(tmp_path / "sink"), unique_name("job")

    def job(parallelism: int, operator: Operator) -> Pipeline:
        config = CheckpointConfig((tmp_path / "checkpoints").as_uri(), **NEVER, alignment="aligned")
        p = Pipeline(name, parallelism, checkpoints=config, restart=RestartStrategy.none())
        held = p.source("in", source, parallelism=1).rebalance().process("hold", operator)
        held.rebalance().sink("out", sink, parallelism=1)
        return p

    for number, (parallelism, part) in enumerate(zip(phases, script, strict=True)):
        if number == 3:
            message = failure_of(job(parallelism, Forgetful()), spark)
            assert "the checkpoint holds operator list state 'held', which the operator doesn't declare" in message
        pipeline = job(parallelism, Holder())
        with running(pipeline, spark) as handle:
            eventually(lambda handle=handle, part=part: taken(handle) == len(part), PATIENCE)  # type: ignore[misc]
            handle.checkpoint(PATIENCE)
            done = firsts[number] + len(part)
            eventually(lambda done=done: len(sink.records) == done, PATIENCE)  # type: ignore[misc]
        source.release()
    newest = storage_of(pipeline).load(storage_of(pipeline).list_checkpoints()[-1])
    assert all(snapshot.state_file is not None for snapshot in newest.operator("hold"))

    reports = sorted(sink.records, key=lambda report: report["id"])
    assert all(report["held"] == report["known"] == [] for report in reports[: counts[0]])
    held: list[list[int]] = [[] for _ in range(phases[0])]  # at the last barrier, by subtask
    for report in reports[: counts[0]]:
        held[report["subtask"]].append(report["id"])
    for number in range(1, len(phases)):
        of_phase = reports[firsts[number] : firsts[number] + counts[number]]
        assert sorted(report["subtask"] for report in of_phase) == list(range(phases[number]))
        everything = list(chain.from_iterable(held))
        assert sorted(everything) == list(range(firsts[number]))
        parts = held if phases[number] == phases[number - 1] else cut(everything, phases[number])
        known = [(subtask, items) for subtask, items in enumerate(held)]
        for report in of_phase:
            assert report["held"] == parts[report["subtask"]]
            assert report["known"] == known
        held = [list(items) for items in parts]
        for report in of_phase:
            held[report["subtask"]].append(report["id"])
