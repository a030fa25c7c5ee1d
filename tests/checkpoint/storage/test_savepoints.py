"""Savepoints in storage: folders of their own, the traces they leave, and what a start makes of both."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.committables import Committable, CommittableName, SinkState
from checkpoint.storage import savepoints
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.fencing import Fenced, check, record_restored
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot, SubtaskSnapshot, VertexSnapshot
from checkpoint.storage.naming import CheckpointRef, trace_path
from checkpoint.storage.ownership import Ownership
from checkpoint.storage.restore import NotACheckpoint, from_uri, newest
from checkpoint.storage.storage import CheckpointStorage
from pipeline.testing import failpoints


@pytest.fixture
def job(tmp_path: Path) -> CheckpointStorage:
    job = CheckpointStorage(str(tmp_path / "weir"), "orders")
    job.prepare()
    return job


def metadata(
    folder: CheckpointStorage, id: int, attempt: int = 1, kind: CheckpointKind = CheckpointKind.SAVEPOINT
) -> CheckpointMetadata:
    """With one file in `folder`."""
    state = folder.write_file(f"chk-{id}-{attempt}/totals-0-state.arrow", b"state")
    subtask = SubtaskSnapshot({"totals": OperatorSnapshot(keyed_state=(StateFile(state),))})
    return CheckpointMetadata(
        id=id,
        attempt=attempt,
        kind=kind,
        pipeline="orders",
        lineage="l",
        lineage_parent=None,
        max_parallelism=128,
        weir_version="0.1.0",
        trigger_time=1_700_000_000.0,
        duration=0.1,
        options={},
        vertices={"totals": VertexSnapshot((subtask,))},
    )


def checkpoint(job: CheckpointStorage, id: int, attempt: int = 1) -> CheckpointRef:
    return job.write_metadata(id, attempt, metadata(job, id, attempt, CheckpointKind.CHECKPOINT))


def savepoint(job: CheckpointStorage, folder: Path, id: int, attempt: int = 1, stop: bool = False) -> CheckpointStorage:
    target = savepoints.prepare(str(folder))
    savepoints.write(job, target, metadata(target.storage, id, attempt), stop, lambda: None)
    return target.storage


def owner(job: CheckpointStorage, attempt: int) -> Ownership:
    mine = Ownership(attempt, f"{attempt:032x}")
    job.put(mine.path, b"{}")
    return mine


def test_a_savepoint_is_restored_from_wherever_it_was_moved_to(job: CheckpointStorage, tmp_path: Path) -> None:
    savepoint(job, tmp_path / "a", 3)
    (tmp_path / "a").rename(tmp_path / "b")
    point = from_uri(f"{tmp_path}/b/")
    assert (point.ref, point.uri) == (CheckpointRef(3, 1), f"{tmp_path}/b")
    assert [point.storage.read_file(file) for file in point.metadata.all_files()] == [b"state"]
    assert point.ref_in(job) is None


def test_a_savepoint_may_lie_in_a_folder_that_is_called_like_a_checkpoints(
    job: CheckpointStorage, tmp_path: Path
) -> None:
    savepoint(job, tmp_path / "chk-7-7", 3)
    assert from_uri(str(tmp_path / "chk-7-7")).ref == CheckpointRef(3, 1)


def test_a_copied_checkpoint_is_no_savepoint(job: CheckpointStorage, tmp_path: Path) -> None:
    checkpoint(job, 1)
    (tmp_path / "weir/orders/chk-1-1").rename(tmp_path / "copy")
    with pytest.raises(NotACheckpoint, match=r"is a copy of the checkpoint chk-1-1.*take a savepoint"):
        from_uri(str(tmp_path / "copy"))


def test_a_savepoint_is_not_complete_while_a_file_is_missing_that_a_subtask_wrote(
    job: CheckpointStorage, tmp_path: Path
) -> None:
    target = savepoints.prepare(str(tmp_path / "a"))
    taken = metadata(target.storage, 3)
    (tmp_path / "a/chk-3-1/totals-0-state.arrow").unlink()  # or it is on another host's disk
    with pytest.raises(DamagedFile, match="is missing"):
        savepoints.write(job, target, taken, stop=True, check_owner=lambda: None)
    with pytest.raises(NotACheckpoint):
        from_uri(str(tmp_path / "a"))
    assert savepoints.stops(job, None) == []


def test_a_newer_owner_that_may_not_have_seen_the_id_keeps_it_from_being_complete(
    job: CheckpointStorage, tmp_path: Path
) -> None:
    """Else two checkpoints of one lineage could have one id, and a restore would mistake the output of one for that
    of the other."""
    mine = owner(job, 1)
    target = savepoints.prepare(str(tmp_path / "a"))
    taken = metadata(target.storage, 3)
    seen = job.largest_id()
    owner(job, 2)  # claims, then looks for the largest id
    assert seen == 0
    with pytest.raises(Fenced):
        savepoints.write(job, target, taken, stop=True, check_owner=lambda: check(job, mine))
    with pytest.raises(NotACheckpoint):
        from_uri(str(tmp_path / "a"))
    assert savepoints.stops(job, None) == []


def test_its_id_is_used_up_even_if_it_fails(job: CheckpointStorage, tmp_path: Path) -> None:
    checkpoint(job, 1)
    target = savepoints.prepare(str(tmp_path / "a"))
    savepoints.write(job, target, metadata(target.storage, 3), False, lambda: None)
    assert job.largest_id() == 3
    savepoints.discard(job, target, CheckpointRef(3, 1))
    assert job.largest_id() == 3
    assert list((tmp_path / "a").iterdir()) == []
    assert savepoints.prepare(str(tmp_path / "a")).storage.location == f"file://{tmp_path}/a"


def test_what_a_failed_savepoint_left_is_in_nobodys_way(job: CheckpointStorage, tmp_path: Path) -> None:
    target = savepoints.prepare(str(tmp_path / "a"))
    target.storage.write_file("chk-3-1/totals-0-state.arrow", b"late")
    target.release()
    savepoint(job, tmp_path / "a", 4)
    assert from_uri(str(tmp_path / "a")).ref == CheckpointRef(4, 1)


@pytest.mark.parametrize("other", ["letter.txt", "chk-3-1.txt", "savepoint-1"])
def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path, other: str) -> None:
    (tmp_path / other).write_text("mine")
    with pytest.raises(StorageError, match=rf"needs a folder of its own, and .* holds {other}"):
        savepoints.prepare(str(tmp_path))


# -- what a start restores ------------------------------------------------------------------------------------


def test_a_plain_savepoint_is_not_what_latest_means(job: CheckpointStorage, tmp_path: Path) -> None:
    ref = checkpoint(job, 1)
    savepoint(job, tmp_path / "a", 3)
    point = newest(job)
    assert point is not None
    assert point.ref == ref


def test_a_job_that_was_stopped_with_a_savepoint_goes_on_from_it(job: CheckpointStorage, tmp_path: Path) -> None:
    checkpoint(job, 1)
    savepoint(job, tmp_path / "a", 3, stop=True)
    point = newest(job)
    assert point is not None
    assert (point.ref, point.uri) == (CheckpointRef(3, 1), str(tmp_path / "a"))


def test_it_goes_on_from_its_own_checkpoint_once_there_is_one(job: CheckpointStorage, tmp_path: Path) -> None:
    savepoint(job, tmp_path / "a", 3, stop=True)
    record_restored(job, owner(job, 2), None, origin=str(tmp_path / "a"))
    ref = checkpoint(job, 4, attempt=2)
    point = newest(job)
    assert point is not None
    assert point.ref == ref


def test_a_stop_that_a_newer_owner_has_given_up_counts_no_more(job: CheckpointStorage, tmp_path: Path) -> None:
    ref = checkpoint(job, 1)
    savepoint(job, tmp_path / "a", 3, stop=True)
    record_restored(job, owner(job, 2), ref)  # the user has named that one
    point = newest(job)
    assert point is not None
    assert point.ref == ref


@pytest.mark.parametrize("claimed", [True, False])
def test_until_there_is_a_checkpoint_of_its_own_the_origin_is_restored_again_and_claimed_as_before(
    job: CheckpointStorage, tmp_path: Path, claimed: bool
) -> None:
    savepoint(job, tmp_path / "a", 3)
    checkpoint(job, 4)
    record_restored(job, owner(job, 2), None, origin=str(tmp_path / "a"), identity="l/3-1", claimed=claimed)
    point = newest(job)
    assert point is not None
    assert (point.ref, point.claimed) == (CheckpointRef(3, 1), claimed)


def test_a_checkpoint_that_was_restored_without_claiming_its_output_is_so_again(job: CheckpointStorage) -> None:
    ref = checkpoint(job, 1)
    record_restored(job, owner(job, 2), ref, claimed=False)
    point = newest(job)
    assert point is not None
    assert (point.ref, point.claimed) == (ref, False)
    newer = checkpoint(job, 2, attempt=2)
    point = newest(job)
    assert point is not None
    assert (point.ref, point.claimed) == (newer, None)


def test_a_stop_whose_savepoint_is_gone_is_damage_and_going_back_is_by_option(
    job: CheckpointStorage, tmp_path: Path
) -> None:
    ref = checkpoint(job, 1)
    savepoint(job, tmp_path / "a", 3, stop=True)
    (tmp_path / "a/_metadata").unlink()
    with pytest.raises(
        DamagedFile, match=r"which the job was stopped with, can't be restored: .*Was it moved.*chk-1-1"
    ):
        newest(job)
    point = newest(job, "previous")
    assert point is not None
    assert point.ref == ref


def test_another_savepoint_in_its_place_is_not_restored(job: CheckpointStorage, tmp_path: Path) -> None:
    savepoint(job, tmp_path / "a", 3, stop=True)
    (tmp_path / "a").rename(tmp_path / "b")
    savepoint(job, tmp_path / "a", 5)
    with pytest.raises(DamagedFile, match="holds something else by now: chk-5-1 of pipeline 'orders'"):
        newest(job)


def test_nor_is_another_jobs_savepoint_of_the_same_id(job: CheckpointStorage, tmp_path: Path) -> None:
    """Ids and epochs are small numbers, so most jobs have one of any name."""
    savepoint(job, tmp_path / "a", 3, stop=True)
    record_restored(job, owner(job, 2), None, origin=str(tmp_path / "a"), identity="l/3-1")
    (tmp_path / "a").rename(tmp_path / "b")
    target = savepoints.prepare(str(tmp_path / "a"))
    foreign = replace(metadata(target.storage, 3), lineage="another", pipeline="another job")
    savepoints.write(job, target, foreign, stop=False, check_owner=lambda: None)
    with pytest.raises(DamagedFile, match=r"which the job was started from, .* of pipeline 'another job'"):
        newest(job)


def test_one_whose_folder_was_given_to_another_is_not_completed_there(job: CheckpointStorage, tmp_path: Path) -> None:
    """It would take the other's place."""
    first = savepoints.prepare(str(tmp_path / "a"))
    taken = metadata(first.storage, 3)
    (tmp_path / "a" / first.reservation).unlink()  # somebody tidied up
    second = savepoint(job, tmp_path / "a", 4)
    with pytest.raises(StorageError, match="name another folder"):
        savepoints.write(job, first, taken, stop=False, check_owner=lambda: None)
    assert from_uri(second.uri).ref == CheckpointRef(4, 1)


def test_while_a_failed_one_is_being_deleted_nobody_gets_its_folder(job: CheckpointStorage, tmp_path: Path) -> None:
    """What is deleted late would be the other's. A complete one has let go of the folder already."""
    folder = savepoints.prepare(str(tmp_path / "a"))
    savepoints.write(job, folder, metadata(folder.storage, 3), False, lambda: None)
    with failpoints.hold("storage.delete", nth=2) as held, ThreadPoolExecutor() as pool:
        # The first hit is the trace of a stop, the second one `_metadata`.
        deleting = pool.submit(savepoints.discard, job, folder, CheckpointRef(3, 1))
        held.wait()
        (tmp_path / "a/_metadata").unlink()
        with pytest.raises(StorageError, match="a savepoint is being taken in"):
            savepoints.prepare(str(tmp_path / "a"))
        held.release()
        deleting.result(60)
    savepoint(job, tmp_path / "a", 4)
    assert from_uri(str(tmp_path / "a")).ref == CheckpointRef(4, 1)


def test_of_two_that_want_a_folder_for_a_savepoint_one_at_most_gets_it(job: CheckpointStorage, tmp_path: Path) -> None:
    target = savepoints.prepare(str(tmp_path / "a"))
    with pytest.raises(StorageError, match="a savepoint is being taken in"):
        savepoints.prepare(str(tmp_path / "a"))
    target.release()
    savepoint(job, tmp_path / "a", 4)
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"_metadata", "chk-4-1"}


def test_an_altered_trace_is_named(job: CheckpointStorage, tmp_path: Path) -> None:
    savepoint(job, tmp_path / "a", 3, stop=True)
    trace = tmp_path / "weir/orders" / f"{trace_path(CheckpointRef(3, 1))}.stopped"
    trace.write_bytes(trace.read_bytes()[:-1])
    with pytest.raises(DamagedFile, match=r"savepoint-3-1\.stopped is damaged"):
        newest(job)


# -- staged files ---------------------------------------------------------------------------------------------


def test_pending_output_refers_to_the_copies_of_its_files(job: CheckpointStorage, tmp_path: Path) -> None:
    a, b = job.write_file("shared/1-a.arrow", b"a"), job.write_file("shared/1-b.arrow", b"b")
    held = SinkState(
        {0: [Committable(CommittableName(1, 0), {"rows": 1}, (a, b))], 2: [Committable(CommittableName(1, 0), None)]}
    )
    target = CheckpointStorage(str(tmp_path / "a"), None)
    copies: dict[FileHandle, FileHandle] = {
        file: savepoints.copy_file(job, file, target, f"chk-3-1/staged-{i}.arrow") for i, file in enumerate((a, b))
    }
    copied = held.with_files(copies)
    assert copied.pending[2] == held.pending[2]
    (first,) = copied.pending[0]
    assert [target.read_file(file) for file in first.files] == [b"a", b"b"]
    assert (first.name, first.payload) == (CommittableName(1, 0), {"rows": 1})


def test_a_damaged_staged_file_is_not_copied(job: CheckpointStorage, tmp_path: Path) -> None:
    file = job.write_file("shared/1-a.arrow", b"a")
    (tmp_path / "weir/orders/shared/1-a.arrow").write_bytes(b"x")
    with pytest.raises(DamagedFile, match=r"1-a\.arrow is damaged"):
        savepoints.copy_file(job, file, CheckpointStorage(str(tmp_path / "a"), None), "chk-3-1/staged.arrow")
