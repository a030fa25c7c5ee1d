"""What older owners left is deleted, and nothing that could be restored."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_folders import metadata_of

from checkpoint.storage import fencing
from checkpoint.storage.fencing import Fenced, Ownership
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot
from checkpoint.storage.naming import CheckpointRef, private_path, shared_path
from checkpoint.storage.storage import CheckpointStorage
from pipeline.runtime.driver.cleanup import Cleanup


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    storage = CheckpointStorage(tmp_path.as_uri(), "job")
    storage.prepare()
    return storage


def metadata(ref: CheckpointRef, *files: FileHandle) -> CheckpointMetadata:
    return metadata_of(ref, {"out": OperatorSnapshot(files=files)}, pipeline="job")


def begin(storage: CheckpointStorage, id: int, attempt: int) -> CheckpointRef:
    """A checkpoint of which a subtask has written something."""
    ref = CheckpointRef(id, attempt)
    storage.write_file(private_path(ref, "op-0", "state"), b"state")
    return ref


def complete(storage: CheckpointStorage, id: int, attempt: int, *files: FileHandle) -> CheckpointRef:
    ref = begin(storage, id, attempt)
    storage.write_metadata(id, attempt, metadata(ref, *files))
    return ref


def segment(storage: CheckpointStorage, attempt: int) -> FileHandle:
    return storage.write_file(shared_path(attempt, "out"), b"segment")


def take_over(storage: CheckpointStorage, restored: CheckpointRef | None) -> tuple[Ownership, Cleanup]:
    ownership = fencing.take_ownership(storage)
    fencing.record_restored(storage, ownership, restored)
    kept = tuple(storage.load(ref) for ref in storage.list_checkpoints())
    return ownership, Cleanup(storage, ownership, kept)


def shared(storage: CheckpointStorage) -> set[str]:
    return set(storage.list_shared())


def test_checkpoints_that_did_not_complete_and_files_without_a_user_go(storage: CheckpointStorage) -> None:
    first, _ = take_over(storage, None)
    used, unused = segment(storage, first.attempt), segment(storage, first.attempt)
    good = complete(storage, 1, first.attempt, used)
    begin(storage, 2, first.attempt)
    _, cleanup = take_over(storage, good)
    cleanup.run(void=False)
    assert storage.folders() == [good]
    assert shared(storage) == {used.path}
    assert unused.path not in shared(storage)


def test_what_this_owner_writes_stays(storage: CheckpointStorage) -> None:
    """Its checkpoints in progress, and segments whose acknowledgement may be on its way."""
    ownership, cleanup = take_over(storage, None)
    mine, file = begin(storage, 1, ownership.attempt), segment(storage, ownership.attempt)
    cleanup.run(void=True)
    assert storage.folders() == [mine]
    assert shared(storage) == {file.path}


def test_files_of_every_retained_checkpoint_stay(storage: CheckpointStorage) -> None:
    first, _ = take_over(storage, None)
    files = [segment(storage, first.attempt) for _ in range(3)]
    refs = [complete(storage, n, first.attempt, files[n - 1]) for n in (1, 2, 3)]
    _, cleanup = take_over(storage, refs[-1])
    cleanup.run(void=True)
    assert storage.folders() == refs
    assert shared(storage) == {file.path for file in files}


def test_a_checkpoint_given_up_for_an_older_one_goes_only_once_there_is_a_new_one(storage: CheckpointStorage) -> None:
    """Until then a start by mistake can be taken back."""
    first, _ = take_over(storage, None)
    old_file, void_file, unused = (segment(storage, first.attempt) for _ in range(3))
    old = complete(storage, 1, first.attempt, old_file)
    void = complete(storage, 2, first.attempt, void_file)
    begin(storage, 3, first.attempt)
    ownership, cleanup = take_over(storage, old)
    cleanup.run(void=False)
    assert storage.folders() == [old, void]
    assert shared(storage) == {old_file.path, void_file.path}
    new = complete(storage, 4, ownership.attempt, old_file)
    cleanup.run(void=True)
    assert storage.folders() == [old, new]
    assert shared(storage) == {old_file.path}
    assert unused.path not in shared(storage)


@pytest.mark.parametrize("void", [False, True])
def test_as_long_as_it_is_not_known_which_files_a_checkpoint_needs_all_stay(
    storage: CheckpointStorage, void: bool
) -> None:
    first, _ = take_over(storage, None)
    file = segment(storage, first.attempt)
    good = complete(storage, 1, first.attempt)
    begin(storage, 2, first.attempt)
    ownership, _ = take_over(storage, good)
    Cleanup(storage, ownership, (), unreadable=(good,)).run(void)
    assert storage.folders() == [good]
    assert shared(storage) == {file.path}


def test_an_owner_that_was_fenced_deletes_nothing(storage: CheckpointStorage) -> None:
    """The newer owner may need it."""
    first, _ = take_over(storage, None)
    left, file = begin(storage, 1, first.attempt), segment(storage, first.attempt)
    _, cleanup = take_over(storage, None)
    take_over(storage, None)
    with pytest.raises(Fenced):
        cleanup.run(void=True)
    assert storage.folders() == [left]
    assert shared(storage) == {file.path}


def test_files_that_are_not_weirs_stay(storage: CheckpointStorage, tmp_path: Path) -> None:
    (tmp_path / "job" / "shared" / "notes.txt").write_text("mine")
    _, cleanup = take_over(storage, None)
    cleanup.run(void=True)
    assert shared(storage) == {"shared/notes.txt"}
