"""What an async step may emit next: any input, any order of answers, against a model that looks at the whole input."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.async_calls.element_queue import ElementQueue, QueuedRecord

RECORD, CONTROL, ANSWER, TAKE = "record", "control", "answer", "take"
_LANES = st.sampled_from([None, "a", "b"])
_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just(RECORD), _LANES),
        st.tuples(st.just(CONTROL), st.none()),
        st.tuples(st.just(ANSWER), st.integers(0, 30)),
        st.tuples(st.just(TAKE), st.none()),
    ),
    max_size=80,
)


class Model:
    """Everything that came, as a list; what may go is looked for in it from the start."""

    def __init__(self) -> None:
        self.input: list[list[Any]] = []
        """Number, lane (a control has none), whether it is a control, done, gone."""

    def allowed(self) -> set[int]:
        """The numbers of what may be emitted now."""
        found: set[int] = set()
        lanes: set[Any] = set()
        records_wait = False
        for number, lane, control, done, gone in self.input:
            if gone:
                continue
            if control:
                return found if records_wait else found | {number}
            records_wait = True
            if done and (lane is None or lane not in lanes):
                found.add(number)
            lanes.add(lane)
        return found

    def rest(self) -> list[int]:
        return [one[0] for one in self.input if not one[4]]


def take(queue: ElementQueue[int, int]) -> int | None:
    place = queue.take()
    return queue.take_control() if place is None else place.record


@given(_EVENTS)
def test_what_goes_is_what_may_and_nothing_that_may_is_kept(events: list[tuple[str, Any]]) -> None:
    queue: ElementQueue[int, int] = ElementQueue()
    model = Model()
    places: dict[int, QueuedRecord[int]] = {}
    emitted: list[int] = []

    def take_one() -> bool:
        allowed = model.allowed()
        assert queue.ready == bool(allowed)
        one = take(queue)
        assert (one is None) == (not allowed)
        if one is None:
            return False
        assert one in allowed
        model.input[one][4] = True
        emitted.append(one)
        return True

    for kind, argument in events:
        number = len(model.input)
        if kind == RECORD:
            places[number] = queue.add(number, argument)
            model.input.append([number, argument, False, False, False])
        elif kind == CONTROL:
            queue.add_control(number)
            model.input.append([number, None, True, False, False])
        elif kind == ANSWER:
            waiting = [one[0] for one in model.input if not one[2] and not one[3]]
            if waiting:
                chosen = waiting[argument % len(waiting)]
                queue.done(places[chosen], argument)
                model.input[chosen][3] = True
        else:
            take_one()
        assert [record if control is None else control for record, control in queue.rest()] == model.rest()
        assert queue.records == sum(not one[2] and not one[4] for one in model.input)
        assert bool(queue) == bool(model.rest())
    for number, place in places.items():
        if not place.done:
            queue.done(place, None)
            model.input[number][3] = True
    while take_one():
        pass
    assert sorted(emitted) == list(range(len(model.input)))
    assert not queue
    assert not list(queue.rest())


@given(st.permutations(range(6)))
def test_one_lane_is_the_order_of_the_input(answers: list[int]) -> None:
    queue: ElementQueue[int, int] = ElementQueue()
    places = [queue.add(number, "all") for number in range(6)]
    emitted = []
    for number in answers:
        queue.done(places[number], None)
        while (one := take(queue)) is not None:
            emitted.append(one)
    assert emitted == list(range(6))


def test_a_control_waits_for_the_records_in_front_of_it_and_those_behind_it_for_the_control() -> None:
    queue: ElementQueue[str, str] = ElementQueue()
    slow = queue.add("slow")
    queue.add_control("watermark")
    quick = queue.add("quick")
    queue.done(quick, None)
    assert not queue.ready
    assert (queue.take(), queue.take_control()) == (None, None)
    assert queue.controls_wait
    queue.done(slow, None)
    taken = queue.take()
    assert taken is slow
    assert queue.take() is None
    assert queue.take_control() == "watermark"
    assert not queue.controls_wait
    assert queue.take() is quick
    assert not queue


def test_what_is_done_and_not_taken_is_part_of_the_rest() -> None:
    queue: ElementQueue[str, str] = ElementQueue()
    queue.done(queue.add("answered"), 1)
    assert list(queue.rest()) == [("answered", None)]


def test_a_request_is_done_once() -> None:
    queue: ElementQueue[str, str] = ElementQueue()
    place = queue.add("one")
    queue.done(place, 1)
    with pytest.raises(ValueError, match="only once"):
        queue.done(place, 2)
