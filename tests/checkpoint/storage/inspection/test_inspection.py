"""What is in a checkpoint folder, as programs that show it see it, and whether it is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from captures import data
from checkpoint_folders import TRIGGERED, JobFolder, metadata_of

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.committables import CommittableName
from checkpoint.elements import ChannelName, EdgeName
from checkpoint.in_flight import channel_state
from checkpoint.in_flight.captured import CapturedState
from checkpoint.row_format import row_format
from checkpoint.storage import fencing, savepoints
from checkpoint.storage.errors import DamagedFile
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.inline_files import InlineFile
from checkpoint.storage.inspection.checkpoints import InFlight, Pending, StateSize, Summary, Unreadable
from checkpoint.storage.inspection.folders import describe, describe_job, look_at, summarise, the_one
from checkpoint.storage.inspection.verification import verify_job, verify_single
from checkpoint.storage.metadata import OperatorSnapshot, SubtaskSnapshot, VertexSnapshot
from checkpoint.storage.naming import CheckpointRef, private_path, trace_path
from checkpoint.storage.orphans import OrphanKind, Spared
from checkpoint.storage.restore import NotACheckpoint
from checkpoint.storage.source_starts import SourceStart
from checkpoint.storage.storage import INLINE_STATE_LIMIT, CheckpointStorage

EDGE = EdgeName("in", "totals", "0.0")


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    return JobFolder(CheckpointStorage(tmp_path.as_uri(), "my orders"))


@pytest.fixture
def folder(job: JobFolder, tmp_path: Path) -> Path:
    return tmp_path / "my%20orders"


def alter(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)


def uri(job: JobFolder, ref: CheckpointRef) -> str:
    return job.storage.uri_of(ref.path)


# -- what a URI names -----------------------------------------------------------------------------------------


def test_a_job_is_found_by_its_own_folder_and_by_the_one_above(job: JobFolder, tmp_path: Path) -> None:
    for where in (job.storage.uri_of(), tmp_path.as_uri(), str(tmp_path), f"{tmp_path}/"):
        (found,) = look_at(where).jobs
        assert found.same_folder(job.storage)


def test_several_jobs_and_savepoints_below_a_root_are_told_apart(job: JobFolder, tmp_path: Path) -> None:
    JobFolder(CheckpointStorage(tmp_path.as_uri(), "other"))
    saved = write_savepoint(job, tmp_path / "kept", 1)
    (tmp_path / "notes").mkdir()
    found = look_at(tmp_path.as_uri())
    assert [one.location.rpartition("/")[2] for one in found.jobs] == ["my%20orders", "other"]
    assert found.savepoints == (saved,)


def test_a_checkpoint_and_a_savepoint_are_named_by_their_own_folders(job: JobFolder, tmp_path: Path) -> None:
    ref = job.complete(1)
    assert look_at(uri(job, ref)).single == uri(job, ref)
    saved = write_savepoint(job, tmp_path / "kept", 2)
    assert look_at(saved + "/").single == saved


@pytest.mark.parametrize("make", [False, True])
def test_a_folder_without_checkpoints_says_what_to_give(tmp_path: Path, make: bool) -> None:
    if make:
        (tmp_path / "somewhere" / "inside").mkdir(parents=True)
    with pytest.raises(
        NotACheckpoint, match=r"somewhere (holds no checkpoints|does not exist).*give the URI of a job's"
    ):
        look_at((tmp_path / "somewhere").as_uri())


def write_savepoint(job: JobFolder, folder: Path, id: int, stop: bool = False) -> str:
    target = savepoints.prepare(folder.as_uri())
    ref = CheckpointRef(id, job.ownership.attempt)
    file = target.storage.write_file(private_path(ref, "totals-0", "state"), b"state")
    metadata = metadata_of(
        ref, {"totals": OperatorSnapshot(keyed_state=(StateFile(file),))}, kind=CheckpointKind.SAVEPOINT
    )
    savepoints.write(job.storage, target, metadata, stop=stop, check_owner=lambda: None)
    return target.storage.uri_of()


# -- listing --------------------------------------------------------------------------------------------------


def test_a_job_is_described_by_its_checkpoints_its_owner_and_its_savepoints(job: JobFolder, tmp_path: Path) -> None:
    ref = job.complete(1, job.segment(b"x" * 500))
    job.begin(2)
    saved = write_savepoint(job, tmp_path / "kept", 3, stop=True)
    gone = write_savepoint(job, tmp_path / "gone", 4)
    for file in sorted((tmp_path / "gone").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    found = describe_job(job.storage)
    (one,) = found.checkpoints
    assert isinstance(one, Summary)
    assert (one.ref, one.kind, one.trigger_time, one.duration) == (ref, CheckpointKind.CHECKPOINT, TRIGGERED + 1, 0.25)
    assert (one.files, one.uncommitted, one.in_flight_rows, one.void_by, one.replaying) == (3, 1, 0, None, False)
    assert found.incomplete == (CheckpointRef(2, 1),)
    assert [(trace.ref.id, trace.uri, trace.there, trace.stopped) for trace in found.savepoints] == [
        (3, saved, True, True),
        (4, gone, False, False),
    ]
    assert found.owner is not None
    assert (found.owner.attempt, found.owner.recorded) == (1, True)
    assert "process" in found.owner.description


def test_sizes_are_of_all_files_and_of_those_that_nobody_else_needs(job: JobFolder, folder: Path) -> None:
    both, mine = job.segment(b"x" * 1000), job.segment(b"x" * 300)
    job.complete(1, both)
    ref = job.complete(2, both, mine)
    metadata_size = (folder / ref.path / "_metadata").stat().st_size
    one = describe_job(job.storage).checkpoints[1]
    assert isinstance(one, Summary)
    assert one.size == metadata_size + len(b"state of 2") + 1300
    assert one.own_size == one.size - 1000


def test_void_and_unreadable_checkpoints_are_listed_as_what_they_are(job: JobFolder, folder: Path) -> None:
    first, void = job.complete(1), job.complete(2)
    owner = job.start(first)
    third = job.complete(3)
    alter(folder / third.path / "_metadata")
    one, two, three = describe_job(job.storage).checkpoints
    assert (one.void_by, two.ref, two.void_by) == (None, void, owner.attempt)
    assert isinstance(three, Unreadable)
    assert "_metadata is damaged" in three.problem


def test_sources_without_state_in_the_newest_good_checkpoint_are_told_with_their_start(
    job: JobFolder, folder: Path
) -> None:
    assert describe_job(job.storage).starts == {}

    def starts(at: float) -> dict[str, SourceStart]:
        return {id: SourceStart("A", {}, "00", at) for id in ("in", "other")}

    job.ownership = fencing.take_ownership(job.storage)
    fencing.record_restored(job.storage, job.ownership, None, starts=starts(5.0))
    assert describe_job(job.storage).starts == {"in": 5.0, "other": 5.0}
    ref = job.complete(1, source={"any": "position"})
    assert describe_job(job.storage).starts == {"other": 5.0}
    job.complete(2, source={"any": "position"})
    job.ownership = fencing.take_ownership(job.storage)
    fencing.record_restored(job.storage, job.ownership, ref, starts=starts(9.0))
    assert describe_job(job.storage).starts == {"other": 9.0}, "the second one is void"
    alter(folder / ref.path / "_metadata")
    assert describe_job(job.storage).starts == {"in": 9.0, "other": 9.0}


def test_what_is_known_of_a_savepoint_follows_its_trace_and_its_folder(
    job: JobFolder, folder: Path, tmp_path: Path
) -> None:
    for id in (1, 2, 3, 4):
        write_savepoint(job, tmp_path / f"kept-{id}", id)
    alter(tmp_path / "kept-2" / "_metadata")
    (tmp_path / "kept-3").rename(tmp_path / "moved")
    write_savepoint(job, tmp_path / "kept-3", 5)
    (folder / trace_path(CheckpointRef(4, 1))).write_bytes(b"no trace")
    there = {trace.ref.id: (trace.uri is not None, trace.there) for trace in describe_job(job.storage).savepoints}
    assert there == {1: (True, True), 2: (True, False), 3: (True, False), 4: (False, None), 5: (True, True)}


def test_the_one_that_is_meant_is_the_newest_of_a_job_or_must_be_chosen(job: JobFolder, tmp_path: Path) -> None:
    with pytest.raises(NotACheckpoint, match="my%20orders has no complete checkpoint"):
        the_one(tmp_path.as_uri())
    first, second = job.complete(1), job.complete(2)
    assert the_one(tmp_path.as_uri()) == the_one(job.storage.uri_of()) == uri(job, second)
    assert the_one(uri(job, first) + "/") == uri(job, first)
    saved = write_savepoint(job, tmp_path / "kept", 3)
    assert the_one(saved) == saved
    with pytest.raises(NotACheckpoint, match="holds several jobs or savepoints; choose one:") as caught:
        the_one(tmp_path.as_uri())
    assert str(caught.value).split("\n  ")[1:] == [job.storage.uri_of(), saved]


# -- one checkpoint -------------------------------------------------------------------------------------------


def captured(job: JobFolder, id: int) -> Any:
    """Channel state of three rows on `EDGE`, and a checkpoint that holds them and state of every kind."""
    ref = CheckpointRef(id, job.ownership.attempt)
    rows = data([1, 2, 3])
    state = CapturedState(inputs={ChannelName(EDGE, 0, 0): [rows]})
    handle = channel_state.save(
        job.storage,
        private_path(ref, "totals-0", "in-flight"),
        state,
        lambda edge: row_format(carries_keys=False),
        "none",
    )
    big = job.storage.spill(
        OperatorSnapshot({"operator": b"x" * (2 * INLINE_STATE_LIMIT)}), private_path(ref, "map-0", "own", "msgpack")
    )
    operators = {"totals": OperatorSnapshot({"operator": [1]}, keyed_state=(StateFile(job.begin(id)),)), "map": big}
    metadata = metadata_of(
        ref, operators, channel_state=(handle,), rows={EDGE: 3}, lineage_parent=("l0", 7), replaying=True
    )
    job.storage.write_metadata(id, ref.attempt, metadata)
    return ref, rows.size, handle


def test_details_say_what_is_in_a_checkpoint(job: JobFolder) -> None:
    ref, size, _ = captured(job, 1)
    found = describe(uri(job, ref))
    assert (found.summary.ref, found.summary.replaying, found.lineage_parent) == (ref, True, ("l0", 7))
    assert (found.max_parallelism, found.parallelism, found.options) == (128, {"totals": 1}, {"interval": 1.0})
    assert found.in_flight == (InFlight(EDGE, 3, size),)
    totals = {state.step: state.total for state in found.steps}
    assert totals["totals"].keyed == len(b"state of 1")
    assert 0 < totals["totals"].inline < 100
    assert totals["map"].inline == 0
    assert totals["map"].files > 2 * INLINE_STATE_LIMIT
    assert totals["map"].total == totals["map"].files
    assert found.problems == ()


def test_committables_are_counted_by_sink_and_writer(job: JobFolder) -> None:
    ref = job.complete(5, job.segment(), job.segment(), source={"any": "position"})
    found = describe(uri(job, ref))
    assert found.pending == (Pending("out", 0, (CommittableName(5, 0), CommittableName(5, 1)), rows=20, size=200),)
    assert [(source.step, source.subtask, source.state) for source in found.sources] == [("in", 0, {"any": "position"})]
    staged = next(state.total for state in found.steps if state.step == "out")
    assert staged.staged == 2 * len(b"segment")


def test_committables_that_lie_in_a_file_are_counted_only_when_it_is_read(job: JobFolder) -> None:
    ref = CheckpointRef(1, 1)
    pending = [[3, [[[1, i], "p" * 100, []] for i in range(300)]]]
    big = job.storage.spill(
        OperatorSnapshot({"sink": {"pending": pending, "committers": []}}), private_path(ref, "out-0", "own", "msgpack")
    )
    job.storage.write_metadata(1, 1, metadata_of(ref, {"out": big}))
    (brief,) = describe_job(job.storage).checkpoints
    assert isinstance(brief, Summary)
    assert brief.uncommitted is None
    (found,) = describe(uri(job, ref)).pending
    assert (found.writer, len(found.segments), found.rows, found.size) == (3, 300, None, None)


def test_what_a_damaged_file_hides_is_told(job: JobFolder, folder: Path) -> None:
    ref, _, handle = captured(job, 1)
    alter(folder / handle.path)
    found = describe(uri(job, ref))
    assert found.in_flight == (InFlight(EDGE, 3, None),)
    (problem,) = found.problems
    assert f"{handle.path} is damaged" in problem


def test_a_damaged_file_hides_only_what_is_in_it(job: JobFolder, folder: Path) -> None:
    ref, rows = CheckpointRef(1, 1), data([1, 2])
    spilled = job.storage.spill(
        OperatorSnapshot({"source": "x" * (2 * INLINE_STATE_LIMIT)}), private_path(ref, "in-0", "own", "msgpack")
    )
    in_flight = [
        channel_state.save(
            job.storage,
            private_path(ref, f"in-{subtask}", "in-flight"),
            CapturedState(inputs={ChannelName(EDGE, 0, subtask): [rows]}),
            lambda edge: row_format(carries_keys=False),
            "none",
        )
        for subtask in range(2)
    ]
    first, second = (
        SubtaskSnapshot({"in": state}, channel_state=(file,), in_flight_rows={EDGE: 2})
        for state, file in zip((spilled, OperatorSnapshot({"source": 7})), in_flight, strict=True)
    )
    sink = OperatorSnapshot({"sink": {"pending": [[0, [[[1, 0], {"rows": 4}, []]]]], "committers": []}})
    vertices = {"in": VertexSnapshot((first, second)), "totals": VertexSnapshot((SubtaskSnapshot({"out": sink}),))}
    job.storage.write_metadata(1, 1, metadata_of(ref, {}, vertices=vertices))
    whole = describe(uri(job, ref))
    assert whole.in_flight == (InFlight(EDGE, 4, 2 * rows.size),)
    assert [(source.step, source.subtask) for source in whole.sources] == [("in", 0), ("in", 1)]
    assert [sorted(state.subtasks) for state in whole.steps] == [[0, 1], [0]]
    assert whole.problems == ()
    assert spilled.state_file is not None
    for damaged in (spilled.state_file, in_flight[0]):
        alter(folder / damaged.path)
    found = describe(uri(job, ref))
    assert found.in_flight == (InFlight(EDGE, 4, None),)
    assert [(source.step, source.subtask, source.state) for source in found.sources] == [("in", 1, 7)]
    assert [(pending.sink, pending.rows, pending.size) for pending in found.pending] == [("out", 4, None)]
    assert len(found.problems) == 2


def test_bytes_that_a_payload_does_not_say_are_those_of_its_files_each_once(job: JobFolder) -> None:
    ref, file, other = CheckpointRef(1, 1), job.segment(b"1" * 30), job.segment(b"2" * 12)
    wires = [file.to_wire(), other.to_wire()]
    without_files = [[1, 2], {"rows": 1}, []]
    pending = [[0, [[[1, 0], {"rows": 4, "bytes": 9}, wires], [[1, 1], {"rows": 5}, wires[:1]], without_files]]]
    sink = OperatorSnapshot({"sink": {"pending": pending, "committers": []}}, files=(file, other))
    job.storage.write_metadata(1, 1, metadata_of(ref, {"out": sink}))
    (found,) = describe(uri(job, ref)).pending
    assert (found.rows, found.size) == (10, 42)


def test_a_savepoint_is_described_from_its_own_folder_wherever_it_was_moved(job: JobFolder, tmp_path: Path) -> None:
    write_savepoint(job, tmp_path / "kept", 1)
    (tmp_path / "kept").rename(tmp_path / "moved")
    moved = (tmp_path / "moved").as_uri()
    one = summarise(moved)
    assert (one.kind, one.uri, one.size, one.own_size) == (CheckpointKind.SAVEPOINT, moved, one.size, one.size)
    assert describe(moved).steps[0].subtasks == {0: StateSize(keyed=len(b"state"))}


def test_a_checkpoint_with_damaged_metadata_is_an_error_that_names_it(job: JobFolder, folder: Path) -> None:
    ref = job.complete(1)
    alter(folder / ref.path / "_metadata")
    with pytest.raises(DamagedFile, match="chk-1-1/_metadata is damaged"):
        describe(uri(job, ref))


# -- verifying ------------------------------------------------------------------------------------------------


def test_whole_checkpoints_have_no_problems(job: JobFolder) -> None:
    file = job.segment()
    refs = [job.complete(1, file), job.complete(2, file)]
    found = verify_job(job.storage)
    assert [(one.ref, one.files, one.problems) for one in found.checkpoints] == [(ref, 3, ()) for ref in refs]
    assert (found.damaged, found.orphans, found.blind) == ([], (), False)


@pytest.mark.parametrize(
    ("how", "quick", "message"),
    [
        ("altered", False, "is damaged"),
        ("altered", True, None),
        ("truncated", True, "is damaged"),
        ("gone", True, "missing"),
    ],
)
def test_every_damaged_file_is_named(job: JobFolder, folder: Path, how: str, quick: bool, message: str | None) -> None:
    """With sizes only, altered content goes unnoticed."""
    shared = job.segment()
    first, second = job.complete(1, shared), job.complete(2, shared)
    private = f"{second.path}/totals-0-state.arrow"
    for path in (shared.path, private):
        file = folder / path
        match how:
            case "altered":
                alter(file)
            case "truncated":
                file.write_bytes(file.read_bytes()[:-1])
            case "gone":
                file.unlink()
    found = verify_job(job.storage, quick)
    problems = {one.ref: one.problems for one in found.checkpoints}
    if message is None:
        assert found.damaged == []
        return
    assert len(found.damaged) == 2
    assert [shared.path in problem for problem in problems[first]] == [True]
    assert (
        sorted(path in problem for problem in problems[second] for path in (shared.path, private))
        == [False] * 2 + [True] * 2
    )
    assert all(message in problem for problem in problems[second])


def test_damage_of_a_void_checkpoint_is_told_and_is_nobodys_problem(job: JobFolder, folder: Path) -> None:
    first, void = job.complete(1), job.complete(2)
    job.start(first)
    alter(folder / void.path / "totals-0-state.arrow")
    found = verify_job(job.storage)
    assert found.checkpoints[1].problems
    assert found.damaged == []


def test_unreadable_metadata_is_damage_and_leaves_open_which_files_are_needed(job: JobFolder, folder: Path) -> None:
    ref = job.complete(1, job.segment())
    job.segment()
    alter(folder / ref.path / "_metadata")
    found = verify_job(job.storage)
    assert [(one.ref, one.files, one.size) for one in found.damaged] == [(ref, 1, 0)]  # nothing but the file itself
    assert found.blind
    assert found.orphans == ()


def test_orphans_are_told_apart_by_whether_they_may_be_in_use(job: JobFolder) -> None:
    good = job.complete(1)
    job.begin(2)
    job.start(good)
    job.begin(3)
    found = verify_job(job.storage)
    assert [(orphan.path, orphan.kind, orphan.spared) for orphan in found.orphans] == [
        ("chk-2-1", OrphanKind.INCOMPLETE, None),
        ("chk-3-2", OrphanKind.INCOMPLETE, Spared.IN_USE),
    ]
    assert found.orphans[0].size == len(b"state of 2")
    assert found.owner == 2


def test_one_checkpoint_or_savepoint_is_verified_alone(job: JobFolder, folder: Path, tmp_path: Path) -> None:
    good, bad = job.complete(1), job.complete(2)
    saved = write_savepoint(job, tmp_path / "kept", 3)
    alter(folder / bad.path / "totals-0-state.arrow")
    assert [bool(verify_single(one).problems) for one in (uri(job, good), uri(job, bad), saved)] == [False, True, False]
    alter(tmp_path / "kept" / "_metadata")
    damaged = verify_single(saved)
    assert (damaged.ref, damaged.files, damaged.size) == (None, 1, 0)
    (problem,) = damaged.problems
    assert "_metadata is damaged" in problem


def test_state_that_is_inline_is_verified_and_counts_as_part_of_metadata(job: JobFolder, folder: Path) -> None:
    ref = CheckpointRef(3, job.ownership.attempt)
    file = InlineFile(job.storage, private_path(ref, "totals-0", "state"), 100)
    file.write(b"state")
    small = file.close()
    operators = {"totals": OperatorSnapshot(keyed_state=(StateFile(small),))}
    job.storage.write_metadata(ref.id, ref.attempt, metadata_of(ref, operators))
    size = (folder / ref.path / "_metadata").stat().st_size
    (verified,) = verify_job(job.storage).checkpoints
    assert (verified.files, verified.size, verified.problems) == (1, size, ())
    found = describe(uri(job, ref))
    assert (found.summary.files, found.summary.size, found.summary.own_size) == (1, size, size)
    assert found.steps[0].subtasks[0].keyed == 5


def test_inline_state_that_is_not_what_its_checksum_says_is_a_problem(job: JobFolder) -> None:
    ref = CheckpointRef(3, job.ownership.attempt)
    wrong = FileHandle(private_path(ref, "totals-0", "state"), 5, "0" * 32, b"state")
    job.storage.write_metadata(
        ref.id, ref.attempt, metadata_of(ref, {"totals": OperatorSnapshot(keyed_state=(StateFile(wrong),))})
    )
    (verified,) = verify_job(job.storage).checkpoints
    assert "totals-0-state.arrow is damaged" in verified.problems[0]
