"""Windowed joins: pairs of records that are in one window."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joined_input import SIZES, JoinRun, Record, Restore, Watermark, counted, events, pages_of

from checkpoint.event_time.bounds import MAX_WATERMARK
from pipeline import PipelineError, Session, Sliding, Tumbling
from pipeline.by_event_time import NoTimestamp
from pipeline.joins import IntervalJoin, WindowJoin
from pipeline.testing import OperatorHarness

HOWS = ("inner", "left", "right", "full")
SHAPES = st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(-3, 3)).map(
    lambda one: (max(one[:2]), min(one[:2]), one[2])
)
"""Size, slide and offset, in milliseconds."""


def window_of(shape: tuple[int, int, int]) -> Any:
    size, slide, offset = (ms / 1000 for ms in shape)
    return Tumbling(size, offset=offset) if size == slide else Sliding(size, slide, offset=offset)


def ends_of(at: int, shape: tuple[int, int, int]) -> list[int]:
    """All windows that a time lies in, tried one by one."""
    size, slide, offset = shape
    return [end for end in range(at + 1, at + size + 1) if (end - size - offset) % slide == 0]


def results(lefts: list[Record], rights: list[Record], at: int, how: str) -> Counter:
    """What a window gives."""
    key = repr((lefts or rights)[0].key)
    found = Counter((at, key, one.number, other.number) for one in lefts for other in rights)
    if not rights and how in ("left", "full"):
        found.update((at, key, one.number, None) for one in lefts)
    if not lefts and how in ("right", "full"):
        found.update((at, key, None, one.number) for one in rights)
    return found


def window_oracle(found: list[Any], shape: tuple[int, int, int], how: str) -> tuple[Counter, list[Record]]:
    """The results, and what is late: for all its windows."""
    watermark = -(10**6)
    inside: dict[tuple[str, int], tuple[list[Record], list[Record]]] = {}
    late = []
    for one in found:
        if isinstance(one, Watermark):
            watermark = max(watermark, one.at)
        elif isinstance(one, Record):
            ends = [end for end in ends_of(one.at, shape) if end - 1 > watermark]
            for end in ends:
                inside.setdefault((repr(one.key), end), ([], []))[one.side == "right"].append(one)
            if not ends:
                late.append(one)
    total: Counter = Counter()
    for (_, end), (lefts, rights) in inside.items():
        total += results(lefts, rights, end - 1, how)
    return total, late


def session_oracle(found: list[Any], gap: int, how: str) -> tuple[Counter, list[Record]]:
    """Looks at all open records of a key at each watermark."""
    watermark = -(10**6)
    total: Counter = Counter()
    late, left = [], list[Record]()
    for one in [*found, Watermark(10**6)]:
        if isinstance(one, Record):
            (late if one.at + gap <= watermark else left).append(one)
        elif isinstance(one, Watermark) and one.at > watermark:
            watermark = one.at
            for key in {repr(record.key) for record in left}:
                groups: list[list[Record]] = []
                for record in sorted((each for each in left if repr(each.key) == key), key=lambda each: each.at):
                    if groups and record.at - groups[-1][-1].at <= gap:
                        groups[-1].append(record)
                    else:
                        groups.append([record])
                for group in groups:
                    if group[-1].at + gap <= watermark:
                        lefts = [each for each in group if each.side == "left"]
                        rights = [each for each in group if each.side == "right"]
                        total += results(lefts, rights, group[-1].at + gap, how)
                        left = [each for each in left if each not in group]
    return total, late


@given(events(), SHAPES, st.sampled_from(HOWS), SIZES)
@settings(max_examples=150, deadline=None)
def test_results_are_those_of_all_windows_of_the_input(
    found: list[Any], shape: tuple[int, int, int], how: Any, size: int
) -> None:
    with pages_of(size):
        run = JoinRun(lambda: WindowJoin(window_of(shape), how)).feed(found).end()
    expected, late = window_oracle(found, shape, how)
    assert run.results == expected
    assert run.late == counted(late)
    assert run.kept() == []


@given(events(), st.integers(1, 12), st.sampled_from(HOWS), SIZES)
@settings(max_examples=150, deadline=None)
def test_results_are_those_of_all_sessions_of_the_input(found: list[Any], gap: int, how: Any, size: int) -> None:
    with pages_of(size):
        run = JoinRun(lambda: WindowJoin(Session(gap / 1000), how)).feed(found).end()
    expected, late = session_oracle(found, gap, how)
    assert run.results == expected
    assert run.late == counted(late)
    assert run.kept() == []


@pytest.mark.parametrize("window", [Tumbling(0.008), Sliding(0.008, 0.003), Session(0.004)], ids=repr)
@given(data=st.data(), how=st.sampled_from(HOWS))
@settings(max_examples=40, deadline=None)
def test_no_order_of_the_inputs_and_no_watermark_changes_what_is_on_time(
    window: Any, data: st.DataObject, how: Any
) -> None:
    times = data.draw(st.lists(st.tuples(st.sampled_from(("left", "right")), st.integers(-15, 15)), max_size=25))
    records: list[Any] = [Record(side, "a", at, i) for i, (side, at) in enumerate(times)]
    found: list[Any] = []
    order = data.draw(st.permutations(records))
    for i, record in enumerate(order):
        found.append(record)
        if data.draw(st.booleans()):
            found.append(Watermark(min((one.at for one in order[i + 1 :]), default=20) - 1))
        if data.draw(st.booleans()):
            found.append(Restore())
    run = JoinRun(lambda: WindowJoin(window, how)).feed(found).end()
    assert run.results == JoinRun(lambda: WindowJoin(window, how)).feed(records).end().results
    assert not run.late


def left(one: OperatorHarness, at: int | None, value: Any = "l") -> list[Any]:
    return one.process(value, key="k", timestamp=at)


def right(one: OperatorHarness, at: int | None, value: Any = "r") -> list[Any]:
    return one.process_connected(value, key="k", timestamp=at)


def pair(left: Any, right: Any, start: int, end: int) -> dict[str, Any]:
    return {"key": "k", "start": start, "end": end, "left": left, "right": right}


def test_a_window_gives_its_pairs_when_it_closes() -> None:
    one = OperatorHarness(WindowJoin(Tumbling(0.010), "full"))
    left(one, 3)
    right(one, 9)
    left(one, 10, "m")
    assert one.watermark(8) == []
    assert right(one, 0, "s") == []  # late, but its window is open
    assert one.watermark(9) == [pair("l", "s", 0, 10), pair("l", "r", 0, 10)]
    assert left(one, 9, "n") == []
    assert one.watermark(19) == [pair("m", None, 10, 20)]
    assert one.timestamps == [9, 9, 19]
    assert one.side_outputs["late"] == [{"key": "k", "side": "left", "record": "n"}]


def test_results_of_sliding_windows_tell_which_window_they_are_of() -> None:
    one = OperatorHarness(WindowJoin(Sliding(0.010, 0.005), "left"))
    left(one, 7)
    right(one, 4)
    assert one.watermark(9) == [pair("l", "r", 0, 10)]
    assert one.watermark(14) == [pair("l", None, 5, 15)]


def test_a_session_is_one_of_both_streams() -> None:
    one = OperatorHarness(WindowJoin(Session(0.010)))
    left(one, 0)
    left(one, 20, "m")
    assert one.watermark(9) == []
    right(one, 10)  # joins both, since it touches them
    assert one.watermark(29) == []
    assert one.watermark(30) == [pair("l", "r", 0, 30), pair("m", "r", 0, 30)]
    assert one.timestamps == [30, 30]


def test_what_is_late_for_a_key_stays_late_when_the_job_is_rescaled() -> None:
    def make() -> WindowJoin:
        return WindowJoin(Tumbling(0.010), "left")

    fast, slow = JoinRun(make), JoinRun(make)
    fast.feed([Record("left", "a", 100, 0), Watermark(115)])
    slow.feed([Record("left", 1, 100, 1), Watermark(50)])
    run = JoinRun.together([fast, slow]).feed([Record("right", "a", 101, 2), Record("right", 1, 101, 3)]).end()
    assert run.results == {(109, "'a'", 0, None): 1, (109, "1", 1, 3): 1}
    assert run.late == {("'a'", "right", 2): 1}


@pytest.mark.parametrize("window", [Tumbling(10**6), Sliding(10**6, 10**5), Session(10**6)], ids=repr)
@pytest.mark.parametrize("at", [-(2**63) + 1, MAX_WATERMARK - 1])
def test_no_time_is_too_early_or_too_late(window: Any, at: int) -> None:
    run = JoinRun(lambda: WindowJoin(window, "full"))
    run.feed([Record("left", "a", at, 0), Record("right", "a", at, 1)]).end()
    assert {numbers for *_, one, other in run.results for numbers in [(one, other)]} == {(0, 1)}
    assert run.kept() == []


def test_a_record_without_a_timestamp_is_an_error() -> None:
    with pytest.raises(NoTimestamp, match="a record of the right stream has no timestamp"):
        right(OperatorHarness(WindowJoin(Tumbling(1))), None)


def test_what_means_nothing_is_refused() -> None:
    with pytest.raises(PipelineError, match="window is Tumbling"):
        WindowJoin(5)  # type: ignore[arg-type]
    before = OperatorHarness(WindowJoin(Tumbling(1)))
    right(before, 1)
    with pytest.raises(PipelineError, match=r"window=Tumbling\(1.*another id"):
        OperatorHarness.restore(IntervalJoin((-5, 5)), before.snapshot())
    with pytest.raises(PipelineError, match=r"Tumbling\(1.*another id"):
        OperatorHarness.restore(WindowJoin(Tumbling(2)), before.snapshot())
