"""What each rule of autoscale needs, alone: what is remembered, for how long, and when it is forgotten."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from attempt_parts import job_options
from autoscaled_run import PAUSE, WINDOW, Run, bounds, options, refused, under

from pipeline import Autoscale, Pipeline
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.scaling.advice import Load
from pipeline.runtime.driver.scaling.autoscaling import Reason
from pipeline.runtime.driver.scaling.rescaling import rescaled, rescaled_by_itself
from pipeline.testing import TestingSink, TestingSource

FIRST = PAUSE + WINDOW + 10
"""Seconds after which a rescale has been decided."""


def even(job: JobOptions, rate: float = 700.0, **busy: float) -> Load:
    """Of vertices that are as busy with any number of subtasks; by the id of the first step, else 0.6."""
    return Load(
        {v.name: [busy.get(v.head.id, 0.6)] * v.parallelism for v in job.plan.vertices},
        [0.3, 0.3],
        {v.name: rate for v in job.plan.vertices},
    )


def waits(run: Run) -> list[float]:
    """Pauses between two rescales."""
    return [(after - at) / PAUSE for (at, _), (after, _) in pairwise(run.decisions)]


# -- the window -----------------------------------------------------------------------------------------------------


def test_a_window_that_nobody_looked_at_begins_anew() -> None:
    run = Run(options(), bounds())
    run.load = lambda job: under(job, 3.0)
    run.go(PAUSE + WINDOW / 2)
    run.now += WINDOW
    run.go(WINDOW - 5)
    assert run.decisions == []
    run.go(30)
    assert run.widths == [4]


def test_a_restart_between_two_looks_begins_a_new_window_without_a_pause_too() -> None:
    run = Run(options(), Autoscale(most=8, pause=0, window=WINDOW))
    run.load = lambda job: under(job, 3.0)
    run.go(WINDOW - 5)
    run.running_since = run.now
    run.go(WINDOW - 5)
    assert run.decisions == []


def test_of_all_that_lasting_advice_says_the_smallest_step_is_done() -> None:
    run = Run(options(), bounds())
    run.load = lambda job: under(job, 3.0 if run.now % 60 < 30 else 4.5)
    run.go(FIRST)
    assert run.widths == [4]


def test_what_is_refused_is_forgotten_while_the_load_says_nothing() -> None:
    run = Run(options(), bounds(most=2))
    run.load = lambda job: under(job, 3.0)
    run.go(FIRST)
    assert [one.reason for one in run.core.refused] == [Reason.BOUNDS]
    run.core.away("it restarts")
    assert (run.core.refused, run.core.state) == ([], "it restarts")


@pytest.mark.parametrize(("seconds", "told"), [(15.0, 1), (3 * PAUSE, 2)])
def test_a_refusal_that_comes_back_is_told_again_unless_it_was_away_for_less_than_a_pause(
    seconds: float, told: int
) -> None:
    run = Run(options(), bounds(most=2))
    run.load = lambda job: under(job, 3.0)
    run.go(FIRST)
    run.load = lambda job: under(job, 1.4)
    run.go(seconds)
    run.load = lambda job: under(job, 3.0)
    run.go(2 * WINDOW)
    assert refused(run) == [(Reason.BOUNDS, "totals 2 → 4 is advised and not done: most is 2")] * told


# -- what is remembered ---------------------------------------------------------------------------------------------


def test_a_rescale_that_comes_about_ends_the_row_of_failures() -> None:
    run = Run(options(), bounds())
    run.load, run.fails = lambda job: under(job, 3.0), True
    run.go(FIRST)
    run.fails = False
    run.go(2.2 * PAUSE)
    run.load, run.fails = lambda job: under(job, 5.0, rate=3000.0), True
    run.go(FIRST + 2 * PAUSE)
    assert run.widths == [4, 4, 7, 7]
    assert round(waits(run)[2]) == 2


def test_rescales_that_fail_wait_for_64_pauses_at_most() -> None:
    run = Run(options(), bounds())
    run.load, run.fails = lambda job: under(job, 3.0), True
    run.go(200 * PAUSE)
    assert [round(wait) for wait in waits(run)] == [2, 4, 8, 16, 32, 64, 64]


def test_without_a_pause_waits_are_multiples_of_the_window() -> None:
    run = Run(options(), Autoscale(most=8, pause=0, window=WINDOW))
    run.load, run.fails = lambda job: under(job, 3.0), True
    run.go(4 * WINDOW)
    (wait,) = waits(run)
    assert wait * PAUSE >= 2 * WINDOW


def test_what_somebody_else_has_rescaled_is_not_remembered() -> None:
    run = Run(options(2), bounds(16))
    run.load = lambda job: even(job, totals=1.0, **{"in": 0.0})
    run.go(FIRST)
    assert run.widths == [4]
    run.job, run.running_since = rescaled(run.job, 3, None), run.now
    run.go(FIRST)
    assert (run.widths, run.refusals) == ([4, 6], [])


def test_subtasks_that_bring_something_end_the_row_of_those_in_vain() -> None:
    run = Run(options(2), bounds(64))
    rate = 700.0
    run.load = lambda job: even(job, rate, totals=1.0, **{"in": 0.0})
    run.go(FIRST + 4 * PAUSE)
    assert run.widths == [4, 8]
    rate = 5000.0
    run.go(7 * PAUSE)
    assert run.widths == [4, 8, 16, 31]
    assert 4 <= waits(run)[2] < 5


def test_the_step_back_that_brought_no_more_was_not_in_vain() -> None:
    run = Run(options(8), bounds(16))
    run.load = lambda job: under(job, 1.2)
    run.go(FIRST)
    run.load = lambda job: even(job, 300.0, totals=1.0, **{"in": 0.0})
    run.go(7 * PAUSE)
    assert run.widths == [2, 4, 8]
    assert 4 <= waits(run)[1] < 5


def test_one_step_back_may_follow_another() -> None:
    run = Run(options(8), bounds())
    run.load = lambda job: under(job, 3.0)
    run.go(FIRST)
    run.load = lambda job: under(job, 0.9)
    run.go(FIRST)
    assert (run.widths, run.refusals) == ([4, 2], [])


def test_a_like_rate_is_remembered_for_ten_pauses() -> None:
    run = Run(options(4), bounds())
    run.load = lambda job: under(job, 4.5)
    run.go(FIRST)
    run.load = lambda job: under(job, 2.0)
    run.go(9.5 * PAUSE)
    assert run.widths == [6]
    run.go(PAUSE)
    assert run.widths == [6, 3]


def test_what_slots_have_allowed_is_remembered_and_not_what_was_advised() -> None:
    run = Run(options(2), bounds(), slots=4)
    run.load = lambda job: even(job, totals=1.0, **{"in": 0.0})
    run.go(FIRST)
    run.slots = None
    run.go(FIRST)
    assert run.widths == [3]
    ((reason, text),) = refused(run)
    assert reason is Reason.NO_GAIN
    assert "2 → 3 brought nothing" in text


# -- bounds, slots, and steps that follow others --------------------------------------------------------------------


def test_a_job_beyond_its_bounds_is_not_made_smaller_where_it_needs_more() -> None:
    run = Run(options(10), bounds(8))
    run.load = lambda job: under(job, 9.0)
    run.go(FIRST)
    assert run.decisions == []
    assert refused(run) == [(Reason.BOUNDS, "totals 10 → 12 is advised and not done: most is 8")]


def test_fewer_subtasks_need_no_free_slots() -> None:
    run = Run(options(8), bounds(), slots=3)
    run.load = lambda job: under(job, 3.0)
    run.go(FIRST)
    assert run.widths == [4]


def test_where_slots_are_short_the_step_that_was_to_grow_most_gets_fewer() -> None:
    p = Pipeline("job", 1)
    one = p.source("in", TestingSource(), parallelism=1).key_by(lambda n: n).reduce(max, id="one")
    one.key_by(lambda n: n).reduce(max, id="two").sink("out", TestingSink(), parallelism=3)
    job = rescaled_by_itself(job_options(p.plan(), graph=p._graph), {"one": 4})
    run = Run(job, bounds(), slots=job.plan.subtasks + 3)
    run.load = lambda job: even(job, one=1.0, two=1.0)
    run.go(FIRST)
    assert [decision.widths for _, decision in run.decisions] == [{"one": 6, "two": 2}]


def union() -> JobOptions:
    """Of `in`, with two subtasks, and `own`, with five, which are one at `text`."""
    p = Pipeline("job", 2)
    own = p.source("own", TestingSource(), parallelism=5)
    p.source("in", TestingSource()).union(own).map(str, id="text").sink("out", TestingSink())
    return job_options(p.plan(), graph=p._graph)


@pytest.mark.parametrize(
    ("busy", "held", "gets"),
    [
        ({"in": 0.9, "text": 0.9}, [0.1] * 7, [{"in": 7}]),
        ({"in": 0.3, "text": 0.1}, [0.0], [{"in": 1}]),
        ({"in": 0.6, "text": 0.1}, [0.0], []),
        ({"in": 0.3, "text": 0.5}, [0.0], []),
    ],
    ids=["the most of what two need", "both need fewer", "one needs what it has", "it is wide by another step"],
)
def test_a_step_that_others_follow_gets_what_most_of_them_need(busy: Any, held: list[float], gets: Any) -> None:
    run = Run(union(), bounds())
    run.load = lambda job: Load(even(job, **busy).busy, held, {})
    run.go(FIRST)
    assert [decision.widths for _, decision in run.decisions] == gets


def test_a_parallelism_that_can_not_be_planned_is_refused() -> None:
    p = Pipeline("job", 2)
    p.source("in", TestingSource()).forward().map(str, id="text", parallelism=2).sink("out", TestingSink())
    run = Run(job_options(p.plan(), graph=p._graph), bounds())
    run.load = lambda job: even(job, **{"in": 1.0})
    run.go(FIRST)
    assert run.decisions == []
    assert {reason for reason, _ in refused(run)} == {Reason.PLAN}
