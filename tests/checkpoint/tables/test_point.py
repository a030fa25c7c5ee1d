"""A checkpoint that is read while its job runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_folders import JobFolder

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.codec import encode_key
from checkpoint.storage import restore
from checkpoint.storage.errors import DamagedFile
from checkpoint.storage.restore import RestorePoint
from checkpoint.storage.storage import CheckpointStorage
from checkpoint.tables.changes import Deletion, SavepointChanges
from checkpoint.tables.diff import diff
from checkpoint.tables.one_key import rows_of_key
from checkpoint.tables.point import DeletedMeanwhile, Wanted, open_point, reading
from checkpoint.tables.tables import table_of
from checkpoint.tables.writing import write_savepoint

KEY = encode_key("ann")
READERS: dict[str, Callable[[RestorePoint, Path], Any]] = {
    "table": lambda point, _: table_of(point, "state", Wanted()),
    "a table's part": lambda point, _: table_of(point, "state", Wanted(), typed=False).read(),
    "one key": lambda point, _: rows_of_key(point, "totals", KEY),
    "diff": lambda point, _: list(diff(point, point)),
    "savepoint": lambda point, path: write_savepoint(
        str(path / "new"), SavepointChanges(deleted=[Deletion(frozenset({KEY}))]), point, "1"
    ),
}


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    return JobFolder(CheckpointStorage(str(tmp_path / "weir"), "orders"))


@pytest.mark.parametrize("reader", READERS)
def test_what_its_job_has_deleted_is_not_damaged(job: JobFolder, tmp_path: Path, reader: str) -> None:
    ref = job.complete(1)
    point = open_point(job.storage.uri_of())
    job.complete(2)
    job.storage.delete_checkpoint(ref)
    with pytest.raises(DeletedMeanwhile, match=r"chk-1-1 was deleted while it was read.*Read the newest one"):
        READERS[reader](point, tmp_path)
    assert not (tmp_path / "new" / "_metadata").exists()


def test_a_file_that_is_missing_from_a_checkpoint_that_is_there_is_damage(job: JobFolder) -> None:
    for kind in (CheckpointKind.CHECKPOINT, CheckpointKind.SAVEPOINT):
        ref = job.complete(1, kind=kind)
        point = RestorePoint(job.storage, ref, job.storage.load(ref), "here")
        if kind is CheckpointKind.SAVEPOINT:
            job.storage.delete_checkpoint(ref)  # no job does
        else:
            job.storage.delete_private(1, 1, "totals-0")
        with pytest.raises(DamagedFile, match="is missing"), reading(point):
            point.storage.verify_sizes(point.metadata.all_files())


def test_a_jobs_newest_checkpoint_is_found_though_the_job_goes_on(
    job: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.complete(1)
    at = restore.at

    def after_a_newer_one(uri: str) -> RestorePoint:
        if (newest := job.storage.complete()[-1]).id < 3:
            job.complete(newest.id + 1)
            job.storage.delete_checkpoint(newest)
        return at(uri)

    monkeypatch.setattr(restore, "at", after_a_newer_one)
    assert open_point(job.storage.uri_of()).ref.id == 3
    with pytest.raises(restore.NotACheckpoint, match="no complete checkpoint"):
        open_point(job.storage.uri_of("chk-1-1"))
