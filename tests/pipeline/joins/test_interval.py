"""Interval joins: pairs of records whose times are near each other, found once whatever happens in between."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from joined_input import (
    SIZES,
    JoinRun,
    Record,
    Restore,
    Watermark,
    counted,
    events,
    interval_oracle,
    pages_of,
    rows,
    split,
)

from checkpoint.event_time.bounds import MAX_WATERMARK
from pipeline import PipelineError, Tumbling
from pipeline.by_event_time import NoTimestamp
from pipeline.joins import IntervalJoin, WindowJoin, interval
from pipeline.joins.options import MOST_AT_ONCE
from pipeline.testing import OperatorHarness

HOWS = ("inner", "left", "right", "full")
BOUNDS = st.tuples(st.integers(-8, 8), st.integers(-8, 8)).map(lambda pair: (min(pair), max(pair)))


@contextmanager
def at_once(most: int) -> Iterator[None]:
    """So many pairs, or records, in one piece."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interval, "MOST_AT_ONCE", most)
        yield


MANY = [Record("right", "a", 6, 0), Record("right", "a", 6, 1), Record("right", "a", 6, 2), Record("left", "a", 10, 3)]
"""The last one has more partners than one."""


def in_seconds(within: tuple[int, int]) -> tuple[float, float]:
    return within[0] / 1000, within[1] / 1000


def harness(within: tuple[int, int] = (-5, 5), how: Any = "inner", select: Any = None) -> OperatorHarness:
    """`within`: in milliseconds."""
    return OperatorHarness(IntervalJoin(in_seconds(within), how, select))


def left(one: OperatorHarness, at: int | None, value: Any = "l", key: Any = "k") -> list[Any]:
    return one.process(value, key=key, timestamp=at)


def right(one: OperatorHarness, at: int | None, value: Any = "r", key: Any = "k") -> list[Any]:
    return one.process_connected(value, key=key, timestamp=at)


def pair(left: Any, right: Any, key: Any = "k") -> dict[str, Any]:
    return {"key": key, "left": left, "right": right}


def check(found: list[Any], within: tuple[int, int], how: Any, backend: Any = "heap") -> None:
    """A join over these events gives what the oracle gives, and keeps nothing in the end."""
    run = JoinRun(lambda: IntervalJoin(in_seconds(within), how), backend).feed(found).end()
    lefts, rights, late = split(found)
    assert run.results == interval_oracle(lefts, rights, within, how)
    assert run.late == counted(late)
    assert run.kept() == []
    run.harness.close()


@given(events(), BOUNDS, st.sampled_from(HOWS), SIZES)
@settings(max_examples=150, deadline=None)
@example(
    [Record("left", "a", 0, 0), Watermark(2), Record("right", "a", 3, 1), Watermark(3), Restore(), Watermark(9)],
    (1, 3),
    "full",
    2,
)
def test_results_are_those_of_the_whole_input(found: list[Any], within: tuple[int, int], how: str, size: int) -> None:
    with pages_of(size):
        check(found, within, how)


@given(events(), BOUNDS, st.sampled_from(HOWS), SIZES, st.integers(1, 3))
@settings(max_examples=150, deadline=None)
@example([*MANY, Restore()], (-5, 5), "full", 2, 1)
@example([*MANY, Record("left", "a", 6, 4), Record("right", "a", 9, 5), Watermark(20)], (-5, 5), "full", 2, 1)
@example([Watermark(5), *MANY, Record("left", "a", 7, 4), Watermark(20)], (-8, -3), "left", 2, 1)
@example([*MANY, Record("left", "a", 14, 4), Record("right", "a", 16, 5), Watermark(25)], (-5, 5), "left", 2, 1)
def test_also_where_each_record_has_too_many_partners_for_one_piece(
    found: list[Any], within: tuple[int, int], how: str, size: int, most: int
) -> None:
    """A harness fires timers at watermarks only: what comes meanwhile waits, over restores, too."""
    with pages_of(size), at_once(most):
        check(found, within, how)


@given(events(most=25), BOUNDS, st.sampled_from(HOWS), SIZES, st.sampled_from((1, 2, MOST_AT_ONCE)))
@settings(max_examples=15, deadline=None)
def test_it_is_the_same_with_rocksdb(found: list[Any], within: tuple[int, int], how: str, size: int, most: int) -> None:
    with pages_of(size), at_once(most):
        check(found, within, how, "rocksdb")


@given(st.data(), BOUNDS, st.sampled_from(HOWS))
@settings(max_examples=60, deadline=None)
def test_no_order_of_the_inputs_and_no_watermark_changes_what_is_on_time(
    data: st.DataObject, within: tuple[int, int], how: Any
) -> None:
    """Watermarks are as upstream makes them: at most 4 ms behind the records that came, and never ahead of one to
    come."""
    times = data.draw(st.lists(st.tuples(st.sampled_from(("left", "right")), st.integers(-15, 15)), max_size=25))
    records = [Record(side, "a", at, i) for i, (side, at) in enumerate(times)]
    order = data.draw(st.permutations(records))
    found: list[Any] = []
    for i, record in enumerate(order):
        found.append(record)
        still = min((one.at for one in order[i + 1 :]), default=20)
        if data.draw(st.booleans()):
            found.append(Watermark(still - 1))
        if data.draw(st.booleans()):
            found.append(Restore())
    run = JoinRun(lambda: IntervalJoin(in_seconds(within), how)).feed(found).end()
    lefts = [one for one in records if one.side == "left"]
    rights = [one for one in records if one.side == "right"]
    assert run.results == interval_oracle(lefts, rights, within, how)
    assert not run.late


@given(events(most=12), events(most=12), events(most=12), BOUNDS, st.sampled_from(HOWS))
@settings(max_examples=60, deadline=None)
def test_two_subtasks_become_one(
    first: list[Any], second: list[Any], then: list[Any], within: tuple[int, int], how: Any
) -> None:
    """Time goes back for the keys of the faster one, and what is late for them stays late."""
    numbers = itertools.count(100)
    parts = [
        [one._replace(key=key, number=next(numbers)) if isinstance(one, Record) else one for one in part]
        for key, part in (("a", first), (1, second))
    ]
    behind = [
        one._replace(key="a" if one.key is None else 1, number=next(numbers)) if isinstance(one, Record) else one
        for one in then
    ]
    runs = [JoinRun(lambda: IntervalJoin(in_seconds(within), how)).feed(part) for part in parts]
    run = JoinRun.together(runs).feed(behind).end()

    # A subtask without a watermark makes the new one begin without any.
    reached: dict[Any, int] = {}
    for one, part in zip(runs, parts, strict=True):
        watermarks = [event.at for event in part if isinstance(event, Watermark)]
        if watermarks:
            reached |= dict.fromkeys(one.keys, max(watermarks))
    watermarks = [max((event.at for event in part if isinstance(event, Watermark)), default=None) for part in parts]
    before = [] if None in watermarks else [Watermark(min(one for one in watermarks if one is not None))]
    splits = [*map(split, parts), split([*before, *behind], reached.get)]
    lefts, rights, late = (list(itertools.chain(*part)) for part in zip(*splits, strict=True))
    assert run.results == interval_oracle(lefts, rights, within, how)
    assert run.late == counted(late)
    assert run.kept() == []


# -- one by one -------------------------------------------------------------------------------------------------


def test_a_pair_comes_with_the_later_record_and_has_its_time() -> None:
    one = harness()
    assert left(one, 10) == []
    assert right(one, 7) == [pair("l", "r")]
    assert right(one, 12, "s") == [pair("l", "s")]
    assert one.timestamps == [10, 12]


@pytest.mark.parametrize("at", [95, 105])
def test_both_bounds_are_included(at: int) -> None:
    one = harness()
    left(one, 100)
    assert right(one, at) == [pair("l", "r")]
    assert right(one, at + (1 if at > 100 else -1)) == []


def test_a_record_is_kept_up_to_the_last_time_of_a_partner_and_no_longer() -> None:
    run = JoinRun(lambda: IntervalJoin((0, 0.005)))
    run.feed([Record("left", "a", 100, 0), Watermark(104)])
    assert run.kept("left") == [("left", [[100], [Record("left", "a", 100, 0).value]])]
    assert run.harness.process_connected(1, key="a", timestamp=105) == [pair({"side": "left", "n": 0}, 1, "a")]
    run.feed([Watermark(105)])
    assert run.kept() == []


def test_a_record_stays_when_one_goes_that_is_a_millisecond_older() -> None:
    one = harness((0, 5))
    left(one, 100, "gone")
    left(one, 101)
    one.watermark(105)
    assert right(one, 106) == [pair("l", "r")]


def test_no_record_is_kept_for_which_none_can_come() -> None:
    """A right one may be before the left one only, and the watermark is behind that."""
    run = JoinRun(lambda: IntervalJoin((-5, -0.002), "full"))
    run.feed([Record("right", "a", 91, 0), Watermark(90), Record("left", "a", 93, 1), Record("left", "a", 92, 2)])
    assert run.kept("left") == [("left", [[93], [{"side": "left", "n": 1}], [True]])]


def test_who_finds_nobody_comes_alone_once_the_watermark_tells() -> None:
    one = harness((-5, 5), "full")
    left(one, 100)
    right(one, 120)
    assert one.watermark(104) == []
    assert one.watermark(105) == [pair("l", None)]
    assert one.watermark(1000) == [pair(None, "r")]
    assert one.timestamps == [105, 125]
    assert one.end_of_input() == []


def test_who_comes_alone_does_not_wait_for_a_later_one_that_came_before_it() -> None:
    one = harness((-5, 5), "left")
    left(one, 100, "later")
    left(one, 90, "earlier")
    assert one.watermark(94) == []
    assert one.watermark(95) == [pair("earlier", None)]
    assert one.watermark(105) == [pair("later", None)]


def test_who_comes_alone_has_no_time_before_its_own() -> None:
    """Whether it had to wait, or the watermark had told already."""
    one = harness((-5, -2), "left")
    left(one, 100)
    assert one.watermark(98) == [pair("l", None)]
    assert left(one, 99, "m") == [pair("m", None)]
    assert one.timestamps == [100, 99]


def test_each_of_several_records_of_one_time_counts() -> None:
    one = harness((0, 5), "left")
    for value in ("l", "m", "l"):
        left(one, 100, value)
    assert right(one, 100) == [pair("l", "r"), pair("m", "r"), pair("l", "r")]
    for value in ("n", "o", "n"):
        left(one, 101, value)
    assert one.watermark(200_000) == [pair("n", None), pair("o", None), pair("n", None)]
    assert one.end_of_input() == []


def test_a_late_record_is_joined_with_nothing_and_comes_out_late() -> None:
    one = harness((-5, 5), "full")
    left(one, 100)
    one.watermark(99)
    assert right(one, 99) == []
    assert right(one, 100, "s") == [pair("l", "s")]
    assert left(one, 98, "m", key="other") == []
    assert one.side_outputs["late"] == [
        {"key": "k", "side": "right", "record": "r"},
        {"key": "other", "side": "left", "record": "m"},
    ]
    assert one.end_of_input() == []


def test_what_is_late_for_a_key_stays_late_when_the_job_is_rescaled() -> None:
    """The subtask's watermark goes back; the key's partners are gone."""

    def make() -> IntervalJoin:
        return IntervalJoin((-0.005, 0.005), "left")

    fast, slow = JoinRun(make), JoinRun(make)
    fast.feed([Record("left", "a", 100, 0), Watermark(105)])
    slow.feed([Record("left", 1, 100, 1), Watermark(50)])
    run = JoinRun.together([fast, slow]).feed([Record("right", "a", 101, 2), Record("right", 1, 101, 3)]).end()
    assert run.results == {(105, "'a'", 0, None): 1, (101, "1", 1, 3): 1}
    assert run.late == {("'a'", "right", 2): 1}


@pytest.mark.parametrize("at", [-(2**63) + 1, MAX_WATERMARK - 1, -1, 0])
@pytest.mark.parametrize("within", [(-(10**9), 10**9), (-(10**9), -(10**8)), (10**8, 10**9)])
def test_no_time_is_too_early_or_too_late(at: int, within: tuple[int, int]) -> None:
    one = OperatorHarness(IntervalJoin(within, "full"))
    left(one, at)
    right(one, at)
    both = within[0] <= 0 <= within[1]
    assert one.outputs == ([pair("l", "r")] if both else [])
    one.end_of_input()
    assert len(one.outputs) == (1 if both else 2)
    assert rows(one) == []
    assert left(one, at) == []
    assert one.side_outputs["late"] == [{"key": "k", "side": "left", "record": "l"}]


class Counting(IntervalJoin):
    """Notes how many records each timer emits."""

    def __init__(self) -> None:
        super().__init__((-5, 5), "left")
        self.counts: list[int] = []

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        found = list(super().on_timer(timestamp, ctx))
        self.counts.append(len(found))
        return found


@pytest.mark.parametrize("watermark", [200_000, MAX_WATERMARK])
def test_many_records_of_a_key_that_go_at_once_hold_no_barrier_back(watermark: int) -> None:
    """Each timer is done with some of them."""
    operator = Counting()
    one = OperatorHarness(operator)
    for i in range(2 * MOST_AT_ONCE + 5):
        left(one, 100 + i % 7, i)
    one.watermark(watermark)
    assert sorted(output["left"] for output in one.outputs) == list(range(2 * MOST_AT_ONCE + 5))
    assert operator.counts == [MOST_AT_ONCE, MOST_AT_ONCE, 5]
    assert one.end_of_input() == []


def test_at_the_end_of_event_time_all_go_however_many_timers_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval, "MOST_AT_ONCE", 1)
    one = harness(how="left")
    for i in range(50):
        left(one, 5, i)
    assert [output["left"] for output in one.end_of_input()] == list(range(50))
    assert (rows(one), one.timers_dropped) == ([], 0)


def test_select_makes_results_and_may_change_what_it_gets() -> None:
    def select(left: Any, right: Any) -> Any:
        left["seen"] = True
        return [left, right]

    one = harness((-5, 5), "left", select)
    left(one, 100, {"n": 1})
    assert right(one, 100, 2) == [[{"n": 1, "seen": True}, 2]]
    left(one, 100, {"n": 3})
    assert right(one, 100, 4) == [[{"n": 1, "seen": True}, 4], [{"n": 3, "seen": True}, 4]]
    assert rows(one, "left")[0][1][1] == [{"n": 1}, {"n": 3}]
    left(one, 200, {"n": 5})
    assert one.watermark(300) == [[{"n": 5, "seen": True}, None]]


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_record_without_a_timestamp_is_an_error_that_says_what_to_do(side: str) -> None:
    with pytest.raises(NoTimestamp, match=rf"a record of the {side} stream has no timestamp.*assign_timestamps"):
        (left if side == "left" else right)(harness(), None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"within": (0, 1), "how": "outer"}, 'not .outer.; an outer join of both sides is "full"'),
        ({"within": 5}, r"within is a pair of bounds.*not 5"),
        ({"within": (1, 2, 3)}, "within is a pair"),
        ({"within": (5, -5)}, "lower bound first"),
        ({"within": ("a", 5)}, "within must be seconds"),
        ({"within": (0, float("inf"))}, "must be seconds"),
        ({"within": (float("-inf"), 0)}, "must be seconds"),
        ({"within": (0, float("nan"))}, "within"),
        ({"within": (0, 0.0005)}, "fraction of a millisecond"),
        ({"within": (0, 1), "how": "outer"}, "how must be one of inner, left, right, full"),
        ({"within": (0, 1), "select": 5}, "select must be a plain function"),
        ({"within": (0, 1), "select": lambda left: left}, "select must be a plain function"),
    ],
)
def test_what_means_nothing_is_refused(options: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        IntervalJoin(**options)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: IntervalJoin((-5, 6), "left"), r"within=\(-5, 5\).*another id"),
        (lambda: IntervalJoin((-5, 5), "inner"), "how='left'.*another id"),
        (lambda: WindowJoin(Tumbling(5), "left"), "a join by within.*another id"),
    ],
)
def test_state_of_other_options_is_refused(other: Any, message: str) -> None:
    before = OperatorHarness(IntervalJoin((-5, 5), "left"))
    left(before, 1)
    with pytest.raises(PipelineError, match=message):
        OperatorHarness.restore(other(), before.snapshot())
