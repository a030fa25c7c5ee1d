"""A file under `shared/` goes with the last checkpoint that refers to it, and never before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.storage.handles import FileHandle
from checkpoint.storage.shared_files import SharedFiles


def handle(name: str, checksum: str = "c") -> FileHandle:
    return FileHandle(f"shared/{name}", 1, checksum)


A, B, C = handle("1-a"), handle("1-b"), handle("2-c")


def test_a_file_goes_with_the_last_checkpoint_that_refers_to_it() -> None:
    shared = SharedFiles()
    shared.register(1, [A, B])
    shared.register(2, [B, C])
    assert shared.discard(1) == [A]
    assert shared.discard(2) == [B, C]


def test_a_checkpoint_in_progress_keeps_the_files_it_was_acknowledged_with() -> None:
    shared = SharedFiles()
    shared.register(1, [A, B])
    shared.register(2, [A])  # one of two acknowledgements of checkpoint 2
    assert shared.discard(1) == [B]
    shared.register(2, [C])
    assert shared.discard(2) == [A, C]


def test_files_of_an_aborted_checkpoint_stay_for_the_next_one() -> None:
    shared = SharedFiles()
    shared.register(1, [A])
    shared.forget(1)
    shared.register(2, [A, B])
    assert shared.discard(1) == []
    assert shared.discard(2) == [A, B]


def test_private_files_are_not_counted() -> None:
    shared = SharedFiles()
    shared.register(1, [FileHandle("chk-1-1/totals-0-state.arrow", 1, "c")])
    assert shared.discard(1) == []


def test_an_unknown_checkpoint_has_nothing_to_delete() -> None:
    assert SharedFiles().discard(7) == []


def test_one_name_with_two_contents_is_refused_and_changes_nothing() -> None:
    shared = SharedFiles()
    shared.register(1, [A])
    with pytest.raises(ValueError, match=r"shared/1-a has two contents.*checkpoint 2"):
        shared.register(2, [B, handle("1-a", "other")])
    with pytest.raises(ValueError, match="two contents"):
        shared.register(2, [handle("2-d", "x"), handle("2-d", "y")])
    assert shared.discard(2) == []
    assert shared.discard(1) == [A]


def test_what_no_checkpoint_refers_to_is_unused() -> None:
    shared = SharedFiles()
    shared.register(1, [A])
    unfinished = f"shared/.tmp-{'0' * 32}-1-out.arrow"
    paths = [A.path, B.path, C.path, unfinished, "shared/README"]
    assert shared.unused(paths) == [B.path, C.path, unfinished]


_STEPS = st.lists(
    st.tuples(st.sampled_from(["register", "discard", "forget"]), st.integers(1, 4), st.sets(st.sampled_from("abcde"))),
    max_size=20,
)


@given(_STEPS)
def test_nothing_is_deleted_that_a_checkpoint_refers_to_and_nothing_twice(
    steps: list[tuple[str, int, set[str]]],
) -> None:
    shared = SharedFiles()
    referred: dict[int, set[str]] = {}
    for step, checkpoint_id, names in steps:
        if step == "register":
            shared.register(checkpoint_id, [handle(name) for name in names])
            referred.setdefault(checkpoint_id, set()).update(names)
            continue
        mine = referred.pop(checkpoint_id, set())
        others = set().union(*referred.values())
        if step == "forget":
            shared.forget(checkpoint_id)
        else:
            deleted = [file.path for file in shared.discard(checkpoint_id)]
            assert deleted == sorted(f"shared/{name}" for name in mine - others)
