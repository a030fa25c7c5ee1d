"""Where the time of a restart went."""

from __future__ import annotations

from pipeline.runtime.driver.attempt_context import Progress
from pipeline.runtime.driver.status.restart_times import Recoveries, Recovery


def test_each_phase_ends_where_the_next_begins() -> None:
    recovery = Recovery(1.0, 3.0, 6.0, 10.0, 15.0, 21.0)
    assert recovery.phases == {"cancel": 2.0, "wait": 3.0, "start": 4.0, "restore": 5.0, "catch_up": 6.0}


def test_a_phase_that_is_not_over_has_no_length() -> None:
    recovery = Recovery(1.0, 3.0, 6.0, 10.0)
    assert recovery.phases == {"cancel": 2.0, "wait": 3.0, "start": 4.0, "restore": None, "catch_up": None}


def test_output_that_comes_before_all_run_leaves_nothing_to_catch_up() -> None:
    recovery = Recovery(1.0, 3.0, 6.0, 10.0, 15.0, 14.5)
    assert recovery.phases["catch_up"] == 0.0


def test_how_far_the_attempt_has_come_is_read_when_it_is_asked_for() -> None:
    recoveries, progress = Recoveries(), Progress()
    recoveries.begun(1.0, 2.0, 3.0, progress, "a cause")
    (begun,) = recoveries.all()
    assert begun == Recovery(1.0, 2.0, 3.0, cause="a cause", restarted=begun.restarted)
    progress.deployed_at, progress.running_at, progress.first_commit_at = 4.0, 5.0, 6.0
    assert recoveries.all() == [Recovery(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, "a cause", begun.restarted)]
