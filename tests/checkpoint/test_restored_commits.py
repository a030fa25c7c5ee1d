"""Restored epochs are released one after the other, over all subtasks of a sink."""

from __future__ import annotations

from checkpoint.restored_commits import ReleaseEpoch, ReleaseNew, RestoredCommits


def test_new_epochs_are_released_at_once_where_nothing_was_restored():
    commits = RestoredCommits({"out": range(2)})
    assert commits.opened("out", 0, []) == []
    assert not commits.settled
    assert commits.opened("out", 1, []) == [ReleaseNew("out")]
    assert commits.settled


def test_an_epoch_is_released_only_when_all_subtasks_have_committed_the_one_before():
    commits = RestoredCommits({"out": range(3)})
    assert commits.opened("out", 0, [5]) == []
    assert commits.opened("out", 1, [4, 5]) == []
    assert commits.opened("out", 2, [4]) == [ReleaseEpoch("out", 4)]
    assert commits.done("out", 1, 4) == []
    assert commits.done("out", 0, 4) == []  # had none of it
    assert commits.done("out", 2, 4) == [ReleaseEpoch("out", 5)]
    assert commits.done("out", 1, 5) == []
    assert commits.done("out", 0, 5) == [ReleaseNew("out")]


def test_nothing_is_released_before_every_subtask_has_opened_its_committers():
    commits = RestoredCommits({"out": range(2)})
    assert commits.opened("out", 1, [9]) == []
    assert commits.done("out", 1, 9) == []
    assert commits.opened("out", 0, [8]) == [ReleaseEpoch("out", 8)]


def test_reports_may_come_twice():
    commits = RestoredCommits({"out": range(2)})
    commits.opened("out", 0, [4])
    assert commits.opened("out", 0, [4]) == []
    commits.opened("out", 1, [4, 5])
    assert commits.done("out", 0, 4) == []
    assert commits.done("out", 0, 4) == []
    assert commits.done("out", 1, 4) == [ReleaseEpoch("out", 5)]
    assert commits.done("out", 1, 4) == []
    assert commits.done("out", 1, 5) == [ReleaseNew("out")]
    assert commits.done("out", 1, 5) == []


def test_sinks_do_not_wait_for_each_other():
    commits = RestoredCommits({"slow": range(2), "quick": range(1)})
    assert commits.opened("slow", 0, [3]) == []
    assert commits.opened("quick", 0, []) == [ReleaseNew("quick")]
    assert not commits.settled


def test_a_job_without_such_sinks_is_settled():
    assert RestoredCommits({}).settled
