"""The checkpoint storage: what is there is whole, what is not whole is noticed."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs
from s3_server import Bucket, StoredFolder

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.storage import folder as folder_module
from checkpoint.storage.arrow_files import ArrowFiles
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.local_files import LocalFiles
from checkpoint.storage.metadata import (
    CheckpointMetadata,
    OperatorSnapshot,
    SubtaskSnapshot,
    VertexSnapshot,
    pack_state,
)
from checkpoint.storage.naming import (
    CheckpointRef,
    belongs_to,
    encode,
    private_path,
    shared_attempt,
    shared_path,
    subtask_name,
)
from checkpoint.storage.probe import answer_probe, finish_probe, write_probe
from checkpoint.storage.staging import SharedStaging
from checkpoint.storage.storage import INLINE_STATE_LIMIT, CheckpointStorage

Root = Path | Bucket


@pytest.fixture(params=["local", "pyarrow", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    """Every way to write files: fsync and rename, pyarrow's move, and an object store."""
    if request.param == "s3":
        bucket: Bucket = request.getfixturevalue("bucket")
        return bucket
    if request.param == "pyarrow":
        monkeypatch.setattr(folder_module, "open_files", lambda uri: (ArrowFiles(fs.LocalFileSystem()), uri))
    return tmp_path


@pytest.fixture
def storage(root: Root) -> CheckpointStorage:
    prepared = CheckpointStorage(root.uri if isinstance(root, Bucket) else str(root), "orders")
    prepared.prepare()
    return prepared


@pytest.fixture
def folder(root: Root, storage: CheckpointStorage) -> StoredFolder:
    """The same folder, behind the storage's back."""
    return StoredFolder(root, "orders")


def complete(storage: CheckpointStorage, checkpoint_id: int, attempt: int = 1, *files: FileHandle) -> CheckpointRef:
    subtask = SubtaskSnapshot({"totals": OperatorSnapshot(keyed_state=tuple(map(StateFile, files)))})
    metadata = CheckpointMetadata(
        id=checkpoint_id,
        attempt=attempt,
        kind=CheckpointKind.CHECKPOINT,
        pipeline="orders",
        lineage="l",
        lineage_parent=None,
        max_parallelism=128,
        weir_version="0.1.0",
        trigger_time=1_700_000_000.0 + checkpoint_id,
        duration=0.1,
        options={},
        vertices={"totals": VertexSnapshot((subtask,))},
    )
    return storage.write_metadata(checkpoint_id, attempt, metadata)


# -- files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"abcdef", memoryview(b"abcdef"), pa.py_buffer(b"abcdef"), [b"ab", memoryview(b"cd"), pa.py_buffer(b"ef")]],
)
def test_a_file_written_whole_is_read_back(storage: CheckpointStorage, folder: StoredFolder, data: object) -> None:
    written = storage.write_file("chk-1-1/totals-0-state.arrow", data)
    assert (written.path, written.size) == ("chk-1-1/totals-0-state.arrow", 6)
    assert storage.read_file(written) == b"abcdef"
    assert folder.names() == ["chk-1-1/totals-0-state.arrow"]


def test_a_file_written_piece_by_piece_has_the_same_handle(storage: CheckpointStorage) -> None:
    whole = storage.write_file("shared/1-a.arrow", b"abcdef")
    staged = storage.create("shared/1-b.arrow")
    for piece in (b"abc", b"", pa.py_buffer(b"def")):
        staged.write(piece)
    pieces = staged.close()
    assert (pieces.size, pieces.checksum) == (whole.size, whole.checksum)
    assert storage.read_file(pieces) == b"abcdef"


def test_a_file_has_no_name_before_it_is_closed(storage: CheckpointStorage, folder: StoredFolder) -> None:
    staged = storage.create("shared/1-a.arrow")
    staged.write(b"abc")
    assert "shared/1-a.arrow" not in folder.names()
    staged.close()
    assert "shared/1-a.arrow" in folder.names()


def test_an_aborted_file_leaves_nothing_behind(storage: CheckpointStorage, folder: StoredFolder) -> None:
    staged = storage.create("shared/1-a.arrow")
    staged.write(b"abc")
    staged.abort()
    staged.abort()
    assert folder.names() == []


def test_abort_after_close_keeps_the_file(storage: CheckpointStorage) -> None:
    staged = storage.create("shared/1-a.arrow")
    handle = staged.close()
    staged.abort()
    assert storage.read_file(handle) == b""


def test_a_write_that_fails_leaves_nothing_behind(storage: CheckpointStorage, folder: StoredFolder) -> None:
    with pytest.raises(TypeError):
        storage.write_file("shared/1-a.arrow", [b"abc", "not bytes"])
    assert folder.names() == []


def test_a_truncated_file_is_named_with_both_sizes(storage: CheckpointStorage, folder: StoredFolder) -> None:
    handle = storage.write_file("chk-1-1/totals-0-state.arrow", b"abcdef")
    folder.write(handle.path, b"abc")
    with pytest.raises(DamagedFile, match=rf"{folder.location}/chk-1-1/totals-0-state.arrow .*6 bytes.*3 bytes"):
        storage.read_file(handle)
    with pytest.raises(DamagedFile, match=r"totals-0-state.arrow is damaged: it should have 6 bytes and has 3"):
        storage.verify_sizes([handle])


def test_an_altered_file_is_named_with_both_checksums(storage: CheckpointStorage, folder: StoredFolder) -> None:
    handle = storage.write_file("chk-1-1/totals-0-state.arrow", b"abcdef")
    folder.write(handle.path, b"abcdeg")
    with pytest.raises(DamagedFile, match=rf"totals-0-state.arrow .*checksum {handle.checksum}, and has 6 bytes with"):
        storage.read_file(handle)


def test_a_missing_file_is_named(storage: CheckpointStorage) -> None:
    handle = storage.write_file("chk-1-1/totals-0-state.arrow", b"abcdef")
    storage.delete_file(handle)
    storage.delete_file(handle)  # gone already: fine
    with pytest.raises(DamagedFile, match=r"totals-0-state.arrow is missing"):
        storage.read_file(handle)
    with pytest.raises(DamagedFile, match=r"totals-0-state.arrow is missing"):
        storage.verify_sizes([handle])


def test_staged_files_of_a_sink_lie_under_shared_with_the_attempt_number(storage: CheckpointStorage) -> None:
    staging = SharedStaging(storage, attempt=3)
    staged, other = staging.create("out-0"), staging.create("out-0")
    staged.write(b"abc")
    handle = staged.close()
    assert handle.shared
    assert shared_attempt(handle.path) == 3
    assert handle.path != other.close().path
    assert staging.read(handle) == b"abc"


def test_large_state_is_spilled_to_a_file_and_comes_back(storage: CheckpointStorage) -> None:
    small = OperatorSnapshot({"positions": [1, 2]})
    assert storage.spill(small, "chk-1-1/orders-0-spilled.msgpack") is small
    around = len(pack_state({"positions": b"x" * 10_000})) - 10_000
    largest = OperatorSnapshot({"positions": b"x" * (INLINE_STATE_LIMIT - around)})
    assert storage.spill(largest, "chk-1-1/orders-0-spilled.msgpack") is largest
    large = OperatorSnapshot({"positions": b"x" * (INLINE_STATE_LIMIT - around + 1)})
    spilled = storage.spill(large, "chk-1-1/orders-0-spilled.msgpack")
    assert spilled.state == {}
    assert [file.path for file in spilled.all_files()] == ["chk-1-1/orders-0-spilled.msgpack"]
    assert storage.unspill(spilled) == large


# -- checkpoints ----------------------------------------------------------------------------------------------


def test_complete_checkpoints_are_listed_oldest_first(storage: CheckpointStorage) -> None:
    for checkpoint_id in (10, 9, 2):
        complete(storage, checkpoint_id)
    storage.write_file("chk-11-1/totals-0-state.arrow", b"not complete")
    assert [ref.id for ref in storage.list_checkpoints()] == [2, 9, 10]
    assert storage.load(CheckpointRef(9, 1)).id == 9


def test_a_file_that_another_process_deletes_has_a_size_or_none(tmp_path: Path) -> None:
    path = tmp_path / "_metadata"

    def write_and_delete() -> None:
        for _ in range(3_000):
            path.write_bytes(b"")
            path.unlink()

    other = threading.Thread(target=write_and_delete)
    other.start()
    while other.is_alive():
        assert set(LocalFiles().sizes([str(path)] * 10)) <= {0, None}
    other.join()
    assert LocalFiles().sizes([str(path), str(tmp_path)]) == [None, None]


def test_the_largest_id_counts_checkpoints_that_never_completed(storage: CheckpointStorage) -> None:
    assert storage.largest_id() == 0
    complete(storage, 9)
    storage.write_file("chk-11-1/totals-0-state.arrow", b"not complete")
    assert storage.largest_id() == 11


def test_damaged_metadata_is_named(storage: CheckpointStorage, folder: StoredFolder) -> None:
    ref = complete(storage, 5)
    file = "chk-5-1/_metadata"
    good = folder.read(file)
    folder.write(file, good[:-10])
    with pytest.raises(DamagedFile, match=r"chk-5-1/_metadata is damaged: truncated or altered"):
        storage.load(ref)
    folder.write(file, good.replace(b'"id":5', b'"id":6'))
    with pytest.raises(DamagedFile, match=r"chk-5-1/_metadata is damaged: truncated or altered"):
        storage.load(ref)
    folder.delete(file)
    with pytest.raises(DamagedFile, match=r"chk-5-1/_metadata is missing"):
        storage.load(ref)


def test_metadata_in_another_checkpoints_folder_is_refused(storage: CheckpointStorage, folder: StoredFolder) -> None:
    complete(storage, 5)
    folder.write("chk-6-1/_metadata", folder.read("chk-5-1/_metadata"))
    with pytest.raises(DamagedFile, match=r"chk-6-1/_metadata belongs to chk-5-1"):
        storage.load(CheckpointRef(6, 1))


def test_a_deleted_checkpoint_is_gone_with_its_private_files_only(
    storage: CheckpointStorage, folder: StoredFolder
) -> None:
    private = storage.write_file("chk-5-1/totals-0-state.arrow", b"p")
    shared = storage.write_file("shared/1-a.arrow", b"s")
    ref = complete(storage, 5, 1, private, shared)
    storage.delete_checkpoint(ref)
    storage.delete_checkpoint(ref)  # gone already: fine
    assert folder.names() == ["shared/1-a.arrow"]
    assert storage.folders() == []


def test_a_subtasks_private_files_are_deleted_and_nobody_elses(
    storage: CheckpointStorage, folder: StoredFolder
) -> None:
    ref = CheckpointRef(5, 1)
    kept = [
        private_path(ref, subtask_name("a-1", 1), "state"),
        private_path(ref, subtask_name("a", 11), "state"),
        private_path(ref, subtask_name("b", 1), "state"),
        "shared/1-a-1-x.arrow",
    ]
    mine = [private_path(ref, subtask_name("a", 1), kind) for kind in ("state", "in-flight")]
    for path in kept + mine:
        storage.write_file(path, b"x")
    storage.delete_private(5, 1, subtask_name("a", 1))
    assert folder.names() == sorted(kept)
    storage.delete_private(6, 1, subtask_name("a", 1))  # nothing there: fine


def test_a_workers_copy_of_the_storage_sees_the_same_folder(storage: CheckpointStorage) -> None:
    handle = storage.write_file("shared/1-a.arrow", b"abc")
    copy = pickle.loads(pickle.dumps(storage))
    assert copy.read_file(handle) == b"abc"
    assert copy.same_folder(storage)


# -- crashes --------------------------------------------------------------------------------------------------


def crash(tmp_path: Path, at: str, call: int, script: str) -> None:
    """Run `script` in a process that is killed just before the `call`-th call of os.`at`."""
    program = f"""
import os, signal
real, calls = os.{at}, []
def killing(*args, **kwargs):
    calls.append(args)
    if len(calls) == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **kwargs)
from test_storage import complete, CheckpointStorage, CheckpointRef
storage = CheckpointStorage({str(tmp_path)!r}, "orders")
storage.prepare()
def arm(): os.{at} = killing
{textwrap.dedent(script)}
raise SystemExit("the process was not killed")
"""
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": f"{here}:{here.parents[1] / 'support'}"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_crash_while_metadata_is_written_leaves_no_checkpoint(tmp_path: Path, at: str) -> None:
    crash(tmp_path, at, 1, "complete(storage, 1); storage.write_file('chk-2-1/a', b'x'); arm(); complete(storage, 2)")
    storage = CheckpointStorage(str(tmp_path), "orders")
    assert storage.list_checkpoints() == [CheckpointRef(1, 1)]
    assert storage.largest_id() == 2
    complete(storage, 2)  # what the crash left is in nobody's way
    assert storage.load(CheckpointRef(2, 1)).id == 2


def test_a_crash_while_a_checkpoint_is_deleted_never_leaves_half_of_one(tmp_path: Path) -> None:
    script = """
        files = [storage.write_file(f"chk-1-1/totals-{i}-state.arrow", b"x") for i in range(3)]
        ref = complete(storage, 1, 1, *files)
        arm()
        storage.delete_checkpoint(ref)
    """
    for call in (2, 3, 4):  # after `_metadata`, and after one and two of the files
        root = tmp_path / str(call)
        crash(root, "unlink", call, script)
        storage = CheckpointStorage(str(root), "orders")
        assert storage.list_checkpoints() == []
        assert storage.folders() == [CheckpointRef(1, 1)]
        storage.delete_checkpoint(CheckpointRef(1, 1))
        assert storage.folders() == []


def test_what_is_written_is_synced_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = CheckpointStorage(str(tmp_path), "orders")
    storage.prepare()
    (tmp_path / "orders/chk-1-1").mkdir()
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def logged_fsync(descriptor: int) -> None:
        name = os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path)
        done.append("sync the file" if "_metadata" in name else f"sync {name}")
        fsync(descriptor)

    def logged_replace(old: str, new: str) -> None:
        done.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", logged_fsync)
    monkeypatch.setattr(os, "replace", logged_replace)
    complete(storage, 1)
    assert done == ["sync the file", "rename", "sync orders/chk-1-1", "sync orders"]


# -- the folder -----------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_to_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for uri in (f"file://{tmp_path}/file/weir", str(tmp_path / "file"), "/proc/weir"):
        path = uri.removeprefix("file://")
        with pytest.raises(StorageError, match=rf"file://{path}/orders: .*choose another folder"):
            CheckpointStorage(uri, "orders").prepare()


def test_an_unknown_kind_of_storage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot open the checkpoint folder ftp://host/weir.*file:///"):
        CheckpointStorage("ftp://host/weir", "orders")


def test_a_uri_and_a_path_lead_to_the_same_folder(tmp_path: Path) -> None:
    by_path = CheckpointStorage(str(tmp_path / "a b"), "orders")
    by_uri = CheckpointStorage(f"file://{tmp_path}/a%20b/", "orders")
    assert by_path.location == by_uri.location == f"file://{tmp_path}/a b/orders"
    assert by_path.same_folder(by_uri)
    assert not by_path.same_folder(CheckpointStorage(str(tmp_path / "a b"), "payments"))


def test_pipelines_below_one_root_do_not_see_each_other(tmp_path: Path) -> None:
    orders, dots = CheckpointStorage(str(tmp_path), "orders"), CheckpointStorage(str(tmp_path), "../orders")
    orders.prepare()
    dots.prepare()
    complete(orders, 1)
    assert dots.list_checkpoints() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["%2E.%2Forders", "orders"]


# -- names ----------------------------------------------------------------------------------------------------

_ANY_NAME = st.text(st.characters() | st.sampled_from("-./%~0123456789"), max_size=120)


@given(_ANY_NAME, _ANY_NAME)
def test_different_step_ids_get_different_safe_names(one: str, other: str) -> None:
    assert (encode(one) == encode(other)) == (one == other)
    for name in (encode(one), encode(other)):
        assert "/" not in name
        assert not name.startswith(".")
        assert name.isascii()
        assert len(name) <= 80


@given(_ANY_NAME, st.integers(0, 200), _ANY_NAME, st.integers(0, 200), _ANY_NAME)
def test_a_private_file_belongs_to_one_subtask(step: str, subtask: int, other: str, index: int, kind: str) -> None:
    mine, others = subtask_name(step, subtask), subtask_name(other, index)
    name = private_path(CheckpointRef(5, 2), mine, kind).rpartition("/")[2]
    assert len(name) < 200
    assert belongs_to(name, mine)
    assert belongs_to(name, others) == ((step, subtask) == (other, index))


@given(_ANY_NAME, _ANY_NAME, st.data())
def test_steps_keep_files_of_their_own_where_case_or_the_form_of_accents_is_ignored(
    step: str, other: str, data: st.DataObject
) -> None:
    other = data.draw(st.sampled_from([other, step.swapcase(), step.upper(), unicodedata.normalize("NFD", step)]))
    mine, others = subtask_name(step, 0), subtask_name(other, 0)
    assert (mine.casefold() == others.casefold()) == (step == other)


def test_ordinary_names_stay_readable() -> None:
    path = private_path(CheckpointRef(5, 2), subtask_name("delay-per-carrier", 1), "state")
    assert path == "chk-5-2/delay-per-carrier-1-state.arrow"
    assert shared_path(2, "out-0").startswith("shared/2-out-0-")


# -- the probe ------------------------------------------------------------------------------------------------


def test_a_probe_passes_where_all_see_one_folder_and_leaves_nothing(
    storage: CheckpointStorage, folder: StoredFolder
) -> None:
    probe = write_probe(storage)
    for worker in ("0", "1"):
        answer_probe(storage, probe, worker)
    finish_probe(storage, probe, ["0", "1"])
    assert folder.names() == []


def test_a_worker_that_does_not_see_the_folder_says_so(storage: CheckpointStorage, tmp_path: Path) -> None:
    elsewhere = CheckpointStorage(str(tmp_path / "elsewhere"), "orders")
    with pytest.raises(
        StorageError, match=r"worker 3 on host .* does not see .*elsewhere/orders: use a folder that all"
    ):
        answer_probe(elsewhere, write_probe(storage), "3")


def test_a_folder_with_a_probe_of_another_content_is_another_folder(
    storage: CheckpointStorage, folder: StoredFolder
) -> None:
    probe = write_probe(storage)
    folder.write(probe.path, b"something else")
    with pytest.raises(StorageError, match="does not see"):
        answer_probe(storage, probe, "0")


def test_an_answer_that_the_driver_does_not_see_is_an_error(storage: CheckpointStorage, folder: StoredFolder) -> None:
    probe = write_probe(storage)
    answer_probe(storage, probe, "0")
    with pytest.raises(StorageError, match="what worker 1 wrote is not seen"):
        finish_probe(storage, probe, ["0", "1"])
    assert folder.names() == []
