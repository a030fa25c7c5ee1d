"""Which partition runs which subtask."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.local_copies import Copy
from pipeline.runtime.deployment import Restored, RestoredInFlight
from pipeline.runtime.driver.start.placement import Slot, place, wish

CHECKPOINT = (7, 2)


def copy(subtask: int) -> Copy:
    return (*CHECKPOINT, f"totals-{subtask}")


def slots(*folders: tuple[str, list[int]]) -> list[Slot]:
    """By partition: the folder, and the subtasks whose copies it holds."""
    return [Slot(folder, frozenset(copy(i) for i in held)) for folder, held in folders]


def test_without_copies_subtask_i_is_in_partition_i() -> None:
    assert place(slots(("a", []), ("b", []), ("a", [])), [{}, {copy(1): 10}, {}]) == [0, 1, 2]
    assert place([Slot("")] * 3, [{}] * 3) == [0, 1, 2]


def test_a_subtask_comes_back_to_where_its_copy_is() -> None:
    a, b = ("a", [2, 3]), ("b", [0, 1])
    placed = place(slots(a, a, b, b), [{copy(i): 10} for i in range(4)])
    assert placed == [2, 3, 0, 1]


def test_a_subtask_stays_in_its_partition_if_that_is_in_the_right_folder() -> None:
    a, b = ("a", [0, 2]), ("b", [1, 3])
    assert place(slots(a, b, a, b), [{copy(i): 10} for i in range(4)]) == [0, 1, 2, 3]


def test_subtasks_without_a_copy_make_room() -> None:
    a, b = ("a", [2]), ("b", [])
    assert place(slots(a, b, b), [{copy(i): 10} for i in range(3)]) == [2, 1, 0]


def test_copies_of_other_checkpoints_count_for_nothing() -> None:
    old = Slot("b", frozenset({(6, 2, "totals-0"), (7, 1, "totals-0")}))
    assert place([Slot("a"), old], [{copy(0): 10}, {}]) == [0, 1]


def test_who_wants_most_comes_first_where_room_is_short() -> None:
    a, b = ("a", [0, 1]), ("b", [])
    assert place(slots(a, b), [{copy(0): 10}, {copy(1): 20}]) == [1, 0]


def test_a_folder_that_holds_little_of_it_is_not_taken_for_its_own() -> None:
    a, b = ("a", [0]), ("b", [1])
    wanted = {copy(0): 1, copy(1): 100}
    assert place(slots(a, b), [wanted, {}]) == [1, 0]


def test_with_another_parallelism_a_subtask_comes_to_the_old_ones_whose_keys_it_takes_over() -> None:
    """Four subtasks become two: the new first takes over the keys of old 0 and 1."""
    a, b = ("a", [2, 3]), ("b", [0, 1])
    assert place(slots(a, b), [{copy(0): 10, copy(1): 10}, {copy(2): 10, copy(3): 10}]) == [1, 0]


def test_a_subtask_wishes_for_the_files_that_it_reads() -> None:
    def handle(path: str, size: int) -> FileHandle:
        return FileHandle(path, size, "")

    restored = Restored(
        keyed_state={
            "totals": [
                StateFile(handle("chk-7-2/totals-0-state.arrow", 10), range(3)),
                StateFile(handle("chk-7-2/totals-1-state.arrow", 20)),
                StateFile(handle("shared/1-totals-0-state-17.arrow", 5)),
            ],
        },
        in_flight=RestoredInFlight(
            files=[
                (0, handle("chk-7-2/totals-0-in%2Dflight.arrow", 3)),
                (1, handle("chk-7-2/in-1-in%2Dflight.arrow", 4)),
            ]
        ),
    )
    log = (0, 1, "1-totals-0-state-17.arrow")
    assert wish(restored) == {copy(0): 13, copy(1): 20, (7, 2, "in-1"): 4, log: 5}
    assert wish(Restored()) == {}


FOLDERS = st.sampled_from("abc")


@st.composite
def placements(draw: st.DrawFn) -> tuple[list[Slot], list[dict[Copy, int]]]:
    n = draw(st.integers(1, 6))
    held = {folder: frozenset(copy(i) for i in draw(st.sets(st.integers(0, n - 1)))) for folder in "abc"}
    folders = draw(st.lists(FOLDERS, min_size=n, max_size=n))
    weights = draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    return [Slot(folder, held[folder]) for folder in folders], [{copy(i): weights[i]} for i in range(n)]


@given(placements())
def test_every_subtask_has_a_partition_and_no_other_placement_brings_more_of_them_home(
    case: tuple[list[Slot], list[dict[Copy, int]]],
) -> None:
    slots, wishes = case

    def home(placed: tuple[int, ...] | list[int]) -> list[int]:
        """Bytes found by each subtask that finds its copy."""
        return [size for i, p in enumerate(placed) for copy, size in wishes[i].items() if copy in slots[p].copies]

    placed = place(slots, wishes)
    assert sorted(placed) == list(range(len(slots)))
    others = [home(other) for other in permutations(range(len(slots)))]
    assert len(home(placed)) == max(map(len, others))
    assert sum(home(placed)) == max(map(sum, others))


wanted_of_many = st.dictionaries(st.integers(0, 5).map(copy), st.integers(1, 100), max_size=3)


@given(
    st.lists(st.tuples(FOLDERS, st.frozensets(st.integers(0, 5).map(copy))), min_size=1, max_size=12).flatmap(
        lambda rows: st.tuples(st.just(rows), st.lists(wanted_of_many, min_size=len(rows), max_size=len(rows)))
    )
)
def test_whatever_is_held_and_wanted_every_subtask_has_one_partition(
    case: tuple[list[tuple[str, frozenset[Copy]]], list[dict[Copy, int]]],
) -> None:
    rows, wishes = case
    assert sorted(place([Slot(*row) for row in rows], wishes)) == list(range(len(rows)))
