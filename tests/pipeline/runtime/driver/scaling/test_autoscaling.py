"""When a job is rescaled by itself: never out of bounds, never twice within the pause, and not back and forth."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from attempt_parts import job_options
from autoscaled_run import PAUSE, WINDOW, Run, bounds, options, refused, under, width
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import Pipeline
from pipeline.runtime.driver.scaling.advice import Load
from pipeline.runtime.driver.scaling.autoscaling import Reason
from pipeline.runtime.driver.scaling.rescaling import rescaled, rescaled_by_itself
from pipeline.testing import TestingSink, TestingSource


def test_advice_is_followed_once_it_has_lasted_for_the_window_behind_the_pause() -> None:
    run = Run(options(), bounds())
    run.load = lambda job: under(job, 3.0)
    run.go(PAUSE + WINDOW - 1)
    assert (run.decisions, run.refusals) == ([], [])
    assert run.core.state == "has looked at the load for 5 of 6 parts of the window"
    run.go(30)
    ((_, decision),) = run.decisions
    assert (decision.widths, decision.what) == ({"totals": 4}, "totals, out 2 → 4")
    assert decision.why == (
        "2 → 4: bound by totals → out: its subtasks are busy for 100% of their time, and sources are held up for 33%"
    )
    assert width(run.job, "out") == 4, "what follows the step has as many"
    run.go(3600)
    assert (len(run.decisions), run.core.state) == (1, "finds nothing to change")


def test_advice_that_does_not_last_is_not_followed() -> None:
    run = Run(options(), bounds())
    run.load = lambda job: under(job, 3.0 if run.now % 60 < 40 else 0.9)
    run.go(3600)
    assert run.decisions == []


@settings(max_examples=30, deadline=None)
@given(work=st.floats(0.05, 30.0), begin=st.integers(1, 16), least=st.integers(1, 4), most=st.integers(4, 16))
def test_a_constant_load_leads_to_one_parallelism_and_it_stays(work: float, begin: int, least: int, most: int) -> None:
    run = Run(options(min(max(begin, least), most)), bounds(most, least))
    run.load = lambda job: under(job, work)
    run.go(20 * (PAUSE + WINDOW))
    before = [width(run.job), len(run.decisions)]
    run.go(50 * PAUSE)
    assert [width(run.job), len(run.decisions)] == before
    assert run.widths in (sorted(run.widths), sorted(run.widths, reverse=True)), "it goes one way"
    assert width(run.job) >= min(most, math.floor(work)), "the work gets done"


@settings(max_examples=40, deadline=None)
@given(
    loads=st.lists(st.tuples(st.floats(0.05, 40.0), st.integers(10, 400)), min_size=1, max_size=8),
    least=st.integers(1, 4),
    most=st.integers(4, 20),
    slots=st.none() | st.integers(3, 30),
    fails=st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_whatever_the_load_bounds_and_pauses_hold(
    loads: list[tuple[float, int]], least: int, most: int, slots: int | None, fails: list[bool]
) -> None:
    run = Run(options(4, max_parallelism=16), bounds(most, least), slots)
    for (work, seconds), fail in zip(loads, fails, strict=False):
        run.load = lambda job, work=work: under(job, work)  # type: ignore[misc]
        run.fails = fail
        before = run.job.plan.subtasks
        run.go(seconds)
        assert slots is None or run.job.plan.subtasks <= max(slots, before)
    assert all(least <= one <= min(most, 16) for one in run.widths)
    times = [at for at, _ in run.decisions]
    assert all(after - at >= PAUSE + run.takes for at, after in pairwise(times))


def test_there_is_a_pause_behind_a_restart_too_and_the_window_begins_anew() -> None:
    run = Run(options(), bounds())
    run.load = lambda job: under(job, 3.0)
    run.go(PAUSE + WINDOW - 5)
    run.core.away("it restarts")
    run.running_since = run.now
    run.go(PAUSE + WINDOW - 1)
    assert run.decisions == []
    run.go(30)
    assert len(run.decisions) == 1


def test_a_step_does_not_get_fewer_subtasks_soon_after_it_got_more_at_a_like_rate() -> None:
    run = Run(options(4), bounds())
    run.load = lambda job: under(job, 4.5)
    run.go(PAUSE + WINDOW + 10)
    assert run.widths == [6]
    idle = replace(under(run.job, 2.0), rates={"totals → out": 900.0})
    run.load = lambda job: idle
    run.go(900)
    assert run.widths == [6]
    ((reason, text),) = refused(run)
    assert reason is Reason.LIKE_RATE
    assert text.startswith("totals 6 → 3 is advised and not done: 4 were too few for 889 records/s 2 min 40 s ago")
    assert text.endswith("900 come now; it may have fewer below 667, or 16 min 40 s after that rescale")
    run.load = lambda job: replace(idle, rates={"totals → out": 500.0})
    run.go(WINDOW + 10)
    assert run.widths == [6, 3], "fewer records come now"


def test_more_subtasks_that_bring_nothing_are_followed_by_more_only_after_a_time_that_grows() -> None:
    run = Run(options(2), bounds(16))
    # A service that is slow, say: as busy with any number of subtasks, and never faster.
    run.load = lambda job: Load(
        {v.name: [0.0 if v.is_source else 1.0] * v.parallelism for v in job.plan.vertices},
        [0.3],
        {v.name: 700.0 for v in job.plan.vertices},
    )
    run.go(10_000)
    times = [at for at, _ in run.decisions]
    waits = [after - at for at, after in pairwise(times)]
    assert run.widths == [4, 8, 16]
    assert waits[0] >= 4 * PAUSE
    assert waits[1] >= 8 * PAUSE
    reason, text = refused(run)[0]
    assert reason is Reason.NO_GAIN
    assert "totals 4 → 8 is advised and not done: 2 → 4 brought nothing 2 min 40 s ago: it was 700 records/s" in text
    assert refused(run)[-1] == (Reason.BOUNDS, "totals 16 → 31 is advised and not done: most is 16")


def test_a_rescale_that_failed_is_tried_again_after_times_that_grow() -> None:
    run = Run(options(), bounds())
    run.load, run.fails = lambda job: under(job, 3.0), True
    run.go(2000)
    times = [at for at, _ in run.decisions]
    waits = [after - at for at, after in pairwise(times)]
    assert [round(wait, -2) for wait in waits] == [2 * PAUSE, 4 * PAUSE, 8 * PAUSE]
    assert {reason for reason, _ in refused(run)} == {Reason.FAILED}
    assert "the rescale before failed; the next one begins in" in refused(run)[0][1]


def test_while_checkpoints_fail_nothing_is_done() -> None:
    run = Run(options(), bounds())
    run.load, run.failed_checkpoint = lambda job: under(job, 3.0), 17
    run.go(1000)
    assert run.decisions == []
    assert refused(run) == [
        (
            Reason.CHECKPOINT,
            "totals, out 2 → 4 is advised and not done: checkpoint 17 failed, and a rescale needs one; it waits until "
            "one is complete",
        )
    ]
    run.failed_checkpoint = None
    run.go(30)
    assert run.widths == [4]


@pytest.mark.parametrize(
    ("most", "max_parallelism", "slots", "gets", "says"),
    [
        (3, 64, None, [3], None),
        (8, 3, None, [3], None),
        (8, 64, 4, [3], None),
        (2, 64, None, [], (Reason.BOUNDS, "most is 2")),
        (8, 2, None, [], (Reason.BOUNDS, "the pipeline has 2 key groups (max_parallelism)")),
        (8, 64, 3, [], (Reason.SLOTS, "Spark has 3 slots, and the job 3 subtasks already")),
    ],
)
def test_bounds_key_groups_and_slots_are_kept(
    most: int, max_parallelism: int, slots: int | None, gets: list[int], says: Any
) -> None:
    run = Run(options(2, max_parallelism), bounds(most), slots)
    run.load = lambda job: under(job, 3.0)
    run.go(PAUSE + WINDOW + 10)
    assert run.widths == gets
    for _, decision in run.decisions:
        assert decision.why.endswith("more than 3 don't fit bounds or slots")
    found = [(one.reason, one.why) for one in run.refusals if one.what == "totals 2 → 4"]
    assert found == ([] if says is None else [says])


def test_a_refusal_is_told_once_as_long_as_it_holds() -> None:
    run = Run(options(2), bounds(most=2))
    run.load = lambda job: under(job, 3.0)
    run.go(3600)
    assert len(run.refusals) == 1
    assert [one.reason for one in run.core.refused] == [Reason.BOUNDS]
    run.load = lambda job: under(job, 1.4)
    run.go(WINDOW)
    assert run.core.refused == []


def test_steps_that_set_their_own_parallelism_keep_it() -> None:
    run = Run(options(2, sinks=1), bounds())
    run.load = lambda job: Load(
        {v.name: [1.0 if v.name == "out" else 0.6] * v.parallelism for v in job.plan.vertices}, [0.2], {}
    )
    run.go(3600)
    assert run.decisions == []
    assert refused(run) == [
        (Reason.OWN_PARALLELISM, "out 1 → 2 is advised and not done: it sets a parallelism of its own")
    ]


def test_what_is_done_by_itself_leaves_steps_to_the_pipelines_parallelism() -> None:
    alone = rescaled_by_itself(options(2), {"totals": 4})
    assert (width(alone), width(alone, "out"), width(alone, "in")) == (4, 4, 1)
    assert width(rescaled(alone, 5, None)) == 5


def test_a_load_that_not_all_subtasks_have_reported_counts_for_nothing() -> None:
    run = Run(options(2), bounds())
    run.load = lambda job: replace(under(job, 3.0), busy={"totals → out": [1.0]})
    run.go(3600)
    assert run.decisions == []


def test_a_union_is_as_wide_as_the_widest_of_what_it_unites() -> None:
    p = Pipeline("job", 2)
    own = p.source("own", TestingSource(), parallelism=5)
    both = p.source("in", TestingSource()).union(own).map(str, id="text")
    both.sink("out", TestingSink())
    job = job_options(p.plan(), graph=p._graph)
    run = Run(job, bounds())
    run.load = lambda job: Load(
        {v.name: [0.9 if v.name.startswith("text") else 0.3] * v.parallelism for v in job.plan.vertices}, [0.1], {}
    )
    run.go(PAUSE + WINDOW + 10)
    assert [decision.widths for _, decision in run.decisions] == [{"in": 7}]
