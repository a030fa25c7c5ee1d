"""A snapshot is complete with its last part, whatever that is, and once."""

from __future__ import annotations

from typing import Any

import pytest
from captures import channel, data
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.barriers.events import Barrier
from pipeline.runtime.subtask.pending_snapshot import PendingSnapshot

OUT = [channel(0, 0), channel(0, 1)]
IN = [channel(5, 0), channel(6, 0)]
PARTS = [*(("left", one) for one in OUT), *(("arrived", one) for one in IN), ("written", None)]


class Snapshot:
    def __init__(self, outputs: Any = OUT, inputs: Any = IN) -> None:
        self.completed: list[str] = []
        self.pending = PendingSnapshot(Barrier(7), outputs, inputs, [], {}, lambda one: self.completed.append("later"))

    def bring(self, part: str, name: Any) -> None:
        match part:
            case "left":
                self.pending.barrier_left(name)
            case "arrived":
                self.pending.input_captured(name, [])
            case "written":
                self.pending.state_written({}, lambda: self.completed.append("with its state"))


@given(st.permutations(PARTS), st.lists(st.sampled_from(PARTS), max_size=4))
def test_it_is_complete_with_its_last_part_whatever_comes_again(parts: list[Any], again: list[Any]) -> None:
    snapshot = Snapshot()
    for part in parts[:-1]:
        snapshot.bring(*part)
        assert snapshot.completed == []
    snapshot.bring(*parts[-1])
    assert snapshot.completed == ["with its state" if parts[-1][0] == "written" else "later"]
    for part in again:
        snapshot.bring(*part)
    assert len(snapshot.completed) == 1


@given(st.permutations(PARTS), st.integers(0, len(PARTS) - 1))
def test_one_that_was_given_up_is_never_complete(parts: list[Any], number: int) -> None:
    snapshot = Snapshot()
    for i, part in enumerate(parts):
        if i == number:
            snapshot.pending.drop()
        snapshot.bring(*part)
    assert snapshot.completed == []


def test_without_channels_it_is_complete_with_its_state() -> None:
    snapshot = Snapshot((), ())
    snapshot.bring("written", None)
    assert snapshot.completed == ["with its state"]
    pending = snapshot.pending
    assert (pending.barrier, pending.checkpoint_id, pending.statistics) == (Barrier(7), 7, {})
    assert (pending.operators, pending.reused_bytes) == ({}, 0)


def test_what_it_waits_for_is_told_in_order() -> None:
    snapshot = Snapshot(reversed(OUT), reversed(IN))
    assert snapshot.pending.waiting() == (OUT, IN)
    snapshot.bring("left", OUT[0])
    snapshot.bring("arrived", IN[1])
    assert snapshot.pending.waiting() == (OUT[1:], IN[:1])


@pytest.mark.parametrize("elements", [[], [data([1])]])
def test_channels_with_nothing_in_flight_are_not_in_it(elements: list[Any]) -> None:
    snapshot = Snapshot()
    snapshot.pending.output_captured(OUT[0], elements)
    snapshot.pending.input_captured(IN[0], elements)
    captured = snapshot.pending.captured
    assert (captured.outputs, captured.inputs) == (({OUT[0]: elements}, {IN[0]: elements}) if elements else ({}, {}))
