"""Names of files: which they are, and what they say."""

from __future__ import annotations

import pytest

from checkpoint.storage.naming import (
    CheckpointRef,
    belongs_to,
    encode,
    parse_trace,
    private_path,
    shared_attempt,
    shared_path,
    subtask_name,
    trace_path,
)


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("orders_2-a.b", "orders_2-a.b"),
        ("a/b", "a%2Fb"),
        ("~", "%7E"),
        ("é", "%C3%A9"),
        (".hidden", "%2Ehidden"),
        ("..", "%2E."),
        ("a.", "a."),
        ("x" * 80, "x" * 80),
    ],
)
def test_a_part_of_a_name_is_what_file_systems_take(part: str, name: str) -> None:
    assert encode(part) == name


def test_a_long_part_ends_in_a_hash_of_all_of_it() -> None:
    names = {encode("x" * length) for length in (81, 82, 500)}
    assert len(names) == 3
    assert {len(name) for name in names} == {80}
    assert {name[:48] for name in names} == {"x" * 47 + "~"}


def test_steps_whose_names_differ_in_their_case_have_files_that_differ_otherwise() -> None:
    assert subtask_name("totals", 1) == "totals-1"
    upper = subtask_name("Totals", 1)
    assert upper.startswith("Totals~")
    assert upper.endswith("-1")
    assert upper.lower() != "totals-1"
    assert subtask_name("X" * 100, 0).count("~") == 1


def test_a_private_file_says_whose_it_is() -> None:
    path = private_path(CheckpointRef(5, 2), subtask_name("a-b", 1), "in-flight")
    assert path == "chk-5-2/a-b-1-in%2Dflight.arrow"
    assert belongs_to(path.rpartition("/")[2], "a-b-1")
    assert not belongs_to(path.rpartition("/")[2], "a-b")
    assert private_path(CheckpointRef(5, 2), "a-0", "own", "msgpack") == "chk-5-2/a-0-own.msgpack"


def test_a_shared_file_says_which_attempt_wrote_it_finished_or_not() -> None:
    path = shared_path(12, "out-3")
    assert path.startswith("shared/12-out-3-")
    assert shared_path(12, "out-3") != path
    assert shared_attempt(path) == 12
    assert shared_attempt(f"shared/.tmp-{'0' * 32}-7-x\n") == 7
    for strange in ("shared/notes", "shared/0-x", "shared/7", f"shared/.tmp-{'0' * 31}-7-x"):
        assert shared_attempt(strange) is None


def test_folders_and_traces_are_told_by_their_names() -> None:
    ref = CheckpointRef(10, 3)
    assert (ref.path, trace_path(ref)) == ("chk-10-3", "savepoint-10-3")
    assert CheckpointRef.parse(ref.path) == parse_trace(trace_path(ref)) == ref
    for name in ("chk-0-1", "chk-1-0", "chk-01-1", "chk-1", "chk-1-1-1", "xchk-1-1", "savepoint-1-1"):
        assert CheckpointRef.parse(name) is None
    for name in ("savepoint-1-1.stopped", "savepoint-0-1", "chk-1-1"):
        assert parse_trace(name) is None
    assert sorted([CheckpointRef(2, 1), CheckpointRef(1, 9), CheckpointRef(1, 2)]) == [
        CheckpointRef(1, 2),
        CheckpointRef(1, 9),
        CheckpointRef(2, 1),
    ]
