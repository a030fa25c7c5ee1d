"""The folder of a file sink: which files and markers there are whose, and what a killed process has left."""

from __future__ import annotations

from pathlib import Path

import pytest

from sinks import CommittableName, Lineage
from sinks.files.marker import Marker
from sinks.files.target import FOLDER, Target, writer_name

MARKER = Marker(Lineage("L1"), 3, CommittableName(3, 0), "p", 2)
ONE, TEN = writer_name("job", "out", 1), writer_name("job", "out", 10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def target(folder: Path) -> Target:
    target = Target(str(folder))
    target.probe()
    return target


def half(name: str) -> str:
    """What a file is called while it is being written."""
    return f".tmp-{'0' * 32}-{name}"


def publish(target: Target, path: str, content: bytes) -> None:
    target.publish(path, len(content), [content[:2], content[2:]], lambda: None)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_look_whether_the_folder_can_be_written_to_leaves_nothing(target: Target, folder: Path) -> None:
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def test_a_file_is_there_if_it_has_the_size(target: Target) -> None:
    publish(target, "k=1/a", b"12345")
    assert target.holds("k=1/a", 5)
    assert not target.holds("k=1/a", 4)
    assert not target.holds("k=1/b", 5)


def test_a_file_that_cannot_be_finished_leaves_nothing(target: Target, folder: Path) -> None:
    def interrupted() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        target.publish("a", 2, [b"12"], interrupted)
    assert names(folder) == [FOLDER]


def test_only_what_is_left_of_the_files_named_is_removed(target: Target, folder: Path) -> None:
    for name in (half("a"), half("b"), half("aa"), "a", ".a"):
        (folder / name).write_text("x")
    target.remove_leftovers(["a"])
    assert names(folder) == sorted([half("b"), half("aa"), "a", ".a", FOLDER])


def test_what_is_left_in_sub_folders_is_removed_too(target: Target, folder: Path) -> None:
    (folder / "k=1").mkdir()
    (folder / "k=1" / half("a")).write_text("x")
    target.remove_leftovers(["k=1/a", "k=2/a"])
    assert names(folder / "k=1") == []


def test_a_writers_markers_are_those_of_its_committers_and_nobody_elses(target: Target) -> None:
    others = Marker(Lineage("L9"), 1)
    target.write_marker(ONE, "first", MARKER)
    target.write_marker(TEN, "first", others)
    target.write_marker(writer_name("another", "out", 1), "first", others)
    assert target.markers(ONE) == [MARKER]
    target.write_marker(ONE, "second", MARKER)
    assert target.markers(ONE) == [MARKER, MARKER]


def test_a_committer_replaces_the_markers_of_those_before_whole_or_not(target: Target, folder: Path) -> None:
    for writer, committer in ((ONE, "first"), (ONE, "second"), (TEN, "first")):
        target.write_marker(writer, committer, MARKER)
    for name in (f"{ONE}.first", f"{TEN}.first"):
        (folder / FOLDER / half(name)).write_text("x")
    target.delete_other_markers(ONE, "second")
    assert names(folder / FOLDER) == sorted([half(f"{TEN}.first"), f"{ONE}.second", f"{TEN}.first"])


def test_names_with_commas_and_slashes_are_told_apart() -> None:
    assert (
        len({writer_name(*each) for each in (("a,b", "c", 1), ("a", "b,c", 1), ("a/b", "c", 1), ("a", "b/c", 1))}) == 4
    )
