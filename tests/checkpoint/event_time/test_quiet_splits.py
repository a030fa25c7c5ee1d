"""Event time when no records come: idle and quiet splits, over restarts; and when one comes from the future."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.event_time.bounds import MAX_WATERMARK, NO_RECORD
from checkpoint.event_time.combiner import WatermarkCombiner
from checkpoint.event_time.generator import WatermarkGenerator

HOUR = 3_600_000
EPOCH = 1_700_000_000


class Source:
    """A generator and both of its clocks. Restarts keep its splits and its state as a checkpoint has it."""

    def __init__(self, splits: str = "a", lateness: int = 0, **options: Any) -> None:
        self.options = {"idle_after": None, **options}
        self.lateness, self.splits, self.now = lateness, splits, 0.0
        self.sent: list[int] = []
        self._make()

    def _make(self) -> None:
        self.one = WatermarkGenerator(self.lateness, now=self.now, wall_clock=lambda: EPOCH + self.now, **self.options)
        self.one.set_splits(self.splits)

    def record(self, split: str, at: int) -> None:
        """As the record loop does it."""
        one, times = self.one, self.one.split(split)
        if not times.touched:
            one.touch(times, at)
        if at > times.largest:
            if at - times.largest <= one.max_ahead and at <= one.horizon:
                times.largest = at
            else:
                one.jump(times, at)

    def pass_time(self, seconds: float, held_up: bool = False) -> int | None:
        """The last watermark by then."""
        steps = max(1, round(seconds * 2))
        for _ in range(steps):
            self.now += seconds / steps
            made = self.one.on_clock(self.now, held_up)
            if made is not None:
                self.one.passed(made, self.now)
                self.sent.append(made)
        return self.sent[-1] if self.sent else None

    def checkpoint(self) -> dict[str, Any]:
        state: dict[str, Any] = ormsgpack.unpackb(ormsgpack.packb(self.one.snapshot()))
        return state

    def restart(self, state: dict[str, Any], after: float = 0.0) -> None:
        self.now += after
        self._make_restored(state)

    def _make_restored(self, state: dict[str, Any]) -> None:
        self.one = WatermarkGenerator(self.lateness, now=self.now, wall_clock=lambda: EPOCH + self.now, **self.options)
        self.one.restore([state], own=state)
        self.one.set_splits(self.splits)


# -- quiet ----------------------------------------------------------------------------------------------------


def test_when_all_splits_are_quiet_the_watermark_follows_the_clock_from_the_newest_record() -> None:
    source = Source("ab", lateness=500, quiet_after=10.0)
    source.record("a", 1000)
    source.record("b", 90_000)
    assert source.pass_time(9) == 1000 - 501
    made = source.pass_time(21)
    assert made is not None
    assert 90_000 + 29_000 - 501 <= made <= 90_000 + 30_000 - 501


def test_a_split_that_never_had_a_record_does_not_stop_the_clock() -> None:
    source = Source("ab", quiet_after=10.0)
    source.record("a", 1000)
    assert source.pass_time(9) is None
    assert (source.pass_time(6) or 0) > 15_000 - 1


def test_without_any_record_there_is_no_time_and_no_hurry() -> None:
    source = Source("ab", quiet_after=10.0)
    assert source.pass_time(100) is None
    assert source.one.idle
    assert source.one.seconds_to_next(source.now) > 0


def test_a_record_stops_the_clock_until_all_are_quiet_again() -> None:
    source = Source("a", quiet_after=10.0)
    source.record("a", 1000)
    before = source.pass_time(20)
    source.record("a", 1500)  # late
    assert source.pass_time(9) == before
    source.record("a", 100_000)
    assert source.pass_time(1) == 99_999


def test_the_clock_stands_still_while_the_source_is_held_up() -> None:
    source = Source("a", quiet_after=10.0)
    source.record("a", 1000)
    assert source.pass_time(5) == 999
    assert source.pass_time(600, held_up=True) == 999
    assert source.pass_time(4) == 999
    assert (source.pass_time(2) or 0) > 10_000


def test_quiet_subtasks_hold_nobody_back_and_the_newest_one_leads() -> None:
    """Watermarks behind an idle status follow the clock; where all are idle, what they had told before counts, too."""
    one = WatermarkCombiner("abc")
    one.on_watermark("a", 10)
    one.on_watermark("b", 50)
    for channel in "abc":
        one.on_idle(channel, True)
    assert (one.combined, one.follows_clock) == (50, False)
    one.on_watermark("a", 20)
    assert (one.combined, one.follows_clock, one.idle) == (50, True, True)
    one.on_watermark("b", 60)
    assert one.combined == 60
    one.on_idle("a", False)
    one.on_watermark("b", 70)
    assert one.combined == 60  # a is read, and is behind
    one.on_watermark("a", 65)
    assert one.combined == 65


def test_channels_that_follow_the_clock_do_so_behind_a_restore() -> None:
    one = WatermarkCombiner("ab")
    for channel in "ab":
        one.on_idle(channel, True)
    one.on_watermark("a", 20)
    again = WatermarkCombiner("ab")
    again.restore([one.snapshot()], True, ())
    assert (again.combined, again.follows_clock) == (20, True)


# -- left out -------------------------------------------------------------------------------------------------


def test_a_channel_that_is_left_out_holds_nothing_back_whatever_it_does() -> None:
    one = WatermarkCombiner(["data", "rules"], lambda channel: channel != "rules")
    one.on_watermark("data", 10)
    assert one.combined == 10
    one.on_idle("data", True)
    assert one.idle
    one.on_idle("data", False)
    one.on_end("rules")
    assert one.combined == 10
    one.on_end("data")
    assert (one.combined, one.reached) == (MAX_WATERMARK, MAX_WATERMARK if one.emitted == 10 else 10)


def test_time_ends_only_when_what_is_left_out_has_ended_since_it_still_brings_records() -> None:
    one = WatermarkCombiner(["data", "more", "rules"], lambda channel: channel != "rules")
    one.on_watermark("data", 10)
    one.on_watermark("more", 20)
    one.on_end("data")
    assert (one.combined, one.idle) == (20, False)
    one.on_end("more")
    # What comes downstream from elsewhere goes on.
    assert (one.combined, one.reached, one.idle) == (20, 20, True)
    again = WatermarkCombiner(["data", "more", "rules"], lambda channel: channel != "rules")
    again.restore([one.snapshot()], True, ())
    assert (again.combined, again.idle) == (20, True)
    again.on_end("rules")
    assert (again.combined, again.idle) == (MAX_WATERMARK, False)


def test_left_out_channels_are_left_out_of_restored_data_too() -> None:
    before = WatermarkCombiner(["data", "rules"], lambda channel: channel != "rules")
    before.on_watermark("data", 10)
    before.passed(10)
    one = WatermarkCombiner(["new", "rules"], lambda channel: channel != "rules")
    one.restore([before.snapshot()], False, ["data", "rules"])
    one.on_watermark("data", 30, restored=True)
    assert one.combined == 30


# -- idle -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False])
def test_where_all_splits_fall_idle_the_furthest_counts_at_once_or_one_after_the_other(together: bool) -> None:
    source = Source("ab", lateness=100, idle_after=10.0)
    source.record("b", 1000)
    if not together:
        assert source.pass_time(4) is None, "a has told nothing"
    source.record("a", 2000)
    assert source.pass_time(0.5) == 1000 - 101
    assert source.pass_time(10) == 2000 - 101
    assert source.one.idle
    source.record("b", 1500)
    source.record("b", 3000)
    assert source.pass_time(1) == 3000 - 101


def test_what_the_furthest_split_says_comes_before_it_is_told_that_all_are_idle() -> None:
    """The period since the last watermark is not waited for: behind an idle status it would count as the clock's."""
    one = Source("abc", idle_after=10.0).one
    for id, largest in (("a", 1000), ("b", 2000)):
        one.touch(one.split(id))
        one.split(id).largest = largest
    assert one.on_clock(0.125, held_up=False) is None
    assert one.on_clock(10.0, held_up=False) == 999, "c holds nothing back any more"
    one.passed(999, 10.0)
    assert (one.on_clock(10.125, held_up=False), one.idle) == (1999, True)
    one.passed(1999, 10.125)
    assert one.on_clock(20.0, held_up=False) is None


def test_splits_that_are_read_no_more_move_nothing() -> None:
    source = Source("ab", idle_after=10.0)
    source.record("a", 1000)
    source.record("b", 2000)
    assert source.pass_time(1) == 999
    source.one.set_splits("")
    assert (source.one.idle, source.pass_time(20)) == (True, 999)


SPLITS = ("a", "b", "c")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(SPLITS), st.integers(1, 40)),
        st.tuples(st.just("time"), st.sampled_from([0.1, 1.0, 3.0, 5.0])),
    ),
    max_size=40,
)


@given(STEPS, st.integers(0, 10))
def test_only_a_split_that_was_idle_finds_itself_behind_and_time_stands_still_at_the_furthest(
    steps: list[Any], lateness: int
) -> None:
    """Records that are in order in their split are late only if there was none in it for `idle_after`, and the others
    went on meanwhile."""
    source = Source("abc", lateness=lateness, idle_after=5.0)
    left_behind = dict.fromkeys(SPLITS, False)
    for what, argument in steps:
        if what == "time":
            source.pass_time(argument)
        else:
            source.record(what, argument)
        reached = source.sent[-1] if source.sent else NO_RECORD
        known = {id: source.one.split(id) for id in SPLITS}
        for id, split in known.items():
            mine = NO_RECORD if split.largest == NO_RECORD else split.largest - lateness - 1
            left_behind[id] = split.idle or (left_behind[id] and mine < reached)
            assert left_behind[id] or reached <= mine
        furthest = max(split.largest for split in known.values())
        if source.one.idle and furthest != NO_RECORD:
            assert reached == max(furthest - lateness - 1, *source.sent)
    assert source.sent == sorted(source.sent)


# -- over restarts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["idle_after", "quiet_after"])
def test_restarts_that_come_faster_than_a_split_falls_quiet_do_not_stop_time(option: str) -> None:
    source = Source("ab", **{option: 60.0})
    for n in range(9):
        source.record("a", 1000 + n)
        source.pass_time(5)
        state = source.checkpoint()
        source.pass_time(1)
        source.restart(state, after=2)
    source.record("a", 2000)
    assert source.pass_time(3) == 1999


def test_what_has_come_meanwhile_is_looked_for_before_a_split_falls_idle() -> None:
    source = Source("ab", idle_after=10.0)
    source.pass_time(9.9)
    source.restart(source.checkpoint(), after=30)
    source.record("a", 1000)
    assert source.pass_time(0.5) is None
    source.record("b", 500)
    assert source.pass_time(1) == 499


def test_an_input_that_is_not_told_apart_by_splits_goes_on_being_quiet_as_well() -> None:
    """Its one split is there before the state comes back."""
    source = Source("", idle_after=10.0)
    source.one.split(None)
    source.record(None, 1000)  # type: ignore[arg-type]
    source.pass_time(1)
    source.pass_time(8)
    state = source.checkpoint()
    assert [quiet for _, quiet in state["quiet"]] == [pytest.approx(8, abs=1)]
    source.one = WatermarkGenerator(0, 10.0, source.now, wall_clock=lambda: EPOCH + source.now)
    source.one.split(None)
    source.one.restore([state], own=state)
    source.pass_time(1)
    assert not source.one.idle
    source.pass_time(3)
    assert source.one.idle


def test_after_a_long_break_quiet_times_begin_anew() -> None:
    source = Source("ab", idle_after=10.0)
    source.pass_time(9.5)
    source.restart(source.checkpoint(), after=3600)
    source.record("a", 1000)
    assert source.pass_time(9) is None
    source.record("a", 1001)
    assert source.pass_time(2) == 1000


def test_a_checkpoint_of_before_there_were_quiet_times_can_be_restored() -> None:
    source = Source("a", idle_after=10.0)
    source.restart({"splits": [["a", 5]], "emitted": 4})
    assert source.pass_time(5) is None
    assert not source.one.idle


# -- from the future ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [EPOCH * 1000, EPOCH * 1000 - 1000 * HOUR, 0], ids=["live", "replay", "long ago"])
@pytest.mark.parametrize("place", [0, 1, 500, 999])
def test_one_record_from_the_future_makes_no_other_one_late(start: int, place: int) -> None:
    source = Source("a", max_ahead=HOUR)
    late = 0
    for n in range(1000):
        if n == place:
            source.record("a", start + n + 24 * HOUR)
        source.record("a", start + n)
        if n % 10 == 9:
            source.pass_time(0.2)
        late += source.one.emitted is not None and start + n + 1 <= source.one.emitted
    assert late == 0
    assert source.one.ahead == 1
    assert source.one.last_ahead == ("a", start + place + 24 * HOUR)
    source.pass_time(2)
    assert source.one.emitted == start + 999 - 1


def test_a_gap_in_the_data_is_believed_when_nothing_from_before_it_comes() -> None:
    source = Source("a", max_ahead=HOUR)
    source.record("a", 1000)
    source.pass_time(2)
    for n in range(5):
        source.record("a", 30 * HOUR + n)
    source.pass_time(0.5)
    assert source.one.emitted == 999
    source.pass_time(2)
    assert (source.one.emitted, source.one.ahead) == (30 * HOUR + 3, 0)


def test_records_that_are_far_apart_do_not_count_as_ahead() -> None:
    """As in a backlog of a sensor that tells something every two hours."""
    source = Source("a", max_ahead=HOUR)
    for n in range(1000):
        source.record("a", n * 2 * HOUR)
    source.pass_time(0.2)
    assert (source.one.emitted, source.one.ahead) == (998 * 2 * HOUR - 1, 0)
    source.pass_time(2)
    assert (source.one.emitted, source.one.ahead) == (999 * 2 * HOUR - 1, 0)


def test_a_few_records_from_the_same_future_are_left_out_together() -> None:
    source = Source("a", max_ahead=HOUR)
    for n in range(100):
        source.record("a", n)
        if n % 20 == 10:
            for more in range(5):
                source.record("a", 24 * HOUR + n + more)
        source.pass_time(0.2)
    assert (source.one.emitted, source.one.ahead) == (98, 25)


def test_creeping_ahead_of_the_clock_ends_at_the_bound() -> None:
    source = Source("a", max_ahead=HOUR)
    for n in range(100):
        source.record("a", EPOCH * 1000 + n * HOUR // 2)
        source.pass_time(2)
    assert source.one.emitted is not None
    assert source.one.emitted <= (EPOCH + source.now) * 1000 + HOUR
    assert source.one.ahead > 90


# -- everything at once ---------------------------------------------------------------------------------------

SPLITS = "abc"
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.sampled_from(SPLITS), st.integers(0, 1000)),
        st.tuples(st.just("future"), st.sampled_from(SPLITS), st.integers(2 * HOUR, 9 * HOUR)),
        st.tuples(st.just("time"), st.floats(0, 8), st.booleans()),
        st.tuples(st.just("checkpoint"), st.none(), st.none()),
        st.tuples(st.just("restart"), st.floats(0, 5), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.none() | st.floats(1, 5), st.none() | st.floats(1, 5), st.none() | st.just(HOUR))
def test_watermarks_only_grow_and_are_never_ahead_of_records_and_clock(
    steps: list[Any], idle_after: float | None, quiet_after: float | None, max_ahead: int | None
) -> None:
    source = Source(SPLITS, idle_after=idle_after, quiet_after=quiet_after, max_ahead=max_ahead)
    state, newest, looked = source.checkpoint(), NO_RECORD, 0.0
    start = EPOCH * 1000
    for step, argument, more in steps:
        before = len(source.sent)
        match step:
            case "record":
                source.record(argument, start + more)
                newest = max(newest, start + more)
            case "future":
                source.record(argument, start + more)
                if max_ahead is None:
                    newest = max(newest, start + more)
            case "time":
                source.pass_time(argument, held_up=more)
                looked += 0 if more else argument
            case "checkpoint":
                state = source.checkpoint()
            case "restart":
                source.restart(state, after=argument)
                source.sent = [] if state["emitted"] is None else [state["emitted"]]
                looked += argument + 40  # what had passed since the checkpoint counts as well
                before = 0
        assert all(a < b for a, b in pairwise(source.sent))
        for watermark in source.sent[before:]:
            bound = newest - 1 if quiet_after is None else newest + int(source.now * 1000)
            assert watermark <= bound
        assert source.one.seconds_to_next(source.now) >= 0
