"""Storage that is full, read-only or failing: the error says which file and why, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from s3_server import Bucket, StoredFolder
from small_disk import SmallDisk, small_disk

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.storage.errors import StorageError
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.storage import CheckpointStorage
from pipeline.testing import failpoints

MIB = 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 1) as disk:
        yield disk


def complete(storage: CheckpointStorage, checkpoint_id: int) -> CheckpointRef:
    metadata = CheckpointMetadata(
        id=checkpoint_id,
        attempt=1,
        kind=CheckpointKind.CHECKPOINT,
        pipeline="orders",
        lineage="l",
        lineage_parent=None,
        max_parallelism=128,
        weir_version="0.1.0",
        trigger_time=0.0,
        duration=0.1,
        options={},
        vertices={},
    )
    return storage.write_metadata(checkpoint_id, 1, metadata)


def prepared(root: Path | Bucket) -> CheckpointStorage:
    storage = CheckpointStorage(root.uri if isinstance(root, Bucket) else str(root), "orders")
    storage.prepare()
    return storage


# -- full -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "size"),
    [(256 * 1024, MIB), (0, 100)],
    ids=["in the middle of a large file", "when a small file is closed"],
)
def test_a_file_that_finds_no_room_is_named_and_leaves_nothing(disk: SmallDisk, left: int, size: int) -> None:
    storage = prepared(disk.folder)
    folder = StoredFolder(disk.folder, "orders")
    (disk.folder / "orders/chk-1-1").mkdir()
    piece = size // 4
    with disk.full(left):
        with pytest.raises(StorageError) as caught:
            storage.write_file("chk-1-1/totals-0-state.arrow", [bytes(piece)] * 4)
        assert folder.names() == []
    assert str(caught.value) == f"cannot write {folder.location}/chk-1-1/totals-0-state.arrow: No space left on device"
    assert storage.write_file("chk-1-1/totals-0-state.arrow", bytes(size // 2)).size == size // 2


def test_metadata_that_finds_no_room_is_not_there(disk: SmallDisk) -> None:
    storage = prepared(disk.folder)
    good = complete(storage, 1)
    (disk.folder / "orders/chk-2-1").mkdir()
    with disk.full(), pytest.raises(StorageError, match=r"cannot write .*chk-2-1/_metadata: No space left on device"):
        complete(storage, 2)
    assert storage.list_checkpoints() == [good]
    assert StoredFolder(disk.folder, "orders").names() == ["chk-1-1/_metadata"]
    complete(storage, 3)


def test_a_folder_without_room_is_refused_before_the_job_starts(disk: SmallDisk) -> None:
    prepared(disk.folder)
    with disk.full(), pytest.raises(StorageError, match=r"cannot write to .*/orders: No space left on device"):
        prepared(disk.folder)


def test_there_is_room_to_delete_on_a_full_disk(disk: SmallDisk) -> None:
    storage = prepared(disk.folder)
    ref = complete(storage, 1)
    with disk.full():
        storage.delete_checkpoint(ref)
        assert storage.folders() == []


# -- read-only ------------------------------------------------------------------------------------------------


def test_a_read_only_folder_is_refused_with_what_to_do(disk: SmallDisk) -> None:
    storage = prepared(disk.folder)
    disk.set_writable(False)
    with pytest.raises(StorageError, match=r"cannot write to .*/orders: Read-only file system .*Make it writable"):
        storage.prepare()
    with pytest.raises(StorageError, match=r"cannot create .*chk-1-1/a: Read-only file system"):
        storage.write_file("chk-1-1/a", b"x")


# -- failing at each step -------------------------------------------------------------------------------------

STEPS: dict[str, Callable[[CheckpointStorage], object]] = {
    "storage.create": lambda storage: storage.write_file("chk-1-1/a", b"abc"),
    "storage.write": lambda storage: storage.write_file("chk-1-1/a", [b"abc", b"def"]),
    "storage.close": lambda storage: storage.write_file("chk-1-1/a", b"abc"),
    "storage.put": lambda storage: storage.put("owner", b"abc"),
    "storage.read": lambda storage: storage.get("owner"),
    "storage.list": lambda storage: storage.owners(),
    "storage.delete": lambda storage: storage.delete_checkpoint(CheckpointRef(1, 1)),
}


@pytest.mark.parametrize("kind", ["local", "s3"])
@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_says_so_leaves_nothing_and_works_the_next_time(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, step: str
) -> None:
    root = request.getfixturevalue("bucket") if kind == "s3" else tmp_path
    storage = prepared(root)
    with failpoints.fail(step, error="injected"):
        with pytest.raises(StorageError, match=rf"cannot \w+ {storage.location}.*: injected"):
            STEPS[step](storage)
        assert StoredFolder(root, "orders").names() == []
        STEPS[step](storage)


def test_what_cannot_be_removed_after_a_failure_does_not_hide_the_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage = prepared(tmp_path)

    def stuck(self: Path, missing_ok: bool = False) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "unlink", stuck)
    with (
        failpoints.fail("storage.close", error="the first one"),
        pytest.raises(StorageError, match=r"cannot write .*chk-1-1/a: the first one"),
    ):
        storage.write_file("chk-1-1/a", b"abc")
    assert "chk-1-1/a could not be deleted, the rest is for gc: [Errno 5] Input/output error" in caplog.text
