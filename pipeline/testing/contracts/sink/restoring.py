"""Crashes: what a restore must commit, what must vanish, and what was committed already."""

from __future__ import annotations

from functools import partial
from typing import Final

from pipeline.testing.contracts.common import canonical
from pipeline.testing.contracts.sink.rule import CRASHES, Crash, rule
from pipeline.testing.contracts.sink.stage import Stage, fails

_MOST_FAULTS: Final = 8


@rule(
    "close-delivers-nothing",
    "let close() of the writer drop what is in no committable: the source will give it again",
)
def close_delivers_nothing(stage: Stage) -> None:
    stage.write(8)
    stage.close()
    stage.expect_nothing_new(0)
    stage.restart()
    stage.write(4)
    first = stage.checkpoint()
    stage.write(4)
    stage.close()
    stage.expect_nothing_new(4)
    stage.restart(restore=first)
    stage.write(4)
    stage.checkpoint()
    stage.expect(range(8))


@rule(
    "uncheckpointed-output-vanishes",
    "what was written, or even prepared, and is in no complete checkpoint comes again after a restore: an "
    "earlier try at it must never become visible",
    prepared=(False, True),
    crash=CRASHES,
)
def uncheckpointed_output_vanishes(stage: Stage, prepared: bool, crash: Crash) -> None:
    stage.write(6)
    first = stage.checkpoint()
    stage.write(6)
    if prepared:
        stage.barrier()
        stage.write(2)
    crash(stage)
    stage.expect_nothing_new(6)
    stage.restart(restore=first)
    stage.expect_nothing_new(6)
    stage.commit_all()
    stage.expect_nothing_new(6)
    stage.write(9)
    stage.checkpoint()
    stage.expect(range(15))


@rule(
    "restore-commits-what-is-pending",
    "put all that a commit needs into the committable (or files that it names): another process, which knows "
    "only the checkpoint, has to commit it; let open() leave out only what certainly is committed",
    waiting=(1, 2),
    crash=CRASHES,
)
def restore_commits_what_is_pending(stage: Stage, waiting: int, crash: Crash) -> None:
    stage.write(6)
    stage.checkpoint()
    for _ in range(waiting):
        stage.write(6)
        last = stage.barrier()
        stage.complete(last)
    crash(stage)
    stage.expect_nothing_new(6)
    for _ in range(2):
        # The restore itself may crash before it commits.
        stage.restart(restore=last)
        stage.die()
    stage.restart(restore=last)
    stage.commit_all()
    stage.expect(range(6 + 6 * waiting))
    stage.write(6)
    stage.checkpoint()
    stage.expect(range(12 + 6 * waiting))


@rule(
    "commit-is-idempotent",
    "make commit() idempotent, for new instances too: keep a marker of the last committable in the same "
    "transaction, or a key or name for each committable that a second commit finds taken",
    crash=CRASHES,
)
def commit_is_idempotent(stage: Stage, crash: Crash) -> None:
    stage.write(6)
    stage.checkpoint()
    stage.write(6)
    stage.barrier()  # aborted
    stage.write(6)
    last = stage.barrier()
    stage.complete(last)
    stage.commit_unnoticed()
    stage.commit_unnoticed()
    stage.expect(range(18))
    for _ in range(2):
        crash(stage)
        stage.restart(restore=last)
        stage.commit_all()
        stage.expect(range(18))
    stage.write(6)
    newer = stage.barrier()
    stage.complete(newer)
    stage.commit_unnoticed()
    crash(stage)
    stage.restart(restore=newer)
    stage.commit_all()
    stage.write(6)
    stage.checkpoint()
    stage.expect(range(30))


@rule(
    "interrupted-commits-are-finished",
    "let the error through (or try again), so that what the commit has not done is done after the restore",
    needs_committer=True,
    calls=range(_MOST_FAULTS),
)
def interrupted_commits_are_finished(stage: Stage, calls: int) -> bool:
    """A commit fails half-way, at each call that it makes of `check_owner` and `staging.read`.

    Returns:
        Whether the commit made no more than `calls` calls.
    """
    stage.write(6)
    stage.checkpoint()
    stage.write(3)
    stage.barrier()
    stage.write(3)
    last = stage.barrier()
    stage.complete(last)
    faults = stage.attempt.faults
    faults.left = calls
    stage.story.append(f"the commit's call {calls + 1} of check_owner or staging.read raises")
    raised = False
    for subtask, order in stage.attempt.orders():
        raised |= fails(partial(stage.attempt.commit, subtask, order, notify=False))
    hit, faults.left = faults.left < 0, None
    if not raised:
        stage.expect(range(12))
    if not hit:
        return True
    stage.close()
    stage.restart(restore=last)
    stage.commit_all()
    stage.write(3)
    stage.checkpoint()
    stage.expect(range(15))
    return False


@rule(
    "committer-state-stays-as-it-is",
    "return from Committer.snapshot a value that is replaced whole, never changed in place",
    needs_committer=True,
)
def committer_state_stays_as_it_is(stage: Stage) -> None:
    """The task thread takes it while the committing thread goes on."""
    stage.write(3)
    stage.checkpoint()
    committer = stage.attempt.committers[0][0]
    state = committer.snapshot()
    before = canonical(state)
    for _ in range(3):
        stage.write(3)
        stage.checkpoint()
    if canonical(state) != before:
        stage.broken(f"what snapshot() returned, {before:.200}, was {canonical(state):.200} later")
    stage.expect(range(12))
