"""What all sinks of an attempt have committed, and whom it is told."""

from __future__ import annotations

from pipeline.runtime import protocol
from pipeline.runtime.driver.commit_progress import CommitProgress


def test_without_sinks_everything_is_committed() -> None:
    progress = CommitProgress({})
    assert (progress.restored_settled, progress.committed, progress.all_committed(9)) == (True, 0, True)


def test_a_checkpoint_is_committed_once_every_subtask_of_every_sink_has() -> None:
    progress = CommitProgress({"a": [3, 4], "b": [7]})
    assert not progress.all_committed(1)
    for step, subtask, checkpoint in (("a", 3, 5), ("a", 4, 4), ("b", 7, 6)):
        assert progress.committed == 0
        progress.new_committed(step, subtask, checkpoint)
    assert progress.committed == 4
    assert [progress.all_committed(id) for id in (3, 4, 5)] == [True, True, False]
    progress.new_committed("a", 4, 6)
    assert (progress.committed, progress.all_committed(5)) == (5, True)


def test_what_was_restored_is_released_to_all_subtasks_of_a_sink_and_then_what_is_new() -> None:
    progress = CommitProgress({"a": [3, 4], "b": [7]})
    assert list(progress.opened("a", 3, [2])) == []
    assert list(progress.opened("a", 4, [])) == [(subtask, protocol.ReleaseEpoch("a", 2)) for subtask in (3, 4)]
    assert list(progress.opened("b", 7, [])) == [(7, protocol.ReleaseNew("b"))]
    assert not progress.restored_settled
    assert list(progress.restored_committed("a", 3, 2)) == [(subtask, protocol.ReleaseNew("a")) for subtask in (3, 4)]
    assert progress.restored_settled
