"""One owner a job, and nothing of an older one counts."""

import os
import random
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from s3_server import Bucket, StoredFolder

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.fencing import (
    Fenced,
    Ownership,
    check,
    record_nothing_given_up,
    record_restored,
    take_ownership,
    taking_ownership,
)
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.ownership import RestoreRecord
from checkpoint.storage.restore import newest
from checkpoint.storage.storage import CheckpointStorage


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path | Bucket:
    if request.param == "s3":
        bucket: Bucket = request.getfixturevalue("bucket")
        return bucket
    return tmp_path


@pytest.fixture
def storage(root: Path | Bucket) -> CheckpointStorage:
    return prepared(root.uri if isinstance(root, Bucket) else root)


@pytest.fixture
def folder(root: Path | Bucket, storage: CheckpointStorage) -> StoredFolder:
    """The same folder, behind the storage's back."""
    return StoredFolder(root, "orders")


def prepared(root: Path | str) -> CheckpointStorage:
    storage = CheckpointStorage(str(root), "orders")
    storage.prepare()
    return storage


def complete(storage: CheckpointStorage, checkpoint_id: int, attempt: int) -> CheckpointRef:
    metadata = CheckpointMetadata(
        id=checkpoint_id,
        attempt=attempt,
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
    return storage.write_metadata(checkpoint_id, attempt, metadata)


def own(storage: CheckpointStorage, restored: CheckpointRef | None = None) -> Ownership:
    """Take ownership and record what was restored."""
    mine = take_ownership(storage)
    record_restored(storage, mine, restored)
    return mine


# -- ownership ------------------------------------------------------------------------------------------------


def test_each_owner_takes_the_next_attempt_number_and_fences_the_one_before(storage: CheckpointStorage) -> None:
    first = take_ownership(storage)
    check(storage, first)
    second = take_ownership(storage)
    check(storage, second)
    assert (first.attempt, second.attempt) == (1, 2)
    with pytest.raises(Fenced, match=rf"newer owner, owner-2-{second.uuid} \(host .*, process \d+, since .* UTC\)"):
        check(storage, first)


def test_ownership_travels_to_workers_and_is_checked_there(storage: CheckpointStorage) -> None:
    mine = Ownership.from_wire(take_ownership(storage).to_wire())
    there = CheckpointStorage(storage.uri, storage.pipeline)
    check(there, mine)
    take_ownership(storage)
    with pytest.raises(Fenced):
        check(there, mine)


def test_an_owner_file_that_is_gone_with_its_folder_fences(storage: CheckpointStorage) -> None:
    mine = take_ownership(storage)
    storage.remove([mine.path])
    with pytest.raises(Fenced, match=r"no longer has this owner's file.*folder deleted"):
        check(storage, mine)


def test_attempt_numbers_go_on_above_checkpoints_whose_owner_files_are_gone(storage: CheckpointStorage) -> None:
    complete(storage, 3, attempt=7)
    assert take_ownership(storage).attempt == 8


def test_who_lists_an_equal_number_takes_another_one_after_a_pause(storage: CheckpointStorage) -> None:
    slow = taking_ownership(storage, lambda: 0.0, random.Random(1))
    next(slow)  # has listed: nobody is there
    quick = take_ownership(storage)
    next(slow)  # writes attempt 1, too
    assert [owner.attempt for owner in storage.owners()] == [1, 1]
    assert 0.0 < next(slow) <= 0.05
    check(storage, quick)
    assert finished(slow).attempt == 2
    with pytest.raises(Fenced):
        check(storage, quick)


def test_pauses_are_waited_for(storage: CheckpointStorage) -> None:
    class Rival(random.Random):
        """Someone else's file comes between this one's listing and its write, once."""

        def getrandbits(self, k: int) -> int:
            if not storage.owners():
                storage.put(Ownership(1, "f" * 32).path, b"{}")
            return super().getrandbits(k)

    pauses: list[float] = []
    assert take_ownership(storage, sleep=pauses.append, rng=Rival(1)).attempt == 2
    assert len(pauses) == 1


def finished(steps: Generator[float, None, Ownership]) -> Ownership:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            owned: Ownership = stop.value
            return owned


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=30), st.integers(0, 2**32))
def test_no_two_of_three_drivers_ever_own_one_number_and_the_last_one_has_the_job(order: list[int], seed: int) -> None:
    with TemporaryDirectory() as root, patch.object(os, "fsync"):  # no power fails here, and it takes long
        storage = prepared(root)
        drivers = {i: taking_ownership(storage, lambda: 0.0, random.Random(seed + i)) for i in range(3)}
        owned: list[Ownership] = []

        def step(i: int) -> None:
            try:
                next(drivers[i])
            except StopIteration as stop:
                del drivers[i]
                mine: Ownership = stop.value
                for other in owned:
                    if other.attempt < mine.attempt:
                        with pytest.raises(Fenced):
                            check(storage, other)
                owned.append(mine)

        for i in order:
            if i in drivers:
                step(i)
        for i in list(drivers):  # whoever isn't done finishes alone
            while i in drivers:
                step(i)
        assert len({mine.attempt for mine in owned}) == 3
        check(storage, max(owned))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), max_size=20), st.integers(0, 2**32))
def test_a_restart_never_takes_back_what_a_start_takes_at_the_same_time(order: list[bool], seed: int) -> None:
    """`order`: whether it is the restart's turn."""
    with TemporaryDirectory() as root, patch.object(os, "fsync"):
        storage = prepared(root)
        held = own(storage)
        restart = taking_ownership(storage, lambda: 0.0, random.Random(seed), held=held)
        start = taking_ownership(storage, lambda: 0.0, random.Random(seed + 1))
        drivers = {True: restart, False: start}
        owned: dict[bool, Ownership] = {}
        for is_restart in [*order, *[False] * 20, *[True] * 20]:
            if is_restart in drivers:
                try:
                    next(drivers[is_restart])
                except StopIteration as stop:
                    del drivers[is_restart]
                    owned[is_restart] = stop.value
                except Fenced:
                    del drivers[is_restart]
        assert not drivers
        check(storage, owned[False])
        if True in owned:  # it was first
            with pytest.raises(Fenced):
                check(storage, owned[True])


def test_a_restart_whose_own_file_is_gone_takes_nothing(storage: CheckpointStorage) -> None:
    mine = own(storage)
    storage.remove([mine.path])
    with pytest.raises(Fenced, match="no longer has this owner's file"):
        take_ownership(storage, held=mine)


# -- what an owner restored -----------------------------------------------------------------------------------


def test_later_checkpoints_of_older_owners_are_void(storage: CheckpointStorage) -> None:
    old = own(storage)
    for checkpoint_id in (1, 2, 3):
        complete(storage, checkpoint_id, old.attempt)
    new = own(storage, CheckpointRef(2, old.attempt))
    complete(storage, 4, old.attempt)  # the old owner had made its last check before it was fenced
    complete(storage, 4, new.attempt)
    assert [ref.path for ref in storage.list_checkpoints()] == ["chk-1-1", "chk-2-1", "chk-4-2"]
    assert storage.largest_id() == 4


def test_void_stays_void_under_later_owners(storage: CheckpointStorage) -> None:
    first = own(storage)
    complete(storage, 1, first.attempt)
    complete(storage, 2, first.attempt)
    second = own(storage, CheckpointRef(1, first.attempt))
    kept = complete(storage, 3, second.attempt)
    own(storage, kept)
    assert [ref.path for ref in storage.list_checkpoints()] == ["chk-1-1", "chk-3-2"]


def test_a_start_from_nothing_voids_all_there_was(storage: CheckpointStorage) -> None:
    complete(storage, 5, own(storage).attempt)
    own(storage, None)
    assert storage.list_checkpoints() == []


def test_a_void_checkpoint_named_by_the_user_counts_again_and_no_other(storage: CheckpointStorage) -> None:
    first = own(storage)
    complete(storage, 1, first.attempt)
    given_up = complete(storage, 2, first.attempt)
    complete(storage, 3, own(storage, CheckpointRef(1, first.attempt)).attempt)
    own(storage, given_up)
    assert storage.list_checkpoints() == [given_up]


def test_an_owner_without_record_voids_nothing(storage: CheckpointStorage) -> None:
    old = own(storage)
    take_ownership(storage)  # crashed before it had restored
    ref = complete(storage, 1, old.attempt)
    assert storage.list_checkpoints() == [ref]


def test_folders_without_any_owner_are_all_good(storage: CheckpointStorage) -> None:
    ref = complete(storage, 1, 1)
    assert storage.list_checkpoints() == [ref]


def test_a_fenced_owner_records_nothing(storage: CheckpointStorage) -> None:
    old = take_ownership(storage)
    take_ownership(storage)
    with pytest.raises(Fenced):
        record_restored(storage, old, None)
    assert storage.restore_record() is None


def test_older_owner_files_are_deleted_once_a_record_says_what_they_did(
    storage: CheckpointStorage, folder: StoredFolder
) -> None:
    own(storage)
    take_ownership(storage)
    newest_owner = own(storage)
    assert folder.names() == [newest_owner.path, newest_owner.record_path]
    assert take_ownership(storage).attempt == 4


def test_a_damaged_record_is_named(storage: CheckpointStorage, folder: StoredFolder) -> None:
    mine = own(storage)
    folder.write(mine.record_path, folder.read(mine.record_path).replace(b'"epoch":1', b'"epoch":9'))
    with pytest.raises(DamagedFile, match=rf"{mine.record_path} is damaged: truncated or altered"):
        storage.list_checkpoints()


def test_a_record_comes_back_as_it_was() -> None:
    ref = CheckpointRef(3, 1)
    for record in (RestoreRecord(2, ref, frozenset({ref, CheckpointRef(1, 1)})), RestoreRecord(2, None, frozenset())):
        assert RestoreRecord.from_bytes(record.to_bytes()) == record


# -- two drivers at once --------------------------------------------------------------------------------------


def stalled_owner(
    storage: CheckpointStorage, mine: Ownership, retires: bool, committed: list[int]
) -> Generator[None, None, None]:
    """Takes checkpoint 2, retires checkpoint 1 or not, and commits, with a stall possible before each operation."""
    check(storage, mine)
    yield
    complete(storage, 2, mine.attempt)
    yield
    if retires:
        check(storage, mine)
        yield
        storage.delete_checkpoint(CheckpointRef(1, mine.attempt))
        yield
    check(storage, mine)
    yield
    committed.append(2)


def new_owner(storage: CheckpointStorage, restored: list[CheckpointRef | None]) -> Generator[None, None, None]:
    steps = taking_ownership(storage, lambda: 0.0, random.Random(7))
    mine = None
    while mine is None:
        try:
            next(steps)
        except StopIteration as stop:
            mine = stop.value
        yield
    point = newest(storage)
    yield
    record_restored(storage, mine, point.ref if point else None)
    restored.append(point.ref if point else None)
    yield
    complete(storage, storage.largest_id() + 1, mine.attempt)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 1), max_size=16), st.booleans())
def test_a_new_owner_never_loses_its_checkpoint_to_a_stalled_one(order: list[int], retires: bool) -> None:
    with TemporaryDirectory() as root, patch.object(os, "fsync"):  # no power fails here, and it takes long
        storage = prepared(root)
        old = own(storage)
        complete(storage, 1, old.attempt)
        committed: list[int] = []
        restored: list[CheckpointRef | None] = []
        running = [stalled_owner(storage, old, retires, committed), new_owner(storage, restored)]
        done = [False, False]
        for who in [*order, *[1] * 20, *[0] * 20]:  # at last the new one to its end, then the old one
            if not done[who]:
                try:
                    next(running[who])
                except StopIteration:
                    done[who] = True
                except Fenced:
                    assert who == 0
                    done[who] = True
        assert done == [True, True]
        assert restored[0] is not None, "the new owner found nothing to restore"
        good = storage.list_checkpoints()
        assert restored[0] in good, "what the new owner restored was deleted"
        assert all(ref.attempt == 2 or ref <= restored[0] for ref in good), "a void checkpoint is listed"
        assert good[-1].attempt == 2
        if committed:
            assert restored[0].id == 2, "the new owner would put out again what the old one has committed"


def test_an_owner_that_is_fenced_while_it_records_deletes_nothing(tmp_path: Path) -> None:
    storage = prepared(tmp_path)
    old, mine = own(storage), take_ownership(storage)

    class Overtaken(CheckpointStorage):
        """Somebody takes ownership right after the record is there."""

        def put(self, path: str, data: bytes) -> None:
            super().put(path, data)
            if path == mine.record_path:
                take_ownership(storage)

    with pytest.raises(Fenced):
        record_restored(Overtaken(str(tmp_path), "orders"), mine, None)
    assert old in storage.owners()


def test_who_gives_nothing_up_still_says_what_was_restored_when_its_checkpoint_is_gone(tmp_path: Path) -> None:
    storage = prepared(tmp_path)
    ref = complete(storage, 3, own(storage).attempt)
    own(storage, ref)
    storage.delete_checkpoint(ref)
    assert record_nothing_given_up(storage, take_ownership(storage)).restored == ref


class _LosesAnswers(CheckpointStorage):
    """Writes small files, and says that it has not."""

    def put(self, path: str, data: bytes) -> None:
        super().put(path, data)
        raise StorageError(f"no answer about {path}")


def test_a_driver_is_not_fenced_by_an_owner_file_of_its_own_that_it_was_told_is_not_there(tmp_path: Path) -> None:
    storage = prepared(tmp_path)
    mine = take_ownership(storage)
    with pytest.raises(StorageError):
        take_ownership(_LosesAnswers(str(tmp_path), "orders"))
    check(storage, mine)
    assert take_ownership(storage).attempt > mine.attempt
