"""Which checkpoint a start restores."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.elements import EdgeName
from checkpoint.storage import checksummed_json
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.fencing import record_restored
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot, SubtaskSnapshot, VertexSnapshot
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.ownership import Ownership
from checkpoint.storage.restore import from_uri, newest
from checkpoint.storage.storage import CheckpointStorage


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    storage = CheckpointStorage(str(tmp_path / "weir"), "late orders")
    storage.prepare()
    return storage


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "weir" / "late%20orders"


def complete(storage: CheckpointStorage, checkpoint_id: int, attempt: int = 1) -> CheckpointRef:
    """Triggered `checkpoint_id` minutes after noon, with one private and one shared file."""
    private = storage.write_file(f"chk-{checkpoint_id}-{attempt}/totals-0-state.arrow", b"state")
    shared = storage.write_file(f"shared/{attempt}-out-0-{checkpoint_id}.arrow", b"segment")
    subtask = SubtaskSnapshot({"totals": OperatorSnapshot(keyed_state=(StateFile(private),), files=(shared,))})
    metadata = CheckpointMetadata(
        id=checkpoint_id,
        attempt=attempt,
        kind=CheckpointKind.CHECKPOINT,
        pipeline="late orders",
        lineage="l",
        lineage_parent=None,
        max_parallelism=128,
        weir_version="0.1.0",
        trigger_time=1_700_000_000.0 + 60 * checkpoint_id,  # 2023-11-14 22:13:20 UTC and so many minutes
        duration=0.1,
        options={},
        vertices={"totals": VertexSnapshot((subtask,))},
    )
    return storage.write_metadata(checkpoint_id, attempt, metadata)


def test_without_a_checkpoint_there_is_nothing_to_restore(storage: CheckpointStorage) -> None:
    storage.write_file("chk-1-1/totals-0-state.arrow", b"never completed")
    assert newest(storage) is None


def test_the_newest_checkpoint_is_restored(storage: CheckpointStorage) -> None:
    for checkpoint_id in (2, 10, 9):
        complete(storage, checkpoint_id)
    point = newest(storage)
    assert point is not None
    assert (point.ref, point.metadata.id) == (CheckpointRef(10, 1), 10)
    assert point.ref_in(storage) == point.ref


def test_a_void_checkpoint_is_not_restored(storage: CheckpointStorage) -> None:
    complete(storage, 1)
    complete(storage, 2)
    ownership = Ownership(2, "0" * 32)
    storage.put(ownership.path, b"{}")
    record_restored(storage, ownership, CheckpointRef(1, 1))
    point = newest(storage)
    assert point is not None
    assert point.ref == CheckpointRef(1, 1)


class OfARunningJob(CheckpointStorage):
    """The job completes a checkpoint, and deletes the one before, whenever `moment` of the newest one has come; so
    often."""

    moment, times = "load", 0

    def load(self, ref: CheckpointRef) -> CheckpointMetadata:
        self.at("load", ref)
        return super().load(ref)

    def verify_sizes(self, handles: Iterable[FileHandle]) -> None:
        self.at("verify", self.complete()[-1])
        super().verify_sizes(handles)

    def at(self, moment: str, ref: CheckpointRef) -> None:
        if moment == self.moment and self.times:
            self.times -= 1
            complete(self, ref.id + 1)
            self.delete_checkpoint(ref)


@pytest.mark.parametrize("moment", ["load", "verify"])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("on_damaged", ["fail", "previous"])
def test_a_checkpoint_that_the_running_job_deletes_while_it_is_looked_at_is_not_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, moment: str, times: int, on_damaged: Any
) -> None:
    storage = OfARunningJob(str(tmp_path / "weir"), "late orders")
    storage.prepare()
    complete(storage, 1)
    storage.moment, storage.times = moment, times
    point = newest(storage, on_damaged)
    assert point is not None
    assert (point.ref.id, storage.times) == (1 + times, 0)
    assert not caplog.records


DAMAGES = ["chk-3-1/_metadata", "chk-3-1/totals-0-state.arrow", "shared/1-out-0-3.arrow"]


@pytest.mark.parametrize("file", DAMAGES)
@pytest.mark.parametrize("how", ["truncated", "missing"])
def test_a_damaged_checkpoint_stops_the_start_and_is_named(
    storage: CheckpointStorage, folder: Path, file: str, how: str
) -> None:
    for checkpoint_id in (1, 2, 3):
        complete(storage, checkpoint_id)
    damage(folder / file, how)
    if how == "missing" and file.endswith("_metadata"):  # deleted, as retention deletes
        point = newest(storage)
        assert point is not None
        assert point.ref.id == 2
        return
    with pytest.raises(DamagedFile, match=rf"chk-3-1 can't be restored: .*{file}.*\(chk-2-1, chk-1-1\).*previous"):
        newest(storage)


def damage(file: Path, how: str) -> None:
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize("file", DAMAGES)
def test_going_back_is_by_option_and_says_how_far(
    storage: CheckpointStorage, folder: Path, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    for checkpoint_id in (1, 2, 3):
        complete(storage, checkpoint_id)
    damage(folder / file, "truncated")
    with caplog.at_level(logging.WARNING):
        point = newest(storage, "previous")
    assert point is not None
    assert point.ref == CheckpointRef(2, 1)
    assert "going back from chk-3-1 to chk-2-1, triggered 2023-11-14 22:15:20 UTC" in caplog.text
    assert file in caplog.text
    assert ("chk-3-1 (triggered 2023-11-14 22:16:20 UTC)" in caplog.text) == (not file.endswith("_metadata"))


def test_damage_that_a_subtask_found_counts_too(storage: CheckpointStorage) -> None:
    complete(storage, 1)
    bad = complete(storage, 2)
    known = {bad: "totals-0-state.arrow is damaged: other checksum"}
    with pytest.raises(DamagedFile, match=r"chk-2-1 can't be restored: .*other checksum"):
        newest(storage, "fail", known)
    point = newest(storage, "previous", known)
    assert point is not None
    assert point.ref.id == 1


def test_with_every_checkpoint_damaged_nothing_is_restored_silently(storage: CheckpointStorage, folder: Path) -> None:
    for checkpoint_id in (1, 2):
        complete(storage, checkpoint_id)
        damage(folder / f"chk-{checkpoint_id}-1/totals-0-state.arrow", "missing")
    with pytest.raises(DamagedFile, match=r"every retained checkpoint is damaged.*chk-2-1.*chk-1-1.*restore=\"none\""):
        newest(storage, "previous")


def test_another_format_never_goes_back_silently(storage: CheckpointStorage, folder: Path) -> None:
    complete(storage, 1)
    complete(storage, 2)
    file = folder / "chk-2-1/_metadata"
    document = checksummed_json.loads(file.read_bytes())
    del document["checksum"]
    file.write_bytes(checksummed_json.dumps(document | {"format": 99}))
    with pytest.raises(StorageError, match="has format 99; this version of Weir reads formats 3 to 5") as caught:
        newest(storage, "previous")
    assert not isinstance(caught.value, DamagedFile)


def test_a_job_whose_checkpoints_are_gone_starts_from_nothing_with_a_warning(
    storage: CheckpointStorage, caplog: pytest.LogCaptureFixture
) -> None:
    ref = complete(storage, 1)
    ownership = Ownership(2, "0" * 32)
    storage.put(ownership.path, b"{}")
    record_restored(storage, ownership, ref)
    storage.delete_checkpoint(ref)
    assert newest(storage) is None
    assert "no checkpoint is left, though an earlier run restored chk-1-1" in caplog.text


@pytest.mark.parametrize("form", ["file://{quoted}/chk-1-1", "{path}/chk-1-1", "{path}/chk-1-1/"])
def test_a_checkpoint_is_restored_by_the_uri_or_path_of_its_folder(
    storage: CheckpointStorage, folder: Path, form: str
) -> None:
    complete(storage, 1)
    complete(storage, 2)
    point = from_uri(form.format(path=folder, quoted=str(folder).replace("%", "%25")))
    assert point.ref == CheckpointRef(1, 1)
    assert [point.storage.read_file(file) for file in point.metadata.all_files()] == [b"state", b"segment"]
    assert point.ref_in(storage) == point.ref


def test_another_jobs_checkpoint_is_restored_from_its_own_folder(storage: CheckpointStorage, tmp_path: Path) -> None:
    complete(storage, 1)
    fork = CheckpointStorage(str(tmp_path / "weir"), "fork")
    fork.prepare()
    point = from_uri(f"{storage.location.removeprefix('file://')}/chk-1-1")
    assert point.ref_in(fork) is None


def test_a_void_checkpoint_is_restored_if_the_user_names_it(storage: CheckpointStorage, folder: Path) -> None:
    ref = complete(storage, 1)
    ownership = Ownership(2, "0" * 32)
    storage.put(ownership.path, b"{}")
    record_restored(storage, ownership, None)
    assert newest(storage) is None
    assert from_uri(f"{folder}/chk-1-1").ref == ref


def test_what_is_no_complete_checkpoint_is_refused_with_those_that_are(
    storage: CheckpointStorage, folder: Path
) -> None:
    complete(storage, 1)
    storage.write_file("chk-2-1/totals-0-state.arrow", b"never completed")
    with pytest.raises(StorageError, match=r"chk-2-1 is no complete checkpoint. Complete ones in .*: chk-1-1"):
        from_uri(f"{folder}/chk-2-1")
    with pytest.raises(StorageError, match=r"is no savepoint and no checkpoint: .* folders in it, chk-1-1"):
        from_uri(str(folder))


def test_a_damaged_checkpoint_named_by_the_user_is_refused(storage: CheckpointStorage, folder: Path) -> None:
    complete(storage, 1)
    damage(folder / "chk-1-1/totals-0-state.arrow", "truncated")
    with pytest.raises(DamagedFile, match=r"totals-0-state.arrow is damaged"):
        from_uri(f"{folder}/chk-1-1")


# -- in-flight data left out ----------------------------------------------------------------------------------

EDGE = EdgeName("orders", "totals", "0.0")
IN_FLIGHT = "chk-7-1/totals-0-in%2Dflight.arrow"


def complete_with_in_flight_data(storage: CheckpointStorage) -> CheckpointRef:
    metadata = storage.load(complete(storage, 7))
    file = storage.write_file(IN_FLIGHT, b"channel state")
    totals = SubtaskSnapshot(metadata.vertices["totals"].subtasks[0].operators, (file,), {EDGE: 12}, 300)
    return storage.write_metadata(7, 1, replace(metadata, vertices={"totals": VertexSnapshot((totals,))}))


@pytest.mark.parametrize("by_uri", [False, True])
def test_in_flight_data_that_is_left_out_may_be_damaged_and_is_counted_by_edge(
    storage: CheckpointStorage, folder: Path, by_uri: bool
) -> None:
    ref = complete_with_in_flight_data(storage)
    (folder / IN_FLIGHT).unlink()
    uri = str(folder / ref.path)
    with pytest.raises(DamagedFile, match=IN_FLIGHT):
        _ = from_uri(uri) if by_uri else newest(storage)
    with pytest.raises(DamagedFile, match=IN_FLIGHT):
        _ = from_uri(uri, ignore_in_flight=6) if by_uri else newest(storage, ignore_in_flight=6)
    point = from_uri(uri, ignore_in_flight=7) if by_uri else newest(storage, ignore_in_flight=7)
    assert point is not None
    assert point.left_out == {EDGE: 12}
    assert point.metadata.in_flight_records == 0
    assert IN_FLIGHT not in {file.path for file in point.metadata.all_files()}
    assert point.metadata.operator("totals") == storage.load(ref).operator("totals")


def test_state_is_still_verified_when_in_flight_data_is_left_out(storage: CheckpointStorage, folder: Path) -> None:
    complete_with_in_flight_data(storage)
    (folder / "chk-7-1/totals-0-state.arrow").unlink()
    with pytest.raises(DamagedFile, match=r"totals-0-state\.arrow"):
        newest(storage, ignore_in_flight=7)


@pytest.mark.parametrize("said", [True, False])
@pytest.mark.parametrize("claim", [None, True, False])
def test_what_an_earlier_attempt_said_of_the_output_holds(
    storage: CheckpointStorage, said: bool, claim: bool | None
) -> None:
    complete(storage, 1)
    point = newest(storage)
    assert point is not None
    assert replace(point, claimed=said).claimed_by("orders", claim) is said
    assert replace(point, claimed=said).claimed_by("other", claim) is said


def test_by_default_the_output_belongs_to_the_pipeline_that_prepared_it(storage: CheckpointStorage) -> None:
    complete(storage, 1)
    point = newest(storage)
    assert point is not None
    assert [point.claimed_by(point.metadata.pipeline, claim) for claim in (None, True, False)] == [True, True, False]
    assert [point.claimed_by("other", claim) for claim in (None, True, False)] == [False, True, False]
