"""Aggregating state: values are added to an accumulator per key, which is what a snapshot holds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from checkpoint.codec import EncodingError, encode_key
from checkpoint.key_groups import key_group
from checkpoint.state import AggregatingState, DeclaresState, StateAccessError, bind, make_backend, read_batches

MAX = 16


class Average(DeclaresState):
    """The accumulator is changed in place."""

    average = AggregatingState[float, float](
        create=lambda: {"sum": 0.0, "count": 0},
        add=lambda so_far, x: so_far.update(sum=so_far["sum"] + x, count=so_far["count"] + 1) or so_far,
        result=lambda so_far: so_far["sum"] / so_far["count"],
    )


class Running:
    """An operator with its backend, as one subtask has them."""

    def __init__(self, cls: type = Average) -> None:
        self.op: Any = cls()
        self.backend = make_backend(range(MAX), MAX)
        bind(self.op, self.backend)

    def at(self, key: Any) -> Any:
        """The operator, with `key` as current key."""
        encoded = encode_key(key)
        self.backend.set_current_key(encoded, key_group(encoded, MAX))
        return self.op


def test_every_key_has_its_own_accumulator_and_reads_its_result() -> None:
    job = Running()
    for key, x in (("a", 1.0), ("b", 10.0), ("a", 4.0)):
        job.at(key).average.add(x)
    assert job.at("a").average.value == 2.5
    assert job.at("b").average.value == 10.0


def test_a_key_to_which_nothing_was_added_has_no_result() -> None:
    job = Running()
    assert job.at("a").average.value is None
    job.op.average.add(1.0)
    job.op.average.clear()
    assert job.op.average.value is None
    job.op.average.add(3.0)
    assert job.op.average.value == 3.0


def test_the_accumulator_may_be_a_value_that_is_replaced() -> None:
    class Op(DeclaresState):
        longest = AggregatingState[str, str](
            create=lambda: (0, ""), add=lambda best, word: max(best, (len(word), word)), result=lambda best: best[1]
        )

    op = Running(Op).at("a")
    for word in ("to", "three", "two"):
        op.longest.add(word)
    assert op.longest.value == "three"


def test_a_snapshot_holds_the_accumulator_as_it_was_though_it_is_changed_in_place_afterwards() -> None:
    """Else a restore would count the values behind the barrier twice."""
    job = Running()
    job.at("a").average.add(1.0)
    snapshot = job.backend.freeze()
    job.op.average.add(3.0)
    data = bytearray()
    snapshot.write(data.extend)
    restored = Running()
    restored.backend.restore(read_batches(bytes(data)))
    assert (job.op.average.value, restored.at("a").average.value) == (2.0, 1.0)
    restored.op.average.add(5.0)
    assert restored.op.average.value == 3.0


def test_an_add_function_that_returns_nothing_is_an_error_instead_of_a_lost_value() -> None:
    class Op(DeclaresState):
        items = AggregatingState[int, int](create=list, add=lambda items, x: items.append(x), result=len)  # type: ignore[func-returns-value]

    op = Running(Op).at("a")
    with pytest.raises(TypeError, match=r"add function of state 'items' of .*Op returned None; it must return"):
        op.items.add(1)


def test_an_accumulator_that_cannot_be_kept_is_refused_before_the_first_record() -> None:
    class Op(DeclaresState):
        kinds = AggregatingState[Any, int](create=Counter, add=lambda kinds, x: kinds + x, result=len)

    with pytest.raises(EncodingError, match=r"accumulator of state 'kinds' can't be kept in a checkpoint: .*use dict"):
        Running(Op)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(StateAccessError, match=r"AggregatingState: create must be a function, not \[\]"):
        AggregatingState([], max, len)  # type: ignore[arg-type]


def test_it_is_state_of_a_key() -> None:
    job = Running()
    with pytest.raises(StateAccessError, match="state 'average' of Average was used where there is no current key"):
        job.op.average.add(1.0)
    with pytest.raises(StateAccessError, match="average is a state of Average"):
        job.op.average = 5
