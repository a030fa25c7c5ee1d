"""What output of a checkpoint is not known to be committed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checkpoint_folders import JobFolder

from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.restore import newest
from checkpoint.storage.storage import CheckpointStorage
from pipeline.errors import PipelineError
from pipeline.graph import StepKind
from pipeline.runtime.driver.uncommitted import refuse_to_skip, uncommitted_output, uncommitted_parts


class Sink:
    """Knows that the first committables are committed, so many."""

    def __init__(self, committed: int) -> None:
        self._committed = committed
        self.asked: list[Any] = []

    def uncommitted(self, pipeline: str, step: str, writer: int, state: Any, committables: Any) -> Any:
        self.asked.append((pipeline, step, writer))
        return committables[self._committed :]


def plan(sink: Sink | None, skips_ahead: bool = False) -> Any:
    source = SimpleNamespace(id="in", kind=StepKind.SOURCE, payload=SimpleNamespace(skips_ahead=skips_ahead))
    steps = [source, *([] if sink is None else [SimpleNamespace(id="out", kind=StepKind.SINK, payload=sink)])]
    return SimpleNamespace(vertices=[SimpleNamespace(is_source=True, head=source, steps=steps)])


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return JobFolder(CheckpointStorage(str(tmp_path), "orders"))


def metadata(folder: JobFolder) -> CheckpointMetadata:
    point = newest(folder.storage)
    assert point is not None
    return point.metadata


def parts(folder: JobFolder, sink: Sink | None) -> list[tuple[str, int]]:
    return list(uncommitted_parts(plan(sink), "orders", metadata(folder), folder.storage))


@pytest.mark.parametrize(("committed", "left"), [(0, [("out", 2)]), (1, [("out", 1)]), (2, [])])
def test_a_sink_of_the_plan_says_itself_what_is_left(folder: JobFolder, committed: int, left: Any) -> None:
    folder.complete(4, folder.segment(), folder.segment())
    sink = Sink(committed)
    assert parts(folder, sink) == left
    assert sink.asked == [("orders", "out", 0)]


def test_of_a_sink_that_is_gone_all_counts(folder: JobFolder) -> None:
    folder.complete(4, folder.segment(), folder.segment())
    assert parts(folder, None) == [("out", 2)]


def test_where_nothing_is_pending_nothing_is_left(folder: JobFolder) -> None:
    folder.complete(4)
    assert parts(folder, None) == []
    assert uncommitted_output(plan(None), "orders", metadata(folder), folder.storage) is None


def test_a_source_that_would_begin_behind_it_is_refused(folder: JobFolder) -> None:
    refuse_to_skip(plan(None, skips_ahead=True), "orders", folder.storage)
    ref = folder.complete(4, folder.segment())
    refuse_to_skip(plan(None), "orders", folder.storage)
    refuse_to_skip(plan(Sink(1), skips_ahead=True), "orders", folder.storage)
    told = r"checkpoint 4 holds output of sink 'out' .* \(1 part\)\. Source 'in' would begin behind it"
    with pytest.raises(PipelineError, match=told):
        refuse_to_skip(plan(None, skips_ahead=True), "orders", folder.storage)
    folder.storage.put(f"{ref.path}/_metadata", b"damaged")
    with pytest.raises(PipelineError, match=r"can't be told: .*Source 'in' would begin behind it"):
        refuse_to_skip(plan(None, skips_ahead=True), "orders", folder.storage)
