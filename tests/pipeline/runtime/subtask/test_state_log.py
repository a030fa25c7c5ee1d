"""Whether a subtask goes on with the files that its state was restored from."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from manual_system import ManualExecutor

from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.storage import CheckpointStorage
from pipeline.runtime.subtask import state_log
from pipeline.runtime.subtask.task_metrics import TaskMetrics


class Backend:
    operator, key_groups, max_parallelism = "step", range(4), 4

    def __init__(self, as_it_was: bool) -> None:
        self.restored_as_it_was = as_it_was
        self.changed: list[bool] = []

    def settle(self, changed: bool) -> None:
        self.changed.append(changed)


class Made:
    """What the log is made of."""

    parts: tuple[Any, ...] = ()

    def __init__(self, *parts: Any) -> None:
        Made.parts = parts


def shared(name: str) -> StateFile:
    return StateFile(FileHandle(f"shared/{name}", 10, ""), range(4))


OWN_FILE = StateFile(FileHandle("chk-5-1/step-0-state.arrow", 10, ""), range(4))


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(state_log, "LoggedState", Made)
    storage = CheckpointStorage(str(tmp_path), "job")
    storage.prepare()
    metrics = TaskMetrics()

    def open_log(backend: Any, restored: list[StateFile], own: bool) -> Any:
        executor: Any = ManualExecutor()
        state_log.open_log(backend, restored, own, storage, 3, "step-0", "none", executor, metrics, threading.Condition)
        return Made.parts

    open_log.metrics = metrics  # type: ignore[attr-defined]
    return open_log


@pytest.mark.parametrize(
    ("own", "as_it_was", "files", "goes_on"),
    [
        (True, True, [shared("a"), shared("b")], True),
        (True, True, [], True),
        (False, True, [shared("a")], False),
        (True, False, [shared("a")], False),
        (True, True, [shared("a"), OWN_FILE], False),
        (True, True, [OWN_FILE], False),
    ],
)
def test_it_goes_on_with_shared_files_of_its_own_folder_that_hold_its_state_as_it_is(
    opened: Any, own: bool, as_it_was: bool, files: list[StateFile], goes_on: bool
) -> None:
    backend = Backend(as_it_was)
    parts = opened(backend, files, own)
    assert list(parts[5]) == (files if goes_on else [])
    assert backend.changed == [not goes_on], "what it can't go on with is written anew"


def test_merges_are_counted_with_those_that_failed(opened: Any) -> None:
    merged = opened(Backend(True), [], True)[6]
    merged(100, True)
    merged(20, False)
    told = opened.metrics.report()
    assert (told["mergedStateBytes"], told["failedStateMerges"]) == (120, 1)


def test_files_of_changes_are_shared_and_named_after_attempt_and_subtask(opened: Any) -> None:
    folder = opened(Backend(True), [], True)[3]
    created = folder.create()
    created.write(b"x")
    assert created.close().path.startswith("shared/3-step-0-state")
