"""Deleting the files of checkpoints, over a real folder, when a test says so."""

from __future__ import annotations

import queue
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attempt_parts import attempt_context
from manual_system import ManualSystem

from checkpoint.storage import fencing, savepoints
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.naming import CheckpointRef, private_path, subtask_name
from pipeline import Pipeline
from pipeline.runtime.driver.attempt_events import Deleted, Fenced
from pipeline.runtime.driver.checkpoint_deletion import CheckpointDeletion
from pipeline.testing import TestingSink, TestingSource


class Deleting:
    """The deleter of attempt 2; checkpoint 1 is of attempt 1. Subtasks 0 and 1 read, 2 and 3 write."""

    def __init__(self, folder: Path) -> None:
        p = Pipeline("job", parallelism=2)
        p.source("in", TestingSource()).rebalance().sink("out", TestingSink())
        attempt_context(p.plan(), str(folder))
        context = attempt_context(p.plan(), str(folder))
        self.storage = context.start.storage
        assert context.start.ownership.attempt == 2
        self._folder = folder
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.system = ManualSystem()
        retained = replace(context, start=replace(context.start, retained=(CheckpointRef(1, 1),)))
        self.deletion = CheckpointDeletion(retained, self.inbox, self.system)

    def file(self, path: str) -> FileHandle:
        return self.storage.write_file(path, b"content")

    def private(self, id: int, attempt: int, step: str = "in", subtask: int = 0) -> FileHandle:
        return self.file(private_path(CheckpointRef(id, attempt), subtask_name(step, subtask), "state"))

    def there(self, *handles: FileHandle) -> list[bool]:
        return [(self._folder / "job" / handle.path).exists() for handle in handles]

    def work(self) -> list[Any]:
        """Let it delete; what it tells then."""
        self.system.executors["weir-delete"].run()
        told = []
        while not self.inbox.empty():
            told.append(self.inbox.get())
        return told


@pytest.fixture
def deleting(tmp_path: Path) -> Deleting:
    return Deleting(tmp_path / "weir")


def test_checkpoints_of_earlier_attempts_are_deleted_where_they_are(deleting: Deleting) -> None:
    earlier, own, same_id = deleting.private(1, 1), deleting.private(2, 2), deleting.private(1, 2)
    shared = deleting.file("shared/1-a.arrow")
    deleting.deletion.checkpoint(1, [shared])
    assert deleting.work() == [Deleted(1)]
    assert deleting.there(earlier, own, same_id, shared) == [False, True, True, False]
    deleting.deletion.checkpoint(2)
    assert deleting.work() == [Deleted(2)]
    assert deleting.there(own, same_id) == [False, True]


def test_shared_files_are_spared_until_the_last_savepoint_that_may_copy_them_has_ended(
    deleting: Deleting, tmp_path: Path
) -> None:
    files = [deleting.file(f"shared/1-{name}.arrow") for name in "abc"]
    for id in (3, 4):
        deleting.deletion.savepoint_begins(id, savepoints.prepare(str(tmp_path / f"savepoint-{id}")))
    for id, file in enumerate(files[:2], start=1):
        deleting.deletion.checkpoint(id, [file])
    deleting.deletion.savepoint_ends(3)
    deleting.deletion.savepoint_ends(3)
    assert deleting.work() == [Deleted(1), Deleted(2)]
    assert deleting.there(*files) == [True, True, True]
    deleting.deletion.savepoint_ends(4)
    deleting.work()
    assert deleting.there(*files) == [False, False, True]
    deleting.deletion.checkpoint(5, files[2:])
    deleting.work()
    assert deleting.there(*files) == [False, False, False]


def test_a_deletion_that_fails_is_told_as_over_all_the_same(
    deleting: Deleting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deleting.storage, "delete_checkpoint", lambda ref: 1 // 0)
    deleting.deletion.checkpoint(2)
    assert deleting.work() == [Deleted(2)]
    assert "checkpoint 2 could not be deleted" in caplog.text


def test_who_has_lost_the_job_deletes_nothing(deleting: Deleting) -> None:
    private, shared = deleting.private(2, 2), deleting.file("shared/1-a.arrow")
    fencing.take_ownership(deleting.storage)
    deleting.deletion.checkpoint(2, [shared])
    deleting.deletion.private_files(2, [0])
    told = deleting.work()
    assert [type(one) for one in told] == [Fenced, Deleted, Fenced]
    assert deleting.there(private, shared) == [True, True]


def test_who_loses_the_job_meanwhile_deletes_no_shared_file(
    deleting: Deleting, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = deleting.file("shared/1-a.arrow")
    monkeypatch.setattr(deleting.storage, "delete_checkpoint", lambda ref: fencing.take_ownership(deleting.storage))
    deleting.deletion.checkpoint(2, [shared])
    assert [type(one) for one in deleting.work()] == [Fenced, Deleted]
    assert deleting.there(shared) == [True]


def test_only_what_the_subtasks_named_have_written_goes(deleting: Deleting) -> None:
    written = [deleting.private(2, 2, "out", subtask) for subtask in (0, 1)]
    source, other = deleting.private(2, 2, "in", 1), deleting.private(3, 2, "out", 1)
    deleting.deletion.private_files(2, [3])
    assert deleting.work() == []
    assert deleting.there(*written, source, other) == [True, False, True, True]
    deleting.deletion.private_files(2, [])
    assert deleting.work() == []


def test_what_was_written_for_a_savepoint_lies_in_its_folder(deleting: Deleting, tmp_path: Path) -> None:
    folder = savepoints.prepare(str(tmp_path / "savepoint"))
    deleting.deletion.savepoint_begins(2, folder)
    path = private_path(CheckpointRef(2, 2), subtask_name("in", 0), "state")
    in_savepoint, in_job = folder.storage.write_file(path, b"content"), deleting.private(2, 2)
    deleting.deletion.savepoint_ends(2)
    deleting.deletion.private_files(2, [0])
    deleting.work()
    assert not (tmp_path / "savepoint" / in_savepoint.path).exists()
    assert deleting.there(in_job) == [True]
    deleting.deletion.checkpoint(2)
    assert deleting.work() == [Deleted(2)]
    assert list((tmp_path / "savepoint").iterdir()) == []
    assert deleting.there(in_job) == [True]
