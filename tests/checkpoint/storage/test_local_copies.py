"""Second copies of a subtask's files: a convenience that nothing depends on."""

from __future__ import annotations

import logging
import os
import pickle
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.inline_files import InlineFile
from checkpoint.storage.local_copies import LocalCopies, StorageWithCopies, copy_of, local_root
from checkpoint.storage.metadata import OperatorSnapshot
from checkpoint.storage.naming import CheckpointRef, private_path, shared_path, subtask_name
from checkpoint.storage.storage import INLINE_STATE_LIMIT, CheckpointStorage

CONTENT = b"state " * 1000


class Setting:
    """A job's folder, and copies of it."""

    def __init__(self, tmp_path: Path) -> None:
        self.environ = {"WEIR_LOCAL_DIR": str(tmp_path / "local")}
        self.primary = CheckpointStorage(str(tmp_path / "checkpoints"), "orders")
        opened = LocalCopies.open(self.environ, self.primary)
        assert opened is not None
        self.copies = opened
        self.local: list[int] = []
        """Sizes of what was read from copies."""
        self.storage = StorageWithCopies(self.primary, self.copies, self.local.append)

    def write(self, id: int = 5, attempt: int = 2, subtask: int = 1, content: bytes = CONTENT) -> FileHandle:
        path = private_path(CheckpointRef(id, attempt), subtask_name("totals", subtask), "state")
        return self.storage.write_file(path, content)

    def primary_file(self, handle: FileHandle) -> Path:
        return Path(self.primary.location.removeprefix("file://")) / handle.path

    def copy(self, handle: FileHandle) -> Path:
        return Path(self.copies.folder) / handle.path

    def files(self) -> list[str]:
        return sorted(path.name for path in Path(self.copies.folder).rglob("*") if path.is_file())


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def damage(path: Path) -> None:
    """Other content of the same size."""
    content = path.read_bytes()
    path.write_bytes(bytes(255 - byte for byte in content))


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Every write beyond so many bytes of a file fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


# -- writing and reading --------------------------------------------------------------------------------------------


def test_a_file_is_read_from_its_copy_even_if_the_file_itself_is_gone(setting: Setting) -> None:
    handle = setting.write()
    setting.primary_file(handle).unlink()
    assert setting.storage.read_file(handle) == CONTENT
    assert setting.local == [len(CONTENT)]


def test_copy_and_file_are_the_same_and_nothing_else_is_left(setting: Setting) -> None:
    handle = setting.write()
    assert setting.copy(handle).read_bytes() == setting.primary_file(handle).read_bytes() == CONTENT
    assert setting.files() == ["totals-1-state.arrow"]


@pytest.mark.parametrize("harm", [damage, Path.unlink, lambda path: path.write_bytes(CONTENT[:-1])])
def test_without_a_good_copy_the_file_itself_is_read(setting: Setting, harm: object) -> None:
    handle = setting.write()
    assert callable(harm)
    harm(setting.copy(handle))
    assert setting.storage.read_file(handle) == CONTENT
    with setting.storage.open_file(handle) as opened:
        assert opened.read_at(5, 6) == CONTENT[6:11]
    assert setting.local == []


def test_a_damaged_file_without_a_good_copy_is_damaged(setting: Setting) -> None:
    handle = setting.write()
    damage(setting.copy(handle))
    damage(setting.primary_file(handle))
    with pytest.raises(DamagedFile, match=r"checkpoints/orders/chk-5-2/totals-1-state\.arrow is damaged"):
        setting.storage.read_file(handle)


def test_parts_of_a_file_are_read_from_its_copy(setting: Setting) -> None:
    handle = setting.write()
    damage(setting.primary_file(handle))
    with setting.storage.open_file(handle) as opened:
        assert (opened.size(), opened.read_at(5, 6)) == (len(CONTENT), CONTENT[6:11])
        setting.copies.remove()  # what is open stays readable
        assert opened.read_at(5, 12) == CONTENT[12:17]
    assert setting.local == [len(CONTENT)]


def test_a_copy_that_cannot_be_opened_is_none(setting: Setting) -> None:
    handle = setting.write()
    setting.copy(handle).unlink()
    setting.copy(handle).mkdir()
    assert setting.storage.read_file(handle) == CONTENT
    with setting.storage.open_file(handle) as opened:
        assert opened.read_at(6, 0) == CONTENT[:6]
    assert setting.local == []


def test_content_is_what_tells_copies_apart_not_the_name(setting: Setting) -> None:
    """A folder that outlived the job's: the new job's first checkpoint has the old one's name."""
    handle = setting.write()
    other = CheckpointStorage(setting.primary.uri, "orders").write_file("chk-5-2/totals-2-state.arrow", b"new")
    setting.copy(handle).rename(setting.copy(other))
    assert setting.storage.read_file(other) == b"new"


def test_where_a_file_was_read_from_is_logged(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    handle = setting.write()
    with caplog.at_level(logging.INFO):
        setting.storage.read_file(handle)
        setting.copy(handle).unlink()
        setting.storage.read_file(handle)
    assert [record.getMessage() for record in caplog.records] == [
        f"{handle.path} is read from {setting.copies.folder}",
        f"{handle.path} is read from {setting.primary.location}",
    ]


def test_what_others_share_or_the_driver_reads_is_not_copied(setting: Setting) -> None:
    setting.storage.write_file(shared_path(2, "staged"), CONTENT)
    state = {"operator": "x" * (INLINE_STATE_LIMIT + 1)}
    spilled = setting.storage.spill(OperatorSnapshot(state), "chk-5-2/totals-1-own.msgpack")
    assert spilled.state_file is not None
    assert setting.files() == []
    assert setting.storage.unspill(spilled).state == state


def test_it_pickles_as_the_jobs_folder(setting: Setting) -> None:
    copy = pickle.loads(pickle.dumps(setting.storage))
    assert (type(copy), copy.location) == (CheckpointStorage, setting.primary.location)


# -- a copy never fails anything ------------------------------------------------------------------------------------


def test_a_full_folder_costs_the_copy_and_is_logged_once(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    """It is full for the copies only: the file itself is written without the limit."""
    file = setting.storage.create("chk-5-2/totals-1-state.arrow")
    copy = setting.copies.create("chk-5-2/totals-1-state.arrow")
    for each in (copy, setting.copies.create("chk-6-2/totals-1-state.arrow")):
        with files_limited_to(1000):
            each.write(CONTENT * 100)
        each.keep()
    file.write(CONTENT)
    file.close()
    assert setting.files() == ["totals-1-state.arrow"]
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "cannot write local copies of checkpoints" in warnings[0].getMessage()


def test_a_disk_that_is_full_at_the_last_flush_costs_the_copy(setting: Setting) -> None:
    copy = setting.copies.create("chk-5-2/totals-1-state.arrow")
    copy.write(b"still in the buffer")
    with files_limited_to(0):
        copy.keep()
    assert setting.files() == []


def test_a_folder_that_cannot_be_written_to_costs_the_copy(setting: Setting) -> None:
    Path(setting.copies.folder).parent.mkdir(parents=True)
    Path(setting.copies.folder).write_text("a file where the folder would be; root can write anywhere else")
    handle = setting.write()
    assert setting.storage.read_file(handle) == CONTENT
    assert setting.local == []
    assert setting.copies.held() == []


def test_without_any_folder_there_are_no_copies(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    storage = CheckpointStorage(str(tmp_path), "orders")
    assert LocalCopies.open({"WEIR_LOCAL_DIR": str(tmp_path / "file" / "local")}, storage) is None
    assert "no local copies of checkpoints are written" in caplog.text


def test_a_copy_has_no_name_before_the_file_is_durable(setting: Setting) -> None:
    """Else a copy could be of a file that failed."""
    file = setting.storage.create("chk-5-2/totals-1-state.arrow")
    file.write(CONTENT)
    assert all(name.startswith(".tmp-") for name in setting.files())
    assert setting.copies.held() == []
    setting.primary_file(FileHandle("chk-5-2/totals-1-state.arrow", 0, "")).mkdir()  # nothing can be renamed to it
    with pytest.raises(StorageError):
        file.close()
    assert setting.files() == []


def test_a_file_given_up_leaves_no_copy(setting: Setting) -> None:
    file = setting.storage.create("chk-5-2/totals-1-state.arrow")
    file.write(CONTENT)
    file.abort()
    assert setting.files() == []


# -- what is there, and for how long --------------------------------------------------------------------------------


def test_what_there_are_copies_of_is_known(setting: Setting) -> None:
    setting.write(4, 1, 0)
    setting.write(5, 2, 1)
    setting.storage.write_file("chk-5-2/totals-1-in%2Dflight.arrow", b"")
    setting.storage.create("chk-5-2/totals-7-state.arrow").write(b"unfinished")
    assert setting.copies.held() == [(4, 1, "totals-0"), (5, 2, "totals-1")]
    assert copy_of("chk-5-2/totals-1-state.arrow") == (5, 2, "totals-1")
    assert copy_of("shared/1-totals-0-state-17.arrow") == (0, 1, "1-totals-0-state-17.arrow")
    assert copy_of("shared/notes.txt") is None


def test_a_complete_checkpoint_ends_older_ones_and_what_earlier_owners_left(setting: Setting) -> None:
    for id, attempt in ((3, 1), (9, 1), (4, 2), (5, 2), (6, 2), (4, 3)):
        setting.write(id, attempt)
    setting.copies.completed(CheckpointRef(5, 2))
    assert setting.copies.held() == [(4, 3, "totals-1"), (5, 2, "totals-1"), (6, 2, "totals-1")]


def test_an_aborted_checkpoint_has_no_copies_any_more(setting: Setting) -> None:
    setting.write(5)
    setting.write(6)
    setting.copies.aborted(CheckpointRef(6, 2))
    setting.copies.aborted(CheckpointRef(7, 2))
    assert setting.copies.held() == [(5, 2, "totals-1")]


def test_a_file_whose_checkpoint_is_aborted_meanwhile_is_written_and_has_no_copy(setting: Setting) -> None:
    file = setting.storage.create("chk-5-2/totals-1-state.arrow")
    setting.copies.aborted(CheckpointRef(5, 2))
    file.write(CONTENT)
    handle = file.close()
    assert setting.primary.read_file(handle) == CONTENT
    assert setting.files() == []


def test_a_job_that_ends_leaves_nothing_and_jobs_are_kept_apart(setting: Setting, tmp_path: Path) -> None:
    others = []
    for storage in (
        CheckpointStorage(str(tmp_path / "elsewhere"), "orders"),
        CheckpointStorage(setting.primary.uri, "totals"),
    ):
        copies = LocalCopies.open(setting.environ, storage)
        assert copies is not None
        StorageWithCopies(storage, copies, setting.local.append).write_file("chk-5-2/totals-1-state.arrow", b"other")
        others.append(copies)
    setting.write()
    setting.copies.remove()
    assert not Path(setting.copies.folder).exists()
    assert [copies.held() for copies in others] == [[(5, 2, "totals-1")]] * 2


# -- where ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "root"),
    [
        ({"WEIR_LOCAL_DIR": "/mnt/fast", "SPARK_EXECUTOR_DIRS": "/var/a"}, "/mnt/fast"),
        ({"SPARK_EXECUTOR_DIRS": "/var/a:/var/b"}, "/var/a"),
        ({"CONTAINER_ID": "container_1", "LOCAL_DIRS": "/yarn/a,/yarn/b"}, "/yarn/a"),
    ],
)
def test_copies_go_where_the_user_says_or_where_the_cluster_keeps_files_of_executors(
    environ: dict[str, str], root: str
) -> None:
    assert local_root(environ) == root


def test_else_copies_go_to_a_folder_of_the_users_in_the_temporary_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    root = Path(local_root({"LOCAL_DIRS": "/not/yarns"}))
    assert root.parent == tmp_path
    storage = CheckpointStorage(str(tmp_path / "checkpoints"), "orders")
    assert LocalCopies.open({}, storage) is not None
    assert root.stat().st_mode & 0o777 == 0o700
    root.rmdir()
    root.symlink_to(tmp_path)  # what another user might have put there
    assert LocalCopies.open({}, storage) is None


def test_the_folder_of_copies_is_read_without_being_made(setting: Setting) -> None:
    assert setting.copies.held() == []
    assert not os.path.exists(setting.copies.folder)


def test_an_inline_file_has_no_copy_and_needs_none(setting: Setting) -> None:
    file = InlineFile(setting.storage, private_path(CheckpointRef(5, 2), "totals-1", "state"), len(CONTENT))
    file.write(CONTENT)
    handle = file.close()
    assert setting.storage.read_file(handle) == CONTENT
    with setting.storage.open_file(handle) as opened:
        assert opened.read_at(6, 0) == b"state "
    assert (setting.files(), setting.local) == ([], [])


# -- files of a log of changes --------------------------------------------------------------------------------------


def log_file(setting: Setting, attempt: int = 2, content: bytes = CONTENT) -> FileHandle:
    storage = StorageWithCopies(setting.primary, setting.copies, lambda size: None, of_log=True)
    return storage.write_file(shared_path(attempt, "totals-1-state"), content)


def name_of(handle: FileHandle) -> str:
    return handle.path.removeprefix("shared/")


def test_a_file_of_a_log_is_read_from_its_copy_before_a_checkpoint_lists_it_and_as_long_as_one_does(
    setting: Setting,
) -> None:
    handle = log_file(setting)
    setting.primary_file(handle).unlink()
    assert setting.storage.read_file(handle) == CONTENT
    for id in (5, 6, 7):
        setting.copies.list_log(CheckpointRef(id, 2), [name_of(handle)])
        setting.copies.completed(CheckpointRef(id, 2))
        assert setting.storage.read_file(handle) == CONTENT
        assert setting.files() == [name_of(handle)], "one copy"
    setting.copies.list_log(CheckpointRef(8, 2), [])
    setting.copies.completed(CheckpointRef(8, 2))
    assert setting.files() == []


def test_a_file_that_only_an_aborted_checkpoint_listed_is_there_for_the_next_one(setting: Setting) -> None:
    handle = log_file(setting)
    setting.copies.list_log(CheckpointRef(5, 2), [name_of(handle)])
    setting.copies.aborted(CheckpointRef(5, 2))
    setting.copies.list_log(CheckpointRef(6, 2), [name_of(handle)])
    setting.copies.completed(CheckpointRef(6, 2))
    setting.primary_file(handle).unlink()
    assert setting.storage.read_file(handle) == CONTENT


def test_a_file_goes_that_aborted_checkpoints_listed_and_that_was_merged_before_one_was_complete(
    setting: Setting,
) -> None:
    merged, new = log_file(setting), log_file(setting)
    setting.copies.list_log(CheckpointRef(5, 2), [name_of(merged)])
    setting.copies.aborted(CheckpointRef(5, 2))
    setting.copies.list_log(CheckpointRef(6, 2), [name_of(new)])
    setting.copies.completed(CheckpointRef(6, 2))
    assert setting.files() == [name_of(new)]


def test_what_no_checkpoint_has_listed_yet_stays_and_what_an_earlier_attempt_left_goes(setting: Setting) -> None:
    left, made = log_file(setting, attempt=1), log_file(setting)
    setting.copies.completed(CheckpointRef(5, 2))
    assert setting.files() == [name_of(made)]
    assert left.path != made.path


def test_one_copy_serves_the_checkpoints_of_several_subtasks_and_attempts(setting: Setting) -> None:
    handle = log_file(setting, attempt=1)
    setting.copies.list_log(CheckpointRef(5, 1), [name_of(handle)])
    setting.copies.completed(CheckpointRef(5, 1))
    others = [LocalCopies(setting.copies.folder) for _ in range(2)]  # of the next attempt
    for copies in others:
        copies.list_log(CheckpointRef(6, 2), [name_of(handle)])
    for copies in others:
        copies.completed(CheckpointRef(6, 2))
    setting.primary_file(handle).unlink()
    assert setting.storage.read_file(handle) == CONTENT
    assert setting.files() == [name_of(handle)]


def test_copies_of_a_log_are_found_by_whoever_looks_for_a_place_for_its_subtask(setting: Setting) -> None:
    listed, new = log_file(setting), log_file(setting)
    private = setting.write(id=6)
    setting.copies.list_log(CheckpointRef(6, 2), [name_of(listed)])
    setting.copies.completed(CheckpointRef(6, 2))
    assert setting.copies.held() == sorted([(0, 2, name_of(listed)), (0, 2, name_of(new)), (6, 2, "totals-1")])
    assert all(copy_of(handle.path) in setting.copies.held() for handle in (listed, new, private))


def test_where_there_are_no_hard_links_a_checkpoint_costs_a_warning_once(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    handles = [log_file(setting) for _ in range(2)]
    for id in (5, 6):
        setting.copies.list_log(CheckpointRef(id, 2), map(name_of, handles))
        setting.copies.completed(CheckpointRef(id, 2))
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "cannot link local copies" in warnings[0].message
    setting.primary_file(handles[0]).unlink()
    assert setting.storage.read_file(handles[0]) == CONTENT, "as long as this attempt runs"
