"""Small files that are part of their handles: read as others are, and nothing of them lies in the storage."""

from __future__ import annotations

import tempfile
from pathlib import Path

import orjson
import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.codec import encode
from checkpoint.storage import checksummed_json
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.inline_files import InlineFile, inline_limit
from checkpoint.storage.storage import CheckpointStorage
from pipeline.testing import failpoints

PATH = "chk-5-2/totals-1-state.arrow"


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    return CheckpointStorage(str(tmp_path), "orders")


def written(storage: CheckpointStorage, pieces: list[bytes], limit: int) -> FileHandle:
    file = InlineFile(storage, PATH, limit)
    try:
        for piece in pieces:
            file.write(piece)
        return file.close()
    except BaseException:
        file.abort()
        raise


def on_disk(storage: CheckpointStorage) -> list[Path]:
    return [path for path in Path(storage.location.removeprefix("file://")).rglob("*") if path.is_file()]


@given(st.lists(st.binary(max_size=40), max_size=5), st.integers(0, 100))
def test_what_is_no_larger_than_the_limit_is_inline_and_read_like_a_file(pieces: list[bytes], limit: int) -> None:
    content = b"".join(pieces)
    with tempfile.TemporaryDirectory() as folder:
        storage = CheckpointStorage(folder, "orders")
        handle = written(storage, pieces, limit)
        assert handle.inline == (limit > 0 and len(content) <= limit)
        assert len(on_disk(storage)) == (not handle.inline)
        assert (handle.path, handle.size) == (PATH, len(content))
        assert storage.read_file(handle) == content
        storage.verify_sizes([handle])
        with storage.open_file(handle) as file:
            assert file.size() == len(content)
            start = len(content) // 2
            assert file.read_at(7, start) == content[start : start + 7]
            assert storage.location in file.name


@given(st.binary(max_size=300), st.booleans())
def test_an_inline_file_travels_in_messages_and_in_metadata(content: bytes, changes: bool) -> None:
    handle = FileHandle(PATH, len(content), "c", content)
    listed = StateFile(handle, range(3, 5), 7, 1, (("seen", -5),), (("seen", 9),)) if changes else StateFile(handle)
    wire = listed.to_wire()
    document = checksummed_json.loads(checksummed_json.dumps({"file": wire}))
    assert orjson.loads(checksummed_json.dumps({"file": wire}))["file"][:3] == [PATH, len(content), "c"]
    for read in (ormsgpack.unpackb(encode(wire)), document["file"]):
        assert StateFile.from_wire(read) == listed


def test_altered_content_is_noticed(storage: CheckpointStorage) -> None:
    handle = written(storage, [b"state"], 100)
    altered = FileHandle(handle.path, handle.size, handle.checksum, b"stale")
    with pytest.raises(DamagedFile, match=r"totals-1-state\.arrow is damaged"):
        storage.read_file(altered)
    with pytest.raises(DamagedFile, match=r"totals-1-state\.arrow is damaged"), storage.open_file(altered):
        pass


@pytest.mark.parametrize("step", ["storage.write", "storage.close"])
@pytest.mark.parametrize("limit", [0, 3, 100])
def test_a_step_that_fails_is_told_of_and_leaves_nothing(storage: CheckpointStorage, step: str, limit: int) -> None:
    failpoints.fail(step, error="injected here")
    try:
        with pytest.raises(StorageError, match=r"cannot write file:\S*/chk-5-2/totals-1-state\.arrow: .*injected here"):
            written(storage, [b"state"], limit)
    finally:
        failpoints.clear()
    assert on_disk(storage) == []


def test_an_inline_file_that_is_given_up_was_nowhere(storage: CheckpointStorage) -> None:
    file = InlineFile(storage, PATH, 100)
    file.write(b"state")
    file.abort()
    assert on_disk(storage) == []


@given(st.integers(0, 1 << 30), st.integers(1, 2000))
def test_all_subtasks_together_have_a_mebibyte_at_most(wanted: int, subtasks: int) -> None:
    limit = inline_limit(wanted, subtasks)
    assert limit <= wanted
    assert limit * subtasks <= 1 << 20
