"""What an async step may emit next: any input, any order of answers, against a model that looks at the whole input."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.async_calls.line import Line, Place

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


def take(line: Line[int, int]) -> int | None:
    place = line.take()
    return line.take_control() if place is None else place.record


@given(_EVENTS)
def test_what_goes_is_what_may_and_nothing_that_may_is_kept(events: list[tuple[str, Any]]) -> None:
    line: Line[int, int] = Line()
    model = Model()
    places: dict[int, Place[int]] = {}
    emitted: list[int] = []

    def take_one() -> bool:
        allowed = model.allowed()
        assert line.ready == bool(allowed)
        one = take(line)
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
            places[number] = line.add(number, argument)
            model.input.append([number, argument, False, False, False])
        elif kind == CONTROL:
            line.add_control(number)
            model.input.append([number, None, True, False, False])
        elif kind == ANSWER:
            waiting = [one[0] for one in model.input if not one[2] and not one[3]]
            if waiting:
                chosen = waiting[argument % len(waiting)]
                line.done(places[chosen], argument)
                model.input[chosen][3] = True
        else:
            take_one()
        assert [record if control is None else control for record, control in line.rest()] == model.rest()
        assert line.records == sum(not one[2] and not one[4] for one in model.input)
        assert bool(line) == bool(model.rest())
    for number, place in places.items():
        if not place.done:
            line.done(place, None)
            model.input[number][3] = True
    while take_one():
        pass
    assert sorted(emitted) == list(range(len(model.input)))
    assert not line
    assert not list(line.rest())


@given(st.permutations(range(6)))
def test_one_lane_is_the_order_of_the_input(answers: list[int]) -> None:
    line: Line[int, int] = Line()
    places = [line.add(number, "all") for number in range(6)]
    emitted = []
    for number in answers:
        line.done(places[number], None)
        while (one := take(line)) is not None:
            emitted.append(one)
    assert emitted == list(range(6))


def test_a_control_waits_for_the_records_in_front_of_it_and_those_behind_it_for_the_control() -> None:
    line: Line[str, str] = Line()
    slow = line.add("slow")
    line.add_control("watermark")
    quick = line.add("quick")
    line.done(quick, None)
    assert not line.ready
    assert (line.take(), line.take_control()) == (None, None)
    assert line.controls_wait
    line.done(slow, None)
    taken = line.take()
    assert taken is slow
    assert line.take() is None
    assert line.take_control() == "watermark"
    assert not line.controls_wait
    assert line.take() is quick
    assert not line


def test_what_is_done_and_not_taken_is_part_of_the_rest() -> None:
    line: Line[str, str] = Line()
    line.done(line.add("answered"), 1)
    assert list(line.rest()) == [("answered", None)]


def test_a_request_is_done_once() -> None:
    line: Line[str, str] = Line()
    place = line.add("one")
    line.done(place, 1)
    with pytest.raises(ValueError, match="only once"):
        line.done(place, 2)
