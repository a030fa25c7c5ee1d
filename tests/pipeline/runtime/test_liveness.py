"""Who counts as alive: phases of minutes on a clock that is moved by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.runtime.liveness import Limits, Liveness, Look, Patience

LIMITS = Limits()
PHASES = (
    "is preparing",
    "is loading the pipeline's code",
    "is restoring state",
    "is in open() of 'totals'",
    "is opening the committers of 'out'",
    "commits what was restored",
    "is closing",
)


@dataclass
class World:
    """Some processes that send a sign of life each pace, and a driver that looks around."""

    processes: int
    now: float = 1_000.0
    heard: dict[int, float] = field(default_factory=dict)
    mute: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.liveness: Liveness[int] = Liveness(self.processes, LIMITS, self.now)

    def connect(self, who: int) -> None:
        self.heard[who] = self.now
        self.liveness.connected(who, self.now)

    def all_up(self) -> None:
        for who in range(self.processes):
            self.connect(who)
            self.liveness.ready(who, self.now)

    def pass_time(self, seconds: float, looking: bool = True) -> Look[int]:
        """The last look; a driver that doesn't look is held, and takes one look at the end."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + LIMITS.pace)
            for who in self.heard.keys() - self.mute:
                self.heard[who] = self.now
            if looking:
                found = self.look()
                assert not found.silent
                assert found.waited < LIMITS.start
        return self.look()

    def look(self) -> Look[int]:
        return self.liveness.look(self.now, self.heard.__getitem__)


@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_of_four_minutes_is_told_and_ends_nobody(phase: str) -> None:
    world = World(3)
    for who in range(3):
        world.connect(who)
    if phase != PHASES[0]:
        world.all_up()
        world.liveness.entered(1, phase, world.now)
    began = world.now
    found = world.pass_time(240.0)
    assert found.silent == []
    assert (1, phase, began) in [(slow.who, slow.what, slow.since) for slow in found.slow]
    world.liveness.entered(1, None, world.now)
    assert [slow for slow in world.pass_time(240.0).slow if slow.who == 1] == []


def test_a_phase_that_is_short_is_not_told() -> None:
    world = World(1)
    world.all_up()
    world.liveness.entered(0, "is restoring state", world.now)
    assert world.pass_time(LIMITS.told - 1).slow == []


def test_code_that_holds_pythons_lock_for_a_minute_is_told_and_lives() -> None:
    world = World(2)
    world.all_up()
    world.liveness.entered(1, "is in open() of 'model'", world.now)
    world.mute = {1}
    found = world.pass_time(60.0)
    assert [slow.who for slow in found.slow] == [1]
    assert "Python's lock" in found.slow[0].what
    assert "is in open() of 'model'" in found.slow[0].what
    world.mute = set()
    world.liveness.entered(1, None, world.now)
    assert world.pass_time(2.0) == Look()


def test_a_process_that_says_nothing_is_given_up_in_time_and_nobody_else_is() -> None:
    world = World(3)
    world.all_up()
    world.mute = {2}
    world.pass_time(LIMITS.silent - 2 * LIMITS.pace)
    world.now += 2 * LIMITS.pace
    world.heard[0] = world.heard[1] = world.now
    assert world.look().silent == [2]


def test_a_driver_that_was_held_takes_nobody_for_silent() -> None:
    world = World(2)
    world.all_up()
    world.mute = {0, 1}  # what they said lies in the sockets still
    found = world.pass_time(1_000.0, looking=False)
    assert found.silent == []


def test_processes_that_do_not_come_are_missing_only_while_none_comes() -> None:
    world = World(3)
    world.pass_time(100.0)
    world.connect(0)
    world.liveness.ready(0, world.now)
    found = world.pass_time(100.0)
    assert LIMITS.told < found.waited < LIMITS.start
    world.connect(1)
    world.pass_time(240.0)  # it prepares itself
    world.liveness.ready(1, world.now)
    world.pass_time(LIMITS.start - 1)
    world.now += 1.5
    world.heard = dict.fromkeys(world.heard, world.now)
    assert world.look().waited >= LIMITS.start


STEPS = st.one_of(
    st.tuples(st.just("phase"), st.integers(0, 3), st.sampled_from([*PHASES, None]), st.floats(0.1, 240.0)),
    st.tuples(st.just("held"), st.just(0), st.none(), st.floats(0.1, 1_000.0)),
    st.tuples(st.just("lock"), st.integers(0, 3), st.none(), st.floats(0.1, 60.0)),
)


@given(st.lists(STEPS, max_size=6), st.integers(0, 3))
def test_whatever_the_living_do_they_are_not_given_up_and_the_dead_are(
    steps: list[tuple[str, int, str | None, float]], dead: int
) -> None:
    world = World(4)
    world.all_up()
    for kind, who, phase, seconds in steps:
        if kind == "phase":
            world.liveness.entered(who, phase, world.now)
        world.mute = {who} if kind == "lock" else set()
        found = world.pass_time(seconds, looking=kind != "held")
        assert not found.silent
        world.mute = set()
        world.pass_time(LIMITS.pace)
    world.mute = {dead}
    died = world.now
    while not (found := world.look()).silent:
        world.now += LIMITS.pace
        world.heard.update(dict.fromkeys(world.heard.keys() - world.mute, world.now))
        assert world.now - died <= LIMITS.silent + 3 * LIMITS.pace
    assert found.silent == [dead]


@given(st.lists(st.floats(0.0, 500.0), max_size=20))
def test_patience_counts_no_more_than_the_time_that_has_passed(waits: list[float]) -> None:
    patience = Patience(LIMITS, 0.0)
    now, counted = 0.0, 0.0
    for wait in waits:
        now += wait
        before, counted = counted, patience.look(now)
        assert before <= counted <= min(now, before + 2 * LIMITS.pace)
