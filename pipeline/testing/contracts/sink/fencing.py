"""Processes that were left behind: they must not commit once another driver or attempt has taken over."""

from __future__ import annotations

from functools import partial

from pipeline.testing.contracts.sink.rule import rule
from pipeline.testing.contracts.sink.stage import Stage, fails


@rule(
    "check-owner-comes-first",
    "call ctx.check_owner() first in commit(), and let what it raises through",
    exactly_once=True,
    needs_committer=True,
)
def check_owner_comes_first(stage: Stage) -> None:
    stage.write(6)
    stage.checkpoint()
    stage.write(6)
    last = stage.barrier()
    stage.complete(last)
    (subtask, order), *_ = stage.attempt.orders()
    stage.attempt.faults.fenced = True
    stage.story.append("another driver takes the job over; the old one commits")
    if not fails(lambda: stage.attempt.commit(subtask, order, notify=False)):
        stage.broken("commit returned although ctx.check_owner raises Fenced")
    stage.expect_nothing_new(6)
    stage.die()
    stage.restart(restore=last)
    stage.commit_all()
    stage.expect(range(12))


@rule(
    "late-commits-double-nothing",
    "find out in the transaction itself (a locked marker, a fencing token, a name taken) that it is committed",
    exactly_once=True,
    needs_committer=True,
)
def late_commits_double_nothing(stage: Stage) -> None:
    """An old process that is late: it has passed the owner check, and commits after its successor did."""
    stage.write(6)
    stage.checkpoint()
    stage.write(6)
    last = stage.barrier()
    stage.complete(last)
    old, orders = stage.attempt, stage.attempt.orders()
    stage.restart(restore=last)
    stage.commit_all()
    stage.write(6)
    stage.checkpoint()
    stage.story.append("the old process commits, too")
    for subtask, order in orders:
        if fails(partial(old.commit, subtask, order, notify=False)):
            stage.story.append("which is refused")
    stage.expect(range(18))
    stage.write(6)
    stage.checkpoint()
    stage.expect(range(24))
    old.die()
