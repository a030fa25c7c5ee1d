"""The ordinary way: what becomes visible when, in which order, without any failure."""

from __future__ import annotations

from functools import partial

from pipeline.testing.contracts.common import ContractBroken
from pipeline.testing.contracts.sink.rule import rule
from pipeline.testing.contracts.sink.stage import UNSET, Stage


@rule(
    "nothing-visible-before-commit",
    "keep records where readers don't see them (staged, hidden, uncommitted) until commit() is called",
)
def nothing_visible_before_commit(stage: Stage) -> None:
    stage.attempt.close()
    stage.restart(2)
    stage.write(20)
    stage.expect_nothing_new(0)
    checkpoint = stage.barrier()
    stage.expect_nothing_new(0)
    stage.complete(checkpoint)
    stage.expect_nothing_new(0)
    stage.rule = "commit-makes-visible"
    stage.advice = (
        "return from commit() only once all of it is durable and visible; a sink without a committer must have "
        "delivered everything when prepare_commit returns"
    )
    stage.commit_all()
    stage.expect(range(20))


@rule(
    "empty-epochs-are-harmless",
    "expect epochs without records: prepare_commit returns [], commit gets [], and neither is an error",
)
def empty_epochs_are_harmless(stage: Stage) -> None:
    stage.checkpoint()
    stage.expect_nothing_new(0)
    stage.write(5)
    stage.checkpoint()
    last = stage.checkpoint()
    stage.die()
    stage.restart(restore=last)
    stage.checkpoint()
    stage.write(5)
    stage.checkpoint()
    stage.expect(range(10))


@rule("epochs-stay-apart", "don't mix epochs: a committable belongs to the barrier that it was prepared at")
def epochs_stay_apart(stage: Stage) -> None:
    stage.write(7)
    first = stage.barrier()
    stage.write(7)
    second = stage.barrier()
    stage.complete(first)
    stage.complete(second)
    stage.write(7)
    # Two epochs wait; the first is committed alone.
    for subtask, order in stage.attempt.orders():
        stage.do("commit of the first", partial(stage.attempt.commit, subtask, order))
    if stage.exact:
        stage.expect(range(7))
    stage.commit_all()
    if stage.exact:
        stage.expect(range(14))
    stage.checkpoint()
    stage.expect(range(21))


@rule(
    "aborted-epochs-join-the-next",
    "what an aborted checkpoint had prepared is committed with the next complete one: don't drop it, and don't "
    "tell a committable by the id of the checkpoint that commits it, but by its own name",
    crash=(False, True),
)
def aborted_epochs_join_the_next(stage: Stage, crash: bool) -> None:
    stage.write(5)
    stage.checkpoint()
    stage.write(5)
    stage.barrier()  # aborted: never complete
    stage.write(5)
    stage.barrier()  # this one, too
    stage.write(5)
    if crash:
        last = stage.barrier()
        stage.complete(last)
        stage.die()
        stage.restart(restore=last)
        stage.commit_all()
    else:
        stage.checkpoint()
    stage.expect(range(20))
    stage.write(5)
    stage.checkpoint()
    stage.expect(range(25))


@rule(
    "refused-records-fail-the-attempt",
    "let write() or prepare_commit() raise: a record that can't be delivered must fail the attempt",
)
def refused_records_fail_the_attempt(stage: Stage) -> None:
    refused = stage.subject.refused
    if refused is UNSET:
        return
    try:
        stage.attempt.write([refused])
        checkpoint = stage.attempt.barrier()
        stage.attempt.complete(checkpoint)
        stage.attempt.commit_all()
    except ContractBroken:
        raise
    except Exception:
        stage.attempt.close()
        stage.restart()
        stage.expect_nothing_new(0)
    else:
        stage.broken(f"{refused!r:.200} was written and committed without an error")
