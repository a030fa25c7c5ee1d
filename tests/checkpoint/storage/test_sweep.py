"""What belongs to nobody is found and deleted; what anybody may need stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkpoint_folders import JobFolder, metadata_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import fs

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.storage import fencing, savepoints
from checkpoint.storage import folder as folder_module
from checkpoint.storage import sweep as sweep_module
from checkpoint.storage.arrow_files import ArrowFiles
from checkpoint.storage.fencing import Fenced
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.orphans import OrphanKind, Spared
from checkpoint.storage.restore import newest
from checkpoint.storage.storage import CheckpointStorage
from checkpoint.storage.sweep import collect, survey


@pytest.fixture(params=["local", "pyarrow"])
def job(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobFolder:
    """With both implementations of files; object stores go through the same code as `pyarrow`."""
    if request.param == "pyarrow":
        local = ArrowFiles(fs.LocalFileSystem())
        monkeypatch.setattr(folder_module, "open_files", lambda uri: (local, uri.removeprefix("file://")))
    return JobFolder(CheckpointStorage(tmp_path.as_uri(), "orders"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "orders"


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def gone(job: JobFolder, **options: Any) -> set[str]:
    """What gc deletes."""
    return {orphan.path for orphan in collect(job.storage, **options) if orphan.spared is None}


def kept(job: JobFolder, **options: Any) -> dict[str, Spared]:
    """What it finds and spares, and why."""
    return {orphan.path: orphan.spared for orphan in collect(job.storage, **options) if orphan.spared is not None}


def restored(job: JobFolder) -> str | None:
    """What a start would go on from."""
    point = newest(job.storage)
    return None if point is None else point.uri


def crash_after(job: JobFolder, good: int) -> CheckpointRef:
    """A run that ended with one good checkpoint, one that didn't complete, and output that is staged for that."""
    ref = job.complete(good, job.segment())
    job.begin(good + 1)
    job.segment(b"staged for the next one")
    return ref


def test_a_folder_that_is_in_order_has_no_orphans(job: JobFolder) -> None:
    job.complete(1, job.segment(), job.segment())
    job.complete(2, job.segment())
    assert survey(job.storage).orphans() == []


def test_what_older_owners_left_goes_and_nothing_else(job: JobFolder, folder: Path) -> None:
    good = crash_after(job, 1)
    before = files(folder)
    job.start(good)
    used = job.segment()
    new = job.complete(3, used)
    found = survey(job.storage).orphans()
    assert {(orphan.kind, orphan.attempt) for orphan in found} == {(OrphanKind.INCOMPLETE, 1), (OrphanKind.SHARED, 1)}
    deleted = gone(job)
    assert deleted == {orphan.path for orphan in found}
    assert "chk-2-1" in deleted
    left = files(folder)
    assert len(before - left) == 2 + 2  # and the owner file with its record, deleted by the next owner
    assert restored(job) == f"{job.storage.location}/{new.path}"
    job.storage.verify_sizes(job.storage.load(new).all_files())
    job.storage.verify_sizes(job.storage.load(good).all_files())


def test_what_the_newest_owner_wrote_stays_while_it_may_run(job: JobFolder, folder: Path) -> None:
    """Its checkpoints in progress, and segments whose acknowledgement may be on its way."""
    crash_after(job, 1)
    before = files(folder)
    assert set(kept(job).values()) == {Spared.IN_USE}
    assert gone(job, void=True) == set()
    assert files(folder) == before


def test_a_start_that_has_not_recorded_what_it_restores_fences_nobody_off(job: JobFolder, folder: Path) -> None:
    """The owner before it may be stalled in front of its `_metadata`, which is good until the record is there."""
    crash_after(job, 1)
    fencing.take_ownership(job.storage)
    before = files(folder)
    assert gone(job) == set()
    assert files(folder) == before


def test_of_a_job_that_is_stopped_the_rest_of_the_last_run_goes(job: JobFolder, folder: Path) -> None:
    good = crash_after(job, 1)
    deleted = gone(job, stopped=True)
    assert {path.partition("/")[0] for path in deleted} == {"chk-2-1", "shared"}
    assert job.storage.folders() == [good]
    assert job.storage.list_shared() == [file.path for file in job.storage.load(good).all_files() if file.shared]
    assert restored(job) == f"{job.storage.location}/{good.path}"
    assert gone(job, stopped=True) == set()


def test_a_driver_that_runs_after_all_is_fenced(job: JobFolder) -> None:
    crash_after(job, 1)
    mine = job.ownership
    gone(job, stopped=True)
    with pytest.raises(Fenced, match="has a newer owner"):
        fencing.check(job.storage, mine)


def test_what_a_stalled_owner_completes_after_that_is_void(job: JobFolder) -> None:
    """It had looked at its owner file just before, and its files may be deleted. No output follows from it."""
    good = job.complete(1)
    stalled = JobFolder.__new__(JobFolder)
    stalled.storage, stalled.ownership = job.storage, job.ownership
    gone(job, stopped=True)
    late = stalled.complete(2)
    assert survey(job.storage).void_by(late) is not None
    assert restored(job) == f"{job.storage.location}/{good.path}"


def test_all_checkpoints_that_could_be_restored_can_be_afterwards(job: JobFolder) -> None:
    refs = [job.complete(1), job.complete(2)]
    job.start(refs[1])
    refs.append(job.complete(3))
    gone(job, stopped=True, void=True)
    assert job.storage.list_checkpoints() == refs
    job.start(refs[2])
    assert job.storage.list_checkpoints() == refs


def test_a_job_that_was_stopped_with_a_savepoint_still_goes_on_from_it(job: JobFolder, tmp_path: Path) -> None:
    job.complete(1)
    target = savepoints.prepare((tmp_path / "sp").as_uri())
    metadata = savepoint_metadata(job, 2)
    savepoints.write(job.storage, target, metadata, stop=True, check_owner=lambda: None)
    before = restored(job)
    assert before is not None
    assert before.endswith("/sp")
    assert survey(job.storage).orphans_when_stopped() == []
    assert gone(job, stopped=True) == set()
    assert restored(job) == before


def savepoint_metadata(job: JobFolder, id: int) -> CheckpointMetadata:
    return metadata_of(CheckpointRef(id, job.ownership.attempt), {}, kind=CheckpointKind.SAVEPOINT)


def test_a_job_that_was_started_from_elsewhere_still_is(job: JobFolder, tmp_path: Path) -> None:
    target = savepoints.prepare((tmp_path / "sp").as_uri())
    savepoints.write(job.storage, target, savepoint_metadata(job, 2), stop=False, check_owner=lambda: None)
    identity = savepoint_metadata(job, 2).identity
    job.ownership = fencing.take_ownership(job.storage)
    fencing.record_restored(job.storage, job.ownership, None, target.uri, identity, claimed=False)
    job.begin(3)
    assert gone(job, stopped=True) == {"chk-3-2"}
    record = job.storage.restore_record()
    assert record is not None
    assert (record.attempt, record.origin, record.claimed) == (3, target.uri, False)
    assert restored(job) == target.uri


# -- void checkpoints -----------------------------------------------------------------------------------------


def give_up_newest(job: JobFolder) -> tuple[CheckpointRef, CheckpointRef]:
    """A good checkpoint, and a void one with a shared file of its own."""
    old, void = job.complete(1), job.complete(2, job.segment())
    job.start(old)
    return old, void


def test_void_checkpoints_stay_unless_they_are_to_go(job: JobFolder) -> None:
    _, void = give_up_newest(job)
    job.complete(3)
    assert gone(job) == set()
    assert kept(job) == {void.path: Spared.VOID}
    deleted = gone(job, void=True)
    assert void.path in deleted
    assert len(deleted) == 2  # and its segment
    assert job.storage.list_shared() == []


def test_the_largest_id_is_never_forgotten(job: JobFolder) -> None:
    """Output under the void checkpoint's id may be committed, and a committer may take the next one's for it."""
    _, void = give_up_newest(job)
    assert gone(job, void=True, stopped=True) == set()
    assert kept(job, void=True, stopped=True) == {void.path: Spared.LARGEST_ID}
    assert job.storage.largest_id() == void.id
    job.storage.verify_sizes(job.storage.load(void).all_files())


def test_while_a_start_may_be_restoring_one_void_checkpoints_stay(job: JobFolder) -> None:
    _, void = give_up_newest(job)
    job.complete(3)
    fencing.take_ownership(job.storage)
    assert kept(job, void=True)[void.path] is Spared.IN_USE


# -- small files ----------------------------------------------------------------------------------------------


def test_small_files_go_by_whose_they_are(job: JobFolder, folder: Path, tmp_path: Path) -> None:
    target = savepoints.prepare((tmp_path / "sp").as_uri())
    savepoints.write(job.storage, target, savepoint_metadata(job, 1), stop=False, check_owner=lambda: None)
    good = job.complete(2)
    stale = {
        f".tmp-{'0' * 32}-owner-1-{'a' * 32}",
        f"shared/.tmp-{'0' * 32}-1-out.arrow",
        f"owner-1-{'b' * 32}",
        f"owner-1-{'c' * 32}.restored",
    }
    nobodys = {"probe-123-worker", f".tmp-{'0' * 32}-probe-123"}
    users = {"notes.txt", "shared/notes.txt"}
    job.start(good)
    in_use = {f"shared/.tmp-{'0' * 32}-2-out.arrow"}
    for path in stale | nobodys | in_use | users:
        (folder / path).write_text("x")
    private = f"{good.path}/totals-1-state.arrow"
    (folder / private).write_text("of a subtask that was late")
    assert gone(job) == stale | {"savepoint-1-1", private}
    assert set(kept(job)) == nobodys | in_use
    assert gone(job, stopped=True) == nobodys | in_use
    assert users <= files(folder)


def test_the_trace_of_a_savepoint_stays_while_its_id_is_the_largest(job: JobFolder, tmp_path: Path) -> None:
    good = job.complete(1)
    target = savepoints.prepare((tmp_path / "sp").as_uri())
    savepoints.write(job.storage, target, savepoint_metadata(job, 2), stop=False, check_owner=lambda: None)
    job.start(good)
    assert kept(job) == {"savepoint-2-1": Spared.LARGEST_ID}
    job.complete(3)
    assert gone(job) == {"savepoint-2-1"}


# -- safety ---------------------------------------------------------------------------------------------------


def test_as_long_as_it_is_not_known_what_a_checkpoint_needs_no_file_goes(
    job: JobFolder, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = crash_after(job, 1)
    shared = set(job.storage.list_shared())
    job.start(good)
    (folder / good.path / "_metadata").write_bytes(b"damaged")
    assert gone(job) == {"chk-2-1"}
    assert (
        f"what {good.path} refers to isn't known, so files that checkpoints might refer to are all kept" in caplog.text
    )
    assert gone(job, stopped=True, void=True) == set()
    assert set(job.storage.list_shared()) == shared


def test_files_of_a_checkpoint_that_is_deleted_while_its_successor_completes_stay(
    job: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The running job takes over a file of its predecessor, and deletes the checkpoint that it was restored from."""
    file = job.segment()
    good = job.complete(1, file)
    job.start(good)
    list_folder = sweep_module.list_folder

    def meanwhile(storage: CheckpointStorage) -> Any:
        listing = list_folder(storage)
        if good in storage.complete():
            job.complete(2, file)
            storage.delete_checkpoint(good)
        return listing

    monkeypatch.setattr(sweep_module, "list_folder", meanwhile)
    seen = survey(job.storage)
    assert seen.unreadable == {}
    assert seen.orphans() == []


def test_files_of_a_checkpoint_that_completes_while_the_folder_is_listed_stay(
    job: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the one behind it, which doesn't need its file any more, is in the listing."""
    file = job.segment()
    good = job.complete(1, file)
    job.start(good)
    job.storage.delete_checkpoint(good)
    missed = job.complete(2, file)
    job.complete(3)
    list_folder = sweep_module.list_folder
    listings = iter([{missed}])

    def incomplete(storage: CheckpointStorage) -> Any:
        listing, left_out = list_folder(storage), next(listings, set())
        return replace(listing, checkpoints={r: e for r, e in listing.checkpoints.items() if r not in left_out})

    monkeypatch.setattr(sweep_module, "list_folder", incomplete)
    assert gone(job) == set()
    assert job.storage.list_shared() == [file.path]


def test_when_none_of_the_owners_own_checkpoints_can_be_seen_no_file_goes(job: JobFolder) -> None:
    """One may have completed between two looks."""
    file = job.segment()
    good = job.complete(1, file)
    job.start(good)
    job.storage.delete_checkpoint(good)
    assert gone(job) == set()
    assert gone(job, stopped=True) == {file.path}


def test_one_of_the_owners_own_checkpoints_is_enough(job: JobFolder) -> None:
    file = job.segment()
    good = job.complete(1, file)
    job.start(good)
    job.complete(2, job.segment())
    job.storage.delete_checkpoint(good)
    assert gone(job) == {file.path}


def test_when_a_new_owner_comes_nothing_more_is_deleted(job: JobFolder) -> None:
    old, _ = give_up_newest(job)
    job.complete(3)
    deleting = collect(job.storage, void=True)
    next(orphan for orphan in deleting if orphan.spared is None)
    job.start(old)
    with pytest.raises(Fenced):
        list(deleting)
    assert len(job.storage.list_shared()) == 1


def test_a_dry_run_says_what_would_go_and_changes_nothing(job: JobFolder, folder: Path) -> None:
    crash_after(job, 1)
    before = files(folder)
    would = gone(job, stopped=True, dry_run=True)
    assert files(folder) == before
    assert gone(job, stopped=True) == would


_ACTS = st.lists(
    st.tuples(st.sampled_from(["segment", "begin", "complete", "start", "restart older", "forget"]), st.integers(0, 3)),
    max_size=14,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=_ACTS, stopped=st.booleans(), void=st.booleans(), steps=st.integers(0, 6))
def test_whatever_owners_did_every_good_checkpoint_is_whole_after_any_part_of_it(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int]], stopped: bool, void: bool, steps: int
) -> None:
    job = JobFolder(CheckpointStorage(str(tmp_path_factory.mktemp("job")), "orders"))
    staged: list[Any] = []
    next_id = 1
    for act, n in acts:
        good = job.storage.list_checkpoints()
        match act:
            case "segment":
                staged.append(job.segment())
            case "begin" | "complete":
                if act == "begin":
                    job.begin(next_id)
                else:
                    staged = staged[-n:] if n else []
                    job.complete(next_id, *staged)
                next_id += 1
            case "start" | "restart older":
                base = (good[-1] if act == "start" else good[min(n, len(good) - 1)]) if good else None
                job.start(base)
                staged = [] if base is None else [f for f in job.storage.load(base).all_files() if f.shared]
            case "forget" if len(good) > 1:
                job.storage.delete_checkpoint(good[0])
    good, largest, before = job.storage.list_checkpoints(), job.storage.largest_id(), restored(job)
    committed = max((ref.id for ref in job.storage.complete()), default=0)
    for _, _ in zip(collect(job.storage, stopped=stopped, void=void), range(steps), strict=False):
        pass
    for ref in good:
        job.storage.verify_sizes(job.storage.load(ref).all_files())
    assert job.storage.list_checkpoints() == good
    assert committed <= job.storage.largest_id() <= largest
    assert restored(job) == before
