"""`weir checkpoints`: tables, JSON and exit statuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checkpoint_folders import JobFolder, metadata_of
from click.testing import CliRunner, Result

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.storage import fencing, savepoints
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.storage import CheckpointStorage
from pipeline.cli import main
from pipeline.cli.drawing import human_size
from sources.kafka.splits import Split, to_state

OFFSETS = to_state([Split("flights", 0, "id", 4711), Split("flights", 1, "id", 12, 12, ended=True)], 0, 1)


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    return JobFolder(CheckpointStorage(tmp_path.as_uri(), "my orders"))


def weir(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["checkpoints", *arguments])


def said(*arguments: str) -> Any:
    result = weir(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def damage(job: JobFolder, ref: CheckpointRef) -> Path:
    file = Path(job.storage.location.removeprefix("file://")) / ref.path / "totals-0-state.arrow"
    file.write_bytes(b"")
    return file


def write_savepoint(job: JobFolder, folder: Path, id: int) -> str:
    target = savepoints.prepare(folder.as_uri())
    metadata = metadata_of(CheckpointRef(id, job.ownership.attempt), {}, kind=CheckpointKind.SAVEPOINT)
    savepoints.write(job.storage, target, metadata, stop=False, check_owner=lambda: None)
    return target.storage.uri_of()


# -- ls and show ----------------------------------------------------------------------------------------------


def test_ls_has_a_row_for_each_checkpoint(job: JobFolder, tmp_path: Path) -> None:
    first = job.complete(1, job.segment(b"x" * 3000))
    job.complete(2)
    job.start(first)
    job.complete(3, kind=CheckpointKind.FINAL)
    job.begin(4)
    saved = write_savepoint(job, tmp_path / "kept", 5)
    output = weir("ls", job.storage.uri_of()).output
    lines = {line.split(" ")[0]: line for line in output.splitlines() if line.startswith("chk-")}
    assert set(lines) == {"chk-1-1", "chk-2-1", "chk-3-2"}
    assert "2023-11-14 22:13:21" in lines["chk-1-1"]
    assert "0.25 s" in lines["chk-1-1"]
    assert "KiB" in lines["chk-1-1"]
    assert "void by owner 2" in lines["chk-2-1"]
    assert "final" in lines["chk-3-2"]
    assert "half deleted: chk-4-2" in output
    assert f"savepoint 5: {saved}" in output
    assert "newest owner: 2, host" in output


def test_json_has_exact_sizes_and_times(job: JobFolder) -> None:
    file = job.segment(b"x" * 3000)
    job.complete(1, file)
    job.complete(2, file)
    ((first, second),) = (found["checkpoints"] for found in said("ls", job.storage.uri_of())["jobs"])
    assert first["ref"] == {"id": 1, "epoch": 1, "folder": "chk-1-1"}
    assert first["triggered"] == "2023-11-14T22:13:21.000+00:00"
    assert first["trigger_time"] == 1_700_000_001.0
    assert second["size"] == second["own_size"] + 3000
    assert second["kind"] == "checkpoint"
    assert second["uncommitted"] == 1


def test_ls_of_a_root_shows_every_job_and_savepoint(job: JobFolder, tmp_path: Path) -> None:
    other = JobFolder(CheckpointStorage(tmp_path.as_uri(), "other"))
    other.complete(7)
    saved = write_savepoint(job, tmp_path / "kept", 1)
    output = weir("ls", str(tmp_path)).output
    assert "my%2520orders\n  no complete checkpoint" in output
    assert "chk-7-1" in output
    assert f"chk-1-1: {saved}" in output


def test_show_has_state_positions_and_what_is_to_be_committed(job: JobFolder) -> None:
    job.complete(1)
    ref = job.complete(2, job.segment(), job.segment(), source=OFFSETS)
    output = weir("show", job.storage.uri_of()).output
    assert job.storage.uri_of(ref.path) in output
    assert "2 of owner 1 (checkpoint)" in output
    assert "2023-11-14 22:13:22 UTC, took 0.250 s" in output
    words = [line.split() for line in output.splitlines()]
    assert ["in", "0", "flights[0]", "4711"] in words
    assert ["in", "0", "flights[1]", "12", "12", "ended"] in words
    assert ["out", "0", "2", "20", "200", "B", "2.0,", "2.1"] in words
    assert ["totals", "all", "0", "B", "0", "B", "10", "B", "0", "B", "10", "B"] in words


def test_show_as_json_has_positions_beside_the_sources_own_state(job: JobFolder) -> None:
    ref = job.complete(2, job.segment(), source=OFFSETS)
    found = said("show", job.storage.uri_of(ref.path))
    (source,) = found["sources"]
    assert source["state"] == OFFSETS
    assert source["positions"][0] == {"split": "flights[0]", "next": 4711, "end": None, "ended": False}
    (pending,) = found["pending"]
    assert (pending["sink"], pending["writer"], pending["rows"], pending["size"]) == ("out", 0, 10, 100)
    assert pending["segments"] == [{"epoch": 2, "index": 0}]


def test_the_state_of_a_source_that_is_not_weirs_is_shown_as_it_is(job: JobFolder) -> None:
    ref = job.complete(1, source={"file": "a.csv", "line": 17})
    assert '{"file":"a.csv","line":17}' in weir("show", job.storage.uri_of(ref.path)).output
    (source,) = said("show", job.storage.uri_of(ref.path))["sources"]
    assert source["positions"] is None


def test_tables_fit_into_100_columns(job: JobFolder) -> None:
    first = job.complete(1)
    job.complete(123_456, *[job.segment(b"x" * 2000) for _ in range(9)], source=OFFSETS)
    job.start(first)
    job.begin(200_000)
    root = job.storage.uri_of()
    for arguments in (("ls", root), ("show", job.storage.uri_of("chk-123456-1")), ("verify", root)):
        lines = weir(*arguments).output.splitlines()
        tables = [line for i, line in enumerate(lines) if any("───" in near for near in lines[max(0, i - 1) : i + 2])]
        assert tables
        assert all(len(line) <= 100 for line in tables)


@pytest.mark.parametrize("command", ["ls", "show", "verify", "gc"])
@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("{}/nothing", "does not exist, or is empty: give the URI of a job's folder"),
        ("{}/my%20orders/chk-9-9", "is no complete checkpoint"),
        ("what://is/this", "cannot open the checkpoint folder what://is/this"),
    ],
)
def test_a_uri_that_leads_nowhere_is_explained(
    job: JobFolder, tmp_path: Path, command: str, uri: str, message: str
) -> None:
    result = weir(command, uri.format(tmp_path))
    assert result.exit_code == 1
    assert (message if command != "gc" or "chk" not in uri else "is no job's folder") in result.output


def test_show_of_several_jobs_asks_which(job: JobFolder, tmp_path: Path) -> None:
    JobFolder(CheckpointStorage(tmp_path.as_uri(), "other"))
    result = weir("show", str(tmp_path))
    assert result.exit_code == 1
    assert f"choose one:\n  {job.storage.uri_of()}\n" in result.output


# -- verify ---------------------------------------------------------------------------------------------------


def test_verify_ends_with_0_when_all_is_well(job: JobFolder) -> None:
    job.complete(1, job.segment())
    result = weir("verify", job.storage.uri_of())
    assert result.exit_code == 0
    assert result.output.endswith("1 checkpoint is whole; nothing left over\n")


def test_verify_ends_with_0_when_there_are_only_orphans_and_says_so(job: JobFolder) -> None:
    good = job.complete(1)
    job.begin(2)
    job.start(good)
    job.begin(3)
    result = weir("verify", job.storage.uri_of())
    assert result.exit_code == 0
    assert "1 checkpoint is whole; 2 files or folders belong to none" in result.output
    left, in_use = result.output.split("Perhaps in use by the newest owner, 2")
    assert "Left by older owners" in left
    assert "chk-2-1" in left
    assert "chk-3-2" in in_use


def test_verify_ends_with_1_when_a_checkpoint_is_damaged(job: JobFolder) -> None:
    good, bad = job.complete(1), job.complete(2)
    file = damage(job, bad)
    for uri in (job.storage.uri_of(), job.storage.uri_of(bad.path)):
        for more in ([], ["--quick"]):
            result = weir("verify", uri, *more)
            assert result.exit_code == 1
            assert f"{file.as_posix()} is damaged" in result.output
    result = weir("verify", job.storage.uri_of(), "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["damaged"] is True
    assert weir("verify", job.storage.uri_of(good.path)).exit_code == 0


# -- gc -------------------------------------------------------------------------------------------------------


def test_gc_lists_what_it_deletes_with_sizes(job: JobFolder) -> None:
    good = job.complete(1)
    job.begin(2)
    job.start(good)
    job.begin(3)
    result = weir("gc", job.storage.uri_of())
    assert result.exit_code == 0
    assert ["chk-2-1", "incomplete", "checkpoint", "10", "B"] in [line.split() for line in result.output.splitlines()]
    assert "deleted: 1 file or folder, 10 B" in result.output
    assert "kept: 1, the newest owner may be using it (--stopped deletes it" in result.output
    assert job.storage.folders() == [good, CheckpointRef(3, 2)]
    assert "nothing to delete" in weir("gc", job.storage.uri_of()).output


def test_a_dry_run_deletes_nothing(job: JobFolder) -> None:
    job.begin(1)
    found = said("gc", job.storage.uri_of(), "--dry-run", "--stopped")
    assert found["dry_run"] is True
    assert [orphan["path"] for orphan in found["jobs"][0]["deleted"]] == ["chk-1-1"]
    assert job.storage.folders() == [CheckpointRef(1, 1)]
    assert job.storage.owners() == [job.ownership]


def test_gc_of_a_stopped_job_claims_it_and_deletes_what_its_last_run_left(job: JobFolder) -> None:
    job.begin(1)
    assert "deleted: 1 file or folder" in weir("gc", job.storage.uri_of(), "--stopped").output
    assert job.storage.folders() == []
    with pytest.raises(fencing.Fenced):
        fencing.check(job.storage, job.ownership)


def test_void_checkpoints_go_only_when_that_is_asked_for(job: JobFolder) -> None:
    first, void = job.complete(1), job.complete(2)
    job.start(first)
    third = job.complete(3)
    assert (
        "kept: 1, given up for an older restore, but complete (--void deletes them)"
        in weir("gc", job.storage.uri_of()).output
    )
    assert void in job.storage.folders()
    weir("gc", job.storage.uri_of(), "--void")
    assert job.storage.folders() == [first, third]


def test_gc_says_why_it_keeps_files_when_metadata_is_unreadable(
    job: JobFolder, caplog: pytest.LogCaptureFixture
) -> None:
    ref = job.complete(1)
    job.segment()
    Path(job.storage.location.removeprefix("file://"), ref.path, "_metadata").write_bytes(b"{}")
    result = weir("gc", job.storage.uri_of(), "--stopped")
    assert "nothing to delete" in result.output
    assert "what chk-1-1 refers to isn't known, so files that checkpoints might refer to are all kept" in caplog.text


def test_only_one_job_at_a_time_is_said_to_be_stopped(job: JobFolder, tmp_path: Path) -> None:
    JobFolder(CheckpointStorage(tmp_path.as_uri(), "other"))
    result = weir("gc", str(tmp_path), "--stopped")
    assert result.exit_code == 1
    assert "name one job's folder" in result.output
    assert weir("gc", str(tmp_path)).output.count("nothing to delete") == 2


def test_a_folder_that_no_job_has_used_is_not_claimed(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    result = weir("gc", str(tmp_path), "--stopped")
    assert result.exit_code == 1
    assert "no job has ever run in this folder" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["shared"]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (150 * 1024, "150 KiB"), (5 << 30, "5.0 GiB"), (None, "?")],
)
def test_sizes_for_people(size: int | None, text: str) -> None:
    assert human_size(size) == text
