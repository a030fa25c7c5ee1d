"""Watermarks of channels combined, before and behind a restore, and watermarks made from timestamps."""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import pairwise, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.event_time.bounds import MAX_WATERMARK, NO_RECORD
from checkpoint.event_time.combiner import WatermarkCombiner
from checkpoint.event_time.generator import PERIOD, WatermarkGenerator


def combiner(**watermarks: int | None) -> WatermarkCombiner:
    """One that has heard of these channels, and passed on what they say together."""
    one = WatermarkCombiner(watermarks)
    for channel, watermark in watermarks.items():
        if watermark is not None:
            one.on_watermark(channel, watermark)
    if one.pending is not None:
        one.passed(one.pending)
    return one


# -- combining ------------------------------------------------------------------------------------------------


def test_the_slowest_channel_decides() -> None:
    assert combiner(a=10, b=20).combined == 10


def test_a_channel_without_a_watermark_holds_all_others_back() -> None:
    assert combiner(a=10, b=None).combined is None


def test_an_idle_channel_holds_nothing_back() -> None:
    one = combiner(a=10, b=None)
    one.on_idle("b", True)
    assert (one.combined, one.idle) == (10, False)


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_where_all_channels_are_idle_the_furthest_counts_whichever_fell_idle_first(order: str) -> None:
    one = combiner(a=10, b=20, c=None)
    for channel in order:
        one.on_idle(channel, True)
    assert (one.combined, one.idle, one.follows_clock) == (20, True, False)
    one.on_idle("a", False)
    one.on_watermark("a", 15)
    assert one.combined == 20
    one.on_watermark("a", 25)
    assert one.combined == 25


def test_a_channel_that_wakes_up_behind_the_watermark_holds_it_back_until_it_has_caught_up() -> None:
    one = combiner(a=10, b=20)
    one.on_idle("a", True)
    assert one.combined == 20
    one.on_idle("a", False)
    one.on_watermark("b", 50)
    assert one.combined == 20
    one.on_watermark("a", 40)
    assert one.combined == 40


def test_a_channel_that_ended_holds_nothing_back() -> None:
    one = combiner(a=10, b=20)
    one.on_end("a")
    assert one.combined == 20


@pytest.mark.parametrize("ends", [("a", "b"), ("b", "a")])
def test_event_time_ends_when_all_channels_have(ends: tuple[str, str]) -> None:
    one = combiner(a=10, b=None)
    one.on_end(ends[0])
    assert one.combined != MAX_WATERMARK
    one.on_end(ends[1])
    assert (one.combined, one.idle) == (MAX_WATERMARK, False)


def test_the_end_of_one_channel_is_no_end_of_event_time_while_another_is_only_idle() -> None:
    one = combiner(a=10, b=20)
    one.on_idle("b", True)
    one.on_watermark("a", MAX_WATERMARK)
    assert (one.combined, one.idle) == (20, True)
    one.on_idle("b", False)
    assert one.combined == 20
    one.on_watermark("b", 30)
    assert one.combined == 30


def test_where_others_of_its_group_will_end_an_idle_channel_moves_nothing_by_what_it_told_before() -> None:
    """What comes out of the others at the end may be older."""
    one = WatermarkCombiner(["a1", "a2", "b1"], group=lambda channel: str(channel)[0])
    for channel, watermark in (("a1", 10), ("a2", 20), ("b1", 30)):
        one.on_watermark(channel, watermark)
    one.on_end("a1")
    one.on_idle("b1", True)
    one.on_idle("a2", True)
    assert (one.combined, one.idle) == (20, False)
    one.on_watermark("b1", 31)
    assert one.combined == 31, "that is what the clock says"


def test_it_is_not_idle_while_some_of_a_group_have_ended_and_the_others_will() -> None:
    one = WatermarkCombiner(["a1", "a2", "b1", "b2"], group=lambda channel: str(channel)[0])
    for channel, watermark in (("a1", 10), ("b1", 20)):
        one.on_watermark(channel, watermark)
        one.on_idle(channel[0] + "2", True)
    one.on_end("a1")
    one.on_end("b1")
    assert (one.combined, one.idle, one.follows_clock) == (20, False, False)
    one.on_end("a2")
    assert not one.idle
    one.on_end("b2")
    assert (one.combined, one.idle) == (MAX_WATERMARK, False)


def test_it_is_idle_where_a_group_has_ended_and_all_of_the_other_are() -> None:
    one = WatermarkCombiner(["a1", "a2", "b1", "b2"], group=lambda channel: str(channel)[0])
    for channel in ("b1", "b2"):
        one.on_idle(channel, True)
    one.on_end("a1")
    assert not one.idle
    one.on_end("a2")
    assert one.idle


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_where_the_others_are_idle_the_watermark_comes_to_the_end_of_the_data_in_any_order(order: str) -> None:
    one = combiner(a=10, b=20, c=None)
    for channel in order:
        if channel == "c":
            one.on_idle("c", True)
        else:
            one.on_end(channel)
    assert (one.combined, one.idle) == (20, True)


def test_a_channel_that_tells_the_same_again_while_it_is_idle_does_not_follow_the_clock_for_that() -> None:
    one = combiner(a=10, b=20)
    one.on_idle("a", True)
    one.on_watermark("a", 10)
    one.on_idle("b", True)
    assert (one.idle, one.follows_clock) == (True, False)
    one.on_watermark("a", 11)
    assert one.follows_clock


def test_an_idle_status_that_is_told_again_changes_nothing() -> None:
    one = combiner(a=10)
    one.on_idle("a", True)
    one.on_watermark("a", 11)
    one.on_idle("a", True)
    assert (one.follows_clock, one.combined) == (True, 11)
    one.on_idle("a", False)
    one.on_idle("a", True)
    assert not one.follows_clock


def test_it_is_idle_once_all_channels_are_that_have_not_ended() -> None:
    one = combiner(a=10, b=20, c=30)
    one.on_idle("a", True)
    assert not one.idle
    one.on_end("b")
    assert not one.idle
    one.on_idle("c", True)
    assert one.idle
    one.on_end("a")
    one.on_end("c")
    assert not one.idle


def test_it_follows_the_clock_if_any_channel_does_and_none_is_awake() -> None:
    one = combiner(a=10, b=20)
    one.on_idle("a", True)
    one.on_watermark("a", 15)
    assert not one.follows_clock
    one.on_idle("b", True)
    assert one.follows_clock


def test_whom_the_watermark_waits_for() -> None:
    one = WatermarkCombiner("abcd", lambda channel: channel != "d")
    assert (one.holding(), one.channels, one.any_told) == ([("a", None), ("b", None), ("c", None)], 3, False)
    one.on_watermark("a", 20)
    assert (one.holding(), one.any_told) == ([("b", None), ("c", None)], True)
    one.on_watermark("b", 10)
    one.on_watermark("c", 10)
    assert one.holding() == [("b", 10), ("c", 10)]
    one.on_idle("b", True)
    assert one.holding() == [("c", 10)]
    one.on_end("c")
    assert (one.holding(), one.channels) == ([("a", 20)], 2)


def test_before_its_end_event_time_reaches_the_end_of_the_data_once() -> None:
    one = combiner(a=10, b=30)
    one.on_end("b")
    one.on_end("a")
    assert (one.pending, one.reached) == (MAX_WATERMARK, 30)
    one.passed(30)
    assert (one.pending, one.reached) == (MAX_WATERMARK, MAX_WATERMARK)
    one.passed(MAX_WATERMARK)
    one.passed(30)
    assert (one.pending, one.emitted) == (None, MAX_WATERMARK)


def test_a_subtask_without_channels_has_no_watermark() -> None:
    one = WatermarkCombiner([])
    assert (one.combined, one.pending, one.idle) == (None, None, False)


def test_an_unknown_channel_is_a_defect() -> None:
    with pytest.raises(KeyError):
        combiner(a=10).on_watermark("z", 1)


# -- passing on -----------------------------------------------------------------------------------------------


def test_a_watermark_counts_as_emitted_only_when_it_was_passed_on() -> None:
    one = WatermarkCombiner(["a"])
    one.on_watermark("a", 10)
    assert (one.pending, one.emitted) == (10, None)
    one.passed(10)
    assert (one.pending, one.emitted) == (None, 10)


def test_taking_a_watermark_again_that_was_put_back_changes_nothing() -> None:
    one = combiner(a=5)
    one.on_watermark("a", 10)
    one.on_watermark("a", 10)
    assert (one.pending, one.emitted) == (10, 5)
    one.passed(10)
    one.on_watermark("a", 10)
    assert (one.pending, one.emitted) == (None, 10)


CHANNELS = ("a", "b", "c")
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("watermark"), st.sampled_from(CHANNELS), st.integers(0, 30)),
        st.tuples(st.just("idle"), st.sampled_from(CHANNELS), st.booleans()),
        st.tuples(st.just("end"), st.sampled_from(CHANNELS), st.none()),
        st.tuples(st.just("pass"), st.none(), st.none()),
        st.tuples(st.just("restart"), st.none(), st.none()),
    )
)


@settings(max_examples=300)
@given(EVENTS)
def test_the_combined_watermark_is_the_highest_minimum_so_far_over_any_restarts(events: list[Any]) -> None:
    """While all are idle, it is the highest of all."""
    one = WatermarkCombiner(CHANNELS)
    value: dict[str, int | None] = dict.fromkeys(CHANNELS)
    idle = dict.fromkeys(CHANNELS, False)
    left_behind = dict.fromkeys(CHANNELS, False)
    """It was idle, and has not been as far as the others since."""
    end_of_data: list[int] = []
    highest: int | None = None
    for event, channel, argument in events:
        before = (one.combined, one.emitted)
        match event:
            case "watermark":
                one.on_watermark(channel, argument)
                if value[channel] is None or argument > value[channel]:
                    value[channel] = argument
            case "idle":
                one.on_idle(channel, argument)
                idle[channel] = argument
                left_behind[channel] |= argument
            case "end":
                one.on_end(channel)
                if (last := value[channel]) not in (None, MAX_WATERMARK):
                    end_of_data.append(last)
                value[channel] = MAX_WATERMARK
            case "pass" if one.pending is not None:
                one.passed(one.pending)
            case "restart" if one.pending is None:
                state = one.snapshot()
                one = WatermarkCombiner(CHANNELS)
                one.restore([state], True, ())
        open_ = [c for c in CHANNELS if value[c] != MAX_WATERMARK]
        active = [value[c] for c in open_ if not idle[c]]
        if not open_:
            highest = MAX_WATERMARK
        elif active and None not in active:
            highest = max(min(v for v in active if v is not None), -1 if highest is None else highest)
        elif not active:
            told = [v for c in open_ if (v := value[c]) is not None]
            highest = max([*told, *end_of_data, *([] if highest is None else [highest])], default=None)
        assert one.combined == highest
        assert one.idle == (bool(open_) and not active)
        for c in open_:
            reached = -1 if (v := value[c]) is None else v
            left_behind[c] &= idle[c] or reached < (-1 if highest is None else highest)
            assert left_behind[c] or highest is None or highest <= reached, "who was never idle is never late"
        for earlier, now in zip(before, (one.combined, one.emitted), strict=True):
            assert earlier is None or (now is not None and now >= earlier)


# -- restoring ------------------------------------------------------------------------------------------------


def restored(states: list[Any], same: bool, virtual: Any = (), channels: Any = "ab") -> WatermarkCombiner:
    one = WatermarkCombiner(channels)
    one.restore(states, same, virtual)
    return one


def test_with_the_same_topology_channels_go_on_where_they_were() -> None:
    one = combiner(a=10, b=20)
    one.on_idle("b", True)
    again = restored([one.snapshot()], True)
    assert (again.combined, again.emitted, again.pending) == (10, 10, None)
    again.on_watermark("a", 30)
    assert again.combined == 30


def test_a_watermark_that_was_half_passed_on_is_pending_again() -> None:
    one = combiner(a=10)
    one.on_watermark("a", 20)
    again = restored([one.snapshot()], True, channels="a")
    assert (again.emitted, again.pending) == (10, 20)


def test_merged_subtasks_go_on_from_the_lower_watermark() -> None:
    one = restored([combiner(x=10).snapshot(), combiner(y=30).snapshot()], False, "xy")
    assert (one.emitted, one.combined) == (10, 10)


def test_a_merged_subtask_without_a_watermark_makes_it_unknown() -> None:
    one = restored([combiner(x=10).snapshot(), combiner(y=None).snapshot()], False, "xy")
    assert (one.emitted, one.combined) == (None, None)


def test_restored_data_moves_the_watermark_only_as_far_as_all_old_channels_have_come() -> None:
    one = restored([combiner(x=10).snapshot(), combiner(y=10).snapshot()], False, "xy")
    one.on_watermark("x", 50, restored=True)
    assert one.combined == 10
    one.on_watermark("y", 40, restored=True)
    assert one.combined == 40


def test_idle_statuses_in_restored_data_count() -> None:
    one = restored([combiner(x=10, y=10).snapshot()], False, "xy")
    one.on_watermark("x", 50, restored=True)
    one.on_idle("y", True, restored=True)
    assert one.combined == 50


def test_behind_the_restored_data_the_real_channels_begin_as_unknown_and_never_go_back() -> None:
    one = restored([combiner(x=10).snapshot()], False, "x")
    one.end_restored()
    assert one.combined == 10
    one.on_watermark("a", 30)
    assert one.combined == 10
    one.on_watermark("b", 5)
    assert one.combined == 10
    one.on_watermark("b", 20)
    assert one.combined == 20


def test_old_and_new_channels_of_one_name_are_kept_apart() -> None:
    one = restored([combiner(a=10, b=10).snapshot()], False, "ab")
    one.on_watermark("a", 50)  # a broadcast channel, which is read before the restored data
    one.on_watermark("b", 40, restored=True)
    assert one.combined == 10
    one.end_restored()
    one.on_watermark("b", 20)
    assert one.combined == 20


def test_what_the_real_channels_told_before_counts_once_the_restored_data_is_used_up() -> None:
    one = restored([combiner(x=10).snapshot()], False, "x")
    one.on_watermark("a", 50)
    one.on_watermark("b", 40)
    assert one.combined == 10
    one.end_restored()
    assert (one.combined, one.pending) == (40, 40)


def test_what_was_restored_and_not_used_up_holds_the_watermark_at_the_next_restore() -> None:
    """Channels of the two attempts before may have one name, so they can't be told apart any more."""
    first = restored([combiner(x=10).snapshot()], False, "x")
    first.on_watermark("x", 20, restored=True)
    first.passed(20)
    second = restored([first.snapshot()], True)
    second.on_watermark("x", 30, restored=True)
    second.on_watermark("a", 30, restored=True)
    assert (second.combined, second.emitted) == (20, 20)
    second.end_restored()
    second.on_watermark("a", 40)
    second.on_watermark("b", 50)
    assert second.combined == 40


def test_one_old_subtask_that_had_restored_data_left_holds_the_watermark_of_all() -> None:
    draining = restored([combiner(x=10).snapshot()], False, "x")
    one = restored([combiner(a=20).snapshot(), draining.snapshot()], False, "a")
    one.on_watermark("a", 30, restored=True)
    assert (one.combined, one.emitted) == (10, 10)


def test_a_new_subtask_that_nothing_old_comes_to_begins_without_a_watermark() -> None:
    one = restored([], False)
    assert (one.combined, one.pending, one.idle) == (None, None, False)
    one.end_restored()
    one.on_watermark("a", 3)
    one.on_watermark("b", 3)
    assert one.combined == 3


# -- in-flight data after rescaling: a checkpoint of u upstream and d downstream subtasks, restored into another d ----

GROUPS = 16


@dataclass
class Rescaled:
    """What a restore finds: old channels with the watermark delivered on each, and what was in flight on them."""

    delivered: dict[tuple[int, int], int]
    in_flight: dict[tuple[int, int], list[tuple[Any, ...]]]
    last: dict[int, int]
    """By old upstream subtask, its watermark when it took the barrier."""
    old_downstreams: int
    downstreams: int
    keyed: bool
    rng: random.Random = field(repr=False)

    @classmethod
    def make(cls, rng: random.Random, keyed: bool) -> Rescaled:
        upstreams, old, new = rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 4)
        delivered, last = {}, {}
        in_flight: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
        for u in range(upstreams):
            watermark = rng.randint(0, 50)
            for d in range(old):
                delivered[u, d], in_flight[u, d] = watermark, []
            for _ in range(rng.randint(0, 8)):
                if rng.random() < 0.5:
                    group = rng.randrange(GROUPS)
                    d = group * old // GROUPS if keyed else rng.randrange(old)
                    in_flight[u, d].append(("record", watermark + rng.randint(1, 10), group))
                else:
                    watermark += rng.randint(1, 20)
                    for d in range(old):
                        in_flight[u, d].append(("watermark", watermark))
            last[u] = watermark
        return cls(delivered, in_flight, last, old, new, keyed, rng)

    def subtask(self, t: int) -> tuple[WatermarkCombiner, int]:
        """New subtask `t` behind its restored data, and how many of its records came late."""
        mine = [g for g in range(GROUPS) if g * self.downstreams // GROUPS == t]
        if self.keyed:
            holders = sorted({g * self.old_downstreams // GROUPS for g in mine})
        else:
            holders = list(range(t, self.old_downstreams, self.downstreams))
        upstreams = list(self.last)
        states = []
        for d in holders:
            old = WatermarkCombiner([(u, d) for u in upstreams])
            for u in upstreams:
                old.on_watermark((u, d), self.delivered[u, d])
            assert old.pending is not None
            old.passed(old.pending)
            states.append(old.snapshot())
        one = WatermarkCombiner([("new", u) for u in upstreams])
        virtual: list[Hashable] = [(u, d) for u in upstreams for d in holders]
        one.restore(states, False, virtual)
        queues = {
            (u, d): [e for e in self.in_flight[u, d] if e[0] == "watermark" or not self.keyed or e[2] in mine]
            for u in upstreams
            for d in holders
        }
        late = 0
        while any(queues.values()):
            channel = self.rng.choice([c for c, queue in queues.items() if queue])
            element = queues[channel].pop(0)
            if element[0] == "watermark":
                one.on_watermark(channel, element[1], restored=True)
            elif one.combined is not None and element[1] <= one.combined:
                late += 1
        one.end_restored()
        return one, late


@pytest.mark.parametrize("keyed", [True, False])
def test_no_record_in_flight_comes_late_because_of_rescaling(keyed: bool) -> None:
    for seed in range(500):
        job = Rescaled.make(random.Random(seed), keyed)
        assert [job.subtask(t)[1] for t in range(job.downstreams)] == [0] * job.downstreams, f"seed {seed}"


@pytest.mark.parametrize("keyed", [True, False])
def test_a_topic_that_falls_idle_right_after_the_checkpoint_still_fires_its_timers(keyed: bool) -> None:
    """All that comes after the restored data is what sources repeat behind their restore barriers."""
    for seed in range(500):
        job = Rescaled.make(random.Random(seed), keyed)
        for t in range(job.downstreams):
            one, _ = job.subtask(t)
            for u, watermark in job.last.items():
                one.on_watermark(("new", u), watermark)
                one.on_idle(("new", u), True)
            final = min(job.last.values())
            assert one.combined is not None, f"seed {seed}"
            assert one.combined >= final, f"seed {seed}"


# -- generating -----------------------------------------------------------------------------------------------


def generator(lateness: int = 0, idle_after: float | None = None, splits: Any = "") -> WatermarkGenerator:
    one = WatermarkGenerator(lateness, idle_after, 0.0)
    if splits:
        one.set_splits(splits)
    return one


def record(one: WatermarkGenerator, split: Any, timestamp: int) -> None:
    times = one.split(split)
    times.largest = max(times.largest, timestamp)
    one.touch(times)


def tick(one: WatermarkGenerator, now: float, held_up: bool = False) -> int | None:
    watermark = one.on_clock(now, held_up)
    if watermark is not None:
        one.passed(watermark, now)
    return watermark


def test_the_watermark_is_the_lateness_and_a_millisecond_behind_the_largest_timestamp() -> None:
    one = generator(lateness=100)
    record(one, "a", 1000)
    record(one, "a", 900)
    assert tick(one, 1.0) == 899


def test_the_split_that_is_furthest_behind_decides() -> None:
    one = generator(splits="ab")
    record(one, "a", 1000)
    record(one, "b", 500)
    assert tick(one, 1.0) == 499


def test_a_split_without_records_yet_holds_the_others_back() -> None:
    one = generator(splits="ab")
    record(one, "a", 1000)
    assert tick(one, 100.0) is None


def test_a_split_that_ended_holds_nothing_back() -> None:
    one = generator(splits="ab")
    record(one, "a", 1000)
    one.set_splits("a")
    assert tick(one, 1.0) == 999


def test_a_split_without_records_for_long_is_idle_until_one_comes() -> None:
    one = generator(idle_after=5.0, splits="ab")
    record(one, "a", 1000)
    assert tick(one, 4.0) is None
    record(one, "a", 1001)
    assert tick(one, 5.0) == 1000
    assert not one.idle
    record(one, "b", 2000)
    record(one, "a", 3000)
    assert tick(one, 6.0) == 1999


def test_a_generator_is_idle_when_all_its_splits_are_or_there_are_none() -> None:
    one = generator(idle_after=5.0, splits="ab")
    tick(one, 5.0)
    assert one.idle
    record(one, "a", 1)
    assert not one.idle
    none = generator()
    assert not none.idle
    none.set_splits([])
    assert none.idle


def test_while_the_source_is_held_up_no_split_falls_idle() -> None:
    one = generator(idle_after=5.0, splits="a")
    tick(one, 4.0)
    tick(one, 100.0, held_up=True)
    assert not one.idle
    tick(one, 101.0)
    assert one.idle


def test_watermarks_are_sent_when_they_advance_and_not_more_often_than_the_period() -> None:
    one = generator()
    record(one, "a", 10)
    assert tick(one, 1.0) == 9
    record(one, "a", 20)
    assert tick(one, 1.0 + PERIOD / 2) is None
    assert tick(one, 1.0 + PERIOD) == 19
    assert tick(one, 9.0) is None


def test_a_watermark_that_was_not_sent_is_told_again() -> None:
    one = generator()
    record(one, "a", 10)
    assert one.on_clock(1.0, False) == 9
    assert one.on_clock(1.1, False) == 9


def test_a_split_found_late_does_not_take_the_watermark_back() -> None:
    one = generator(splits="a")
    record(one, "a", 100)
    assert tick(one, 1.0) == 99
    one.set_splits("ab")
    record(one, "a", 200)
    record(one, "b", 50)
    assert tick(one, 2.0) is None
    record(one, "b", 150)
    assert tick(one, 3.0) == 149


def test_the_time_until_the_next_news() -> None:
    one = generator(idle_after=5.0, splits="a")
    assert one.seconds_to_next(0.0) == 5.0
    record(one, "a", 10)
    assert one.seconds_to_next(0.0) == 0.0
    assert tick(one, 1.0) == 9
    assert one.seconds_to_next(1.0) == 5.0
    record(one, "a", 20)
    assert one.seconds_to_next(1.0) == pytest.approx(PERIOD)
    assert generator().seconds_to_next(0.0) == float("inf")


def test_restored_splits_go_on_wherever_they_are_read_now() -> None:
    left, right = generator(splits="ab"), generator(splits="c")
    for one, split, timestamp in ((left, "a", 100), (left, "b", 50), (right, "c", 70)):
        record(one, split, timestamp)
    tick(left, 1.0)
    tick(right, 1.0)
    again = generator()
    again.restore([left.snapshot(), right.snapshot()], own=None)
    again.set_splits("ac")
    assert again.emitted == 49
    assert tick(again, 1.0) == 69
    assert {id for id, _ in again.snapshot()["splits"]} == {"a", "c"}


def test_a_restored_split_that_nothing_comes_from_does_not_hold_back_the_others() -> None:
    before = generator(splits="ab")
    record(before, "a", 100)
    record(before, "b", 100)
    tick(before, 1.0)
    again = generator(splits="ab")
    again.restore([before.snapshot()], own=before.snapshot())
    assert again.emitted == 99
    record(again, "a", 500)
    assert tick(again, 1.0) is None
    record(again, "b", 300)
    assert tick(again, 2.0) == 299


SPLITS = ("a", "b", "c")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.sampled_from(SPLITS), st.integers(-50, 1000)),
        st.tuples(st.just("clock"), st.floats(0, 3), st.booleans()),
        st.tuples(st.just("splits"), st.sets(st.sampled_from(SPLITS), min_size=1), st.none()),
        st.tuples(st.just("restart"), st.none(), st.none()),
    )
)


@settings(max_examples=300)
@given(STEPS, st.integers(0, 100), st.none() | st.floats(0.5, 5))
def test_watermarks_only_grow_and_are_never_ahead_of_a_split_that_holds_them_back(
    steps: list[Any], lateness: int, idle_after: float | None
) -> None:
    one = WatermarkGenerator(lateness, idle_after, 0.0)
    one.set_splits(SPLITS)
    reading, largest, now = set(SPLITS), dict.fromkeys(SPLITS, NO_RECORD), 0.0
    sent: list[tuple[float, int]] = []
    for step, argument, more in steps:
        match step:
            case "record" if argument in reading:
                record(one, argument, more)
                largest[argument] = max(largest[argument], more)
            case "clock":
                now += argument
                watermark = tick(one, now, more)
                if watermark is not None:
                    sent.append((now, watermark))
                    if idle_after is None:
                        assert watermark == min(largest[s] for s in reading) - lateness - 1
            case "splits":
                reading = argument
                one.set_splits(reading)
            case "restart":
                state = one.snapshot()
                one = WatermarkGenerator(lateness, idle_after, now)
                one.restore([state], own=state)
                one.set_splits(reading)
                # What a split that isn't read any more once had is forgotten with it.
                largest = {s: largest[s] if s in reading else NO_RECORD for s in SPLITS}
    assert all(a < b for (_, a), (_, b) in pairwise(sent))
