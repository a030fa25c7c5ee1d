"""The list of files of a log: what a barrier refers to, and what is merged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from checkpoint.state.changelog.log import MOST_FILES, ChangeLog, Weight, next_merge
from checkpoint.storage.handles import FileHandle, StateFile


def file(name: str, size: int = 1) -> StateFile:
    return StateFile(FileHandle(name, size, name), range(4))


def names(listed: tuple[StateFile, ...]) -> list[str]:
    return [each.file.path for each in listed]


def test_each_barrier_lists_the_files_before_it_and_its_own() -> None:
    log = ChangeLog([file("restored", 100)])
    first = log.barrier("a")
    second = log.barrier("b")
    assert log.before(first) == []
    assert log.before(second) is None, "the first is still on its way"
    assert names(log.written(first, file("1"))) == ["restored", "1"]
    assert log.before(second) == []
    assert names(log.written(second, file("2"))) == ["restored", "1", "2"]


def test_what_could_not_be_written_goes_with_the_next_changes() -> None:
    log = ChangeLog()
    first, second, third = log.barrier("a"), log.barrier("b"), log.barrier("c")
    log.not_written(first)
    assert log.before(second) == [first]
    log.not_written(second)
    assert log.before(third) == [first, second]
    assert names(log.written(third, file("3"))) == ["3"]
    assert log.before(log.barrier("d")) == []


def test_a_barrier_without_changes_needs_no_file() -> None:
    log = ChangeLog([file("restored")])
    assert names(log.written(log.barrier("nothing"), None)) == ["restored"]
    assert names(log.written(log.barrier("a"), file("1"))) == ["restored", "1"]


def test_a_merge_counts_from_the_next_barrier_on() -> None:
    log = ChangeLog([file("old", 100), file("1", 4)])
    assert log.begin_merge() is None
    before = log.barrier("a")
    log.written(before, file("2", 5))
    merge = log.begin_merge()
    assert merge is not None
    assert (names(merge.older), names(merge.files)) == (["old"], ["1", "2"])
    assert log.begin_merge() is None, "one at a time"
    during = log.barrier("b")
    log.end_merge(file("merged", 8))
    assert names(log.written(during, file("3"))) == ["old", "1", "2", "3"]
    assert names(log.written(log.barrier("c"), file("4"))) == ["old", "merged", "3", "4"]


def test_nothing_may_be_left_of_a_merge() -> None:
    log = ChangeLog([file("1"), file("2")])
    assert log.begin_merge() is not None
    log.end_merge(None)
    assert names(log.written(log.barrier("a"), None)) == []


def test_a_merge_that_was_given_up_is_tried_again() -> None:
    log = ChangeLog([file("1"), file("2")])
    merge = log.begin_merge()
    assert merge is not None
    log.give_up_merge()
    again = log.begin_merge()
    assert again is not None
    assert again.files == merge.files


def test_what_is_not_durable_yet_is_not_merged() -> None:
    log = ChangeLog([file("1", 8), file("2", 4)])
    waiting = log.barrier("a")
    later = log.barrier("b")
    assert log.begin_merge() is None
    log.written(waiting, file("3", 2))
    assert log.begin_merge() is None
    log.written(later, file("4", 2))
    merge = log.begin_merge()
    assert merge is not None
    assert names(merge.files) == ["1", "2", "3", "4"]


@given(st.lists(st.integers(1, 10**9), max_size=200))
def test_no_more_is_read_and_no_more_files_are_there_than_is_said(written: list[int]) -> None:
    """Merges that lose nothing: the largest that there can be."""
    sizes: list[int] = []
    for size in written:
        sizes.append(size)
        while (part := next_merge([Weight(size, 0, 0) for size in sizes])) is not None:
            assert part.stop == len(sizes)
            assert part.stop - part.start > 1
            sizes[part] = [sum(sizes[part])]
        assert all(size > sum(sizes[i + 1 :]) for i, size in enumerate(sizes))
        assert len(sizes) <= min(MOST_FILES, (sizes[0] // sizes[-1]).bit_length() + 2)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=60))
def test_what_was_deleted_does_not_stay_for_ever(barriers: list[tuple[int, int]]) -> None:
    """Of the rows that a list has, a good part counts, however small those are that say what is gone."""
    files: list[Weight] = []
    living = 0
    for added, removed in barriers:
        gone = min(removed, living)
        living += added - gone
        files.append(Weight(1000 * added + gone + 1, added + gone, gone))
        while (part := next_merge(files)) is not None:
            if part.start == 0:
                files = [Weight(1000 * living + 1, living, 0)] if living else []
            else:
                files[part] = [Weight(*map(sum, zip(*files[part], strict=True)))]
        assert sum(each.rows for each in files) <= 4 * living + 4 * len(files) + 4


def test_many_files_are_merged_whatever_their_sizes() -> None:
    files = [Weight(2 ** (100 - i), 0, 0) for i in range(MOST_FILES + 1)]
    part = next_merge(files)
    assert part is not None
    assert MOST_FILES // 4 < part.stop - part.start < len(files)
    assert next_merge(files[:-1]) is None
