"""What one subtask of a file source has read, reads, and will read."""

from __future__ import annotations

from dataclasses import replace

from sources.files.folder import FoundFile
from sources.files.ledger import Ledger


def file(path: str, size: int = 10, modified: int = 0) -> FoundFile:
    return FoundFile(path, size, modified)


def test_a_file_that_a_listing_found_before_it_was_read_is_not_read_again() -> None:
    """The listing runs in another thread: what it has found may have been read by the time it is handed over."""
    ledger = Ledger(0, 1, None)
    found = ledger.unknown([file("a")])
    again = ledger.unknown([file("a")])
    ledger.add(found)
    split = ledger.next()
    assert split is not None
    ledger.finish(split)
    ledger.add(again)
    assert (ledger.next(), ledger.waiting) == (None, 0)


def test_a_part_of_a_file_begins_at_every_multiple_of_the_size_of_parts() -> None:
    ledger = Ledger(0, 1, 10)
    assert [ledger.parts_of(size) for size in (0, 1, 10, 11, 20, 21)] == [1, 1, 1, 2, 2, 3]
    assert Ledger(0, 1, None).parts_of(10**12) == 1


def test_what_was_begun_comes_first_then_files_in_their_order() -> None:
    for order, expected in (("name", ["c", "a", "b"]), ("mtime", ["c", "b", "a"])):
        ledger = Ledger(0, 1, None, order)  # type: ignore[arg-type]
        splits = ledger.unknown([file("b", modified=1), file("a", modified=2), file("c", modified=3)])
        next(split for split in splits if split.path == "c").row = 5
        ledger.add(splits)
        read = [ledger.next() for _ in range(3)]
        assert [split.path for split in read if split is not None] == expected


def test_files_of_one_time_come_one_after_the_other_each_with_its_parts_in_order() -> None:
    ledger = Ledger(0, 1, 10, "mtime")
    ledger.add(ledger.unknown([file("b", size=15), file("c"), file("a", size=15)]))
    read = [ledger.next() for _ in range(5)]
    expected = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 0)]
    assert [(split.path, split.part) for split in read if split is not None] == expected


def test_every_part_belongs_to_one_subtask() -> None:
    files = [file(f"f{number}", size=35) for number in range(20)]
    parts = [(split.path, split.part) for subtask in range(3) for split in Ledger(subtask, 3, 10).unknown(files)]
    assert sorted(parts) == sorted((one.path, part) for one in files for part in range(4))


def test_parts_stay_those_that_the_first_checkpoint_fixed() -> None:
    first = Ledger(0, 1, 10)
    first.add(first.unknown([file("a", size=25)]))
    split = first.next()
    assert split is not None
    first.finish(split)
    restored = Ledger(0, 1, 1000)
    restored.restore([first.snapshot(None)], "in")
    assert restored.unknown([file("a", size=25)]) == []
    assert sorted((split.path, split.part) for split in restored.open_splits) == [("a", 1), ("a", 2)]
    assert restored.parts_of(25) == 3


def test_a_checkpoint_has_the_split_that_is_read_as_far_as_it_was_emitted() -> None:
    ledger = Ledger(0, 1, None)
    ledger.add(ledger.unknown([file("a"), file("b")]))
    split = ledger.next()
    assert split is not None
    state = ledger.snapshot(replace(split, offset=7, row=3))
    restored = Ledger(0, 1, None)
    restored.restore([state], "in")
    assert sorted((one.path, one.offset, one.row) for one in restored.open_splits) == [("a", 7, 3), ("b", 0, 0)]
