"""What checkpoints carry of sinks."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoint.committables import Committable, CommittableName, SinkState
from checkpoint.storage.handles import FileHandle

A, B, C = (FileHandle(name, size, "0" * 32) for name, size in (("a", 1), ("b", 2), ("c", 3)))
NAME = CommittableName(5, 0)


@pytest.mark.parametrize(
    ("prepared", "payload", "files"),
    [
        ({"n": 1}, {"n": 1}, ()),
        (("p", [A, B]), "p", (A, B)),
        (("p", []), "p", ()),
        (("p", [A, "b"]), ("p", [A, "b"]), ()),
        (("p", (A,)), ("p", (A,)), ()),
        (("p", [A], 1), ("p", [A], 1), ()),
        (["p", [A]], ["p", [A]], ()),
    ],
)
def test_only_a_pair_of_a_payload_and_a_list_of_files_is_taken_apart(prepared: Any, payload: Any, files: Any) -> None:
    assert Committable.of(NAME, prepared) == Committable(NAME, payload, files)


def test_segments_are_ordered_by_their_epoch_and_then_by_their_place() -> None:
    names = [CommittableName(10, 0), CommittableName(2, 1), CommittableName(2, 0), CommittableName(1, 9)]
    assert [(name.epoch, name.index) for name in sorted(names)] == [(1, 9), (2, 0), (2, 1), (10, 0)]


def state() -> SinkState:
    return SinkState(
        {
            3: [Committable(NAME, "x", (A, B)), Committable(CommittableName(5, 1), "y", (B,))],
            1: [Committable(NAME, "z", (C,))],
        },
        {3: "three", 7: "seven"},
    )


def test_a_sinks_state_names_its_writers_and_each_file_once() -> None:
    assert state().writers == [1, 3, 7]
    assert state().files == [A, B, C]
    assert SinkState().writers == SinkState().files == []


def test_what_belongs_to_some_writers_is_what_they_have_prepared_and_kept() -> None:
    some = state().of_writers(lambda writer: writer >= 3)
    assert (some.pending, some.committers) == ({3: state().pending[3]}, {3: "three", 7: "seven"})


def test_other_files_take_the_places_of_those_that_were_referred_to() -> None:
    moved = state().with_files({A: C, B: A, C: B})
    assert [one.files for one in moved.pending[3]] == [(C, A), (A,)]
    assert [one.files for one in moved.pending[1]] == [(B,)]
    assert [one.payload for one in moved.pending[3]] == ["x", "y"]
    assert moved.committers == state().committers


def test_what_several_subtasks_hold_is_put_together_in_their_order() -> None:
    whole, more = state(), SinkState({3: [Committable(CommittableName(6, 0), "w")]}, {3: "later"})
    together = SinkState.from_wire(whole.to_wire(), more.to_wire())
    assert together.pending == {3: [*whole.pending[3], *more.pending[3]], 1: whole.pending[1]}
    assert together.committers == {3: "later", 7: "seven"}
    assert SinkState.from_wire() == SinkState()
