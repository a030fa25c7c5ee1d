"""`check_sink_contract`: whether a sink loses or doubles records, without Spark, in one test function."""

from __future__ import annotations

import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

from pipeline.testing.contract import (
    ContractBroken,
    Watchdog,
    canonical,
    check_unchanged,
    lost_and_doubled,
    shown,
)
from pipeline.testing.sink_rehearsal import SINK_ID, Attempt, Checkpoint, Interrupted, Rehearsal
from sinks.sink import Lineage, OwnerRestore, Sink

_MOST_FAULTS: Final = 8
_UNSET: Final = object()


def _record(n: int) -> Any:
    return {"id": n, "key": f"k{n % 3}"}


@dataclass
class SinkUnderTest:
    """A sink with a target of its own, new or empty, and how a reader outside sees it."""

    sink: Sink
    read: Callable[[], Sequence[Any]]
    """All that is visible now, in the form of the records written, and in order if the target has one."""
    refused: Any = _UNSET
    """A record that the sink can't deliver: writing it, or the barrier behind it, must raise. Left out: not checked."""


def check_sink_contract(
    factory: Callable[[], SinkUnderTest],
    *,
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once",
    record: Callable[[int], Any] = _record,
    ordered: bool = True,
) -> None:
    """Run a sink through epochs, aborts, crashes at each step, rescaling and rewinds, and see what is visible.

    Args:
        factory: makes sink and target, anew for every check: what one check wrote must not be seen by the next.
        delivery: "at_least_once" allows repeated records, and records that are visible before their checkpoint.
        record: the n-th record, another one for each n. By default `{"id": n, "key": "k0" | "k1" | "k2"}`.
        ordered: `read` gives the records of one subtask in the order they were written in.

    Raises:
        ContractBroken: a rule is broken: which, what was observed and what to do.
    """
    watchdog = Watchdog()
    watchdog.run(lambda: _Suite(factory, delivery == "exactly_once", record, ordered, watchdog).run())


class _Stage:
    """A check: a job with the sink, how far its source has come, and what should be visible."""

    def __init__(self, suite: _Suite, subject: SinkUnderTest, folder: Path, rule: str, advice: str) -> None:
        self.rule = rule
        self.advice = advice
        self.story: list[str] = []
        """What was done, for the error."""
        self._suite = suite
        self.subject = subject
        self.job = Rehearsal(subject.sink, folder, f"contract-{uuid.uuid4().hex[:8]}")
        self.position = 0
        """The next record's number."""
        self._positions: dict[int, int] = {}
        self.attempt: Attempt = self.do("start", self.job.start)
        self._parallelisms = {1}

    def restart(self, parallelism: int = 1, restore: Checkpoint | None = None, **options: Any) -> None:
        self._parallelisms.add(parallelism)
        origin = "nothing" if restore is None else f"checkpoint {restore.id}"
        self.attempt = self.do(
            f"start from {origin} with {parallelism} subtask(s)",
            lambda: self.job.start(parallelism, restore, **options),
        )
        self.position = 0 if restore is None else self._positions[restore.id]

    def write(self, count: int) -> None:
        first, self.position = self.position, self.position + count
        values = [self._suite.record(n) for n in range(first, self.position)]
        keys = [value.get("key") if isinstance(value, dict) else None for value in values]
        self.do(f"records {first} to {self.position - 1}", lambda: self.attempt.write(values, keys))

    def barrier(self) -> Checkpoint:
        checkpoint: Checkpoint = self.do(f"barrier {self.job.next_id}", lambda: self.attempt.barrier())
        self._positions[checkpoint.id] = self.position
        return checkpoint

    def complete(self, checkpoint: Checkpoint) -> None:
        self.do(f"checkpoint {checkpoint.id} complete", lambda: self.attempt.complete(checkpoint))

    def commit_all(self) -> None:
        self.do("commits", lambda: self.attempt.commit_all())

    def checkpoint(self) -> Checkpoint:
        checkpoint = self.barrier()
        self.complete(checkpoint)
        self.commit_all()
        return checkpoint

    def commit_unnoticed(self) -> None:
        """Committed, but the process dies before anybody is told."""
        for subtask, order in self.attempt.orders():
            self.do("commit", partial(self.attempt.commit, subtask, order, notify=False))

    def close(self) -> None:
        self.do("close", lambda: self.attempt.close())

    def die(self) -> None:
        self.story.append("SIGKILL")
        self.attempt.die()

    def visible(self) -> list[Any]:
        return list(self._suite.watchdog.call(self.rule, "read", "let `read` return", self.subject.read))

    def expect_nothing_new(self, upto: int) -> None:
        """Nothing of what isn't committed may be visible."""
        if not self._suite.exact:
            return
        _, early = lost_and_doubled(map(self._suite.record, range(upto)), self.visible())
        if early:
            self.broken(f"visible too early: {shown(early)}")

    def expect(self, wanted: Sequence[int] | range) -> None:
        """Exactly these records are visible (at least once: all of them are)."""
        records = [self._suite.record(n) for n in wanted]
        found = self.visible()
        lost, doubled = lost_and_doubled(records, found)
        if not self._suite.exact:
            known = {canonical(record) for record in records}
            doubled = [each for each in doubled if each not in known]
        if lost or doubled:
            parts = [f"lost: {shown(lost)}"] if lost else []
            parts += [f"too often, or never written: {shown(doubled)}"] if doubled else []
            self.broken("; ".join(parts))
        in_order = self._suite.ordered and self._suite.exact and self._parallelisms == {1}
        if in_order and list(map(canonical, found)) != list(map(canonical, records)):
            self.rule = "epochs-keep-their-order"
            self.advice = "commit committables in the order given, and keep the order of the records in each"
            self.broken(f"one subtask's records came as {shown(list(map(canonical, found)))}")

    def broken(self, observed: str) -> NoReturn:
        raise ContractBroken(self.rule, f"{observed}. After: {' → '.join(self.story)}", self.advice)

    def do(self, what: str, action: Callable[[], Any]) -> Any:
        self.story.append(what)
        try:
            return self._suite.watchdog.call(self.rule, what, "no call may wait for ever", action)
        except (ContractBroken, Interrupted):
            raise
        except Exception as error:
            raise ContractBroken(
                self.rule, f"raised {error!r}. After: {' → '.join(self.story)}", self.advice
            ) from error


class _Suite:
    def __init__(
        self,
        factory: Callable[[], SinkUnderTest],
        exact: bool,
        record: Callable[[int], Any],
        ordered: bool,
        watchdog: Watchdog,
    ) -> None:
        self._factory = factory
        self.exact = exact
        self.record = record
        self.ordered = ordered
        self.watchdog = watchdog

    def run(self) -> None:
        self._check_definition()
        self._check_visibility()
        self._check_empty_epochs()
        self._check_order()
        self._check_pending()
        self._check_aborted()
        self._check_repeated_commits()
        self._check_close()
        self._check_uncheckpointed()
        if self.exact:
            self._check_fenced()
            self._check_stale_committer()
        self._check_interrupted_commits()
        self._check_committer_state()
        self._check_rescaling()
        self._check_driver_side()
        self._check_rewind()
        self._check_new_lineage()
        self._check_fork()
        self._check_refused()

    @contextmanager
    def _stage(self, rule: str, advice: str) -> Iterator[_Stage]:
        with tempfile.TemporaryDirectory(prefix="weir-contract-") as folder:
            stage = _Stage(self, self._factory(), Path(folder) / "job", rule, advice)
            try:
                yield stage
            except BaseException:
                stage.attempt.die()
                raise
            stage.close()

    def _check_definition(self) -> None:
        subject = self._factory()
        if not isinstance(subject, SinkUnderTest):
            raise TypeError(f"the factory returned a {type(subject).__name__}; it must make a SinkUnderTest")
        with tempfile.TemporaryDirectory(prefix="weir-contract-") as folder:
            before = Rehearsal(subject.sink, Path(folder), "contract").pickled
        self.watchdog.call("validate-changes-nothing", "validate", "return", subject.sink.validate)
        check_unchanged(subject.sink, before, "validate")
        found = list(subject.read())
        if found:
            raise ContractBroken(
                "validate-changes-nothing",
                f"before anything was written, {len(found)} records were visible",
                "make a new or empty target for each call of the factory, and write nothing in validate()",
            )

    # -- the ordinary way ---------------------------------------------------------------------------------------

    def _check_visibility(self) -> None:
        advice = "keep records where readers don't see them (staged, hidden, uncommitted) until commit() is called"
        with self._stage("nothing-visible-before-commit", advice) as stage:
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

    def _check_empty_epochs(self) -> None:
        advice = "expect epochs without records: prepare_commit returns [], commit gets [], and neither is an error"
        with self._stage("empty-epochs-are-harmless", advice) as stage:
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

    def _check_order(self) -> None:
        advice = "don't mix epochs: a committable belongs to the barrier that it was prepared at"
        with self._stage("epochs-stay-apart", advice) as stage:
            stage.write(7)
            first = stage.barrier()
            stage.write(7)
            second = stage.barrier()
            stage.complete(first)
            stage.complete(second)
            stage.write(7)
            # Two epochs wait; the first goes out alone.
            for subtask, order in stage.attempt.orders():
                stage.do("commit of the first", partial(stage.attempt.commit, subtask, order))
            if self.exact:
                stage.expect(range(7))
            stage.commit_all()
            if self.exact:
                stage.expect(range(14))
            stage.checkpoint()
            stage.expect(range(21))

    def _check_aborted(self) -> None:
        advice = (
            "what an aborted checkpoint had prepared goes out with the next complete one: don't drop it, and don't "
            "tell a committable by the id of the checkpoint that commits it, but by its own name"
        )
        for crash in (False, True):
            with self._stage("aborted-epochs-join-the-next", advice) as stage:
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

    # -- crashes ------------------------------------------------------------------------------------------------

    def _check_close(self) -> None:
        advice = "let close() of the writer drop what is in no committable: the source will give it again"
        with self._stage("close-delivers-nothing", advice) as stage:
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

    def _check_uncheckpointed(self) -> None:
        advice = (
            "what was written, or even prepared, and is in no complete checkpoint comes again after a restore: an "
            "earlier try at it must never become visible"
        )
        for prepared in (False, True):
            for crash in (_Stage.die, _Stage.close):
                with self._stage("uncheckpointed-output-vanishes", advice) as stage:
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

    def _check_pending(self) -> None:
        advice = (
            "put all that a commit needs into the committable (or files that it names): another process, which knows "
            "only the checkpoint, has to commit it; let open() leave out only what certainly is out"
        )
        for waiting in (1, 2):
            for crash in (_Stage.die, _Stage.close):
                with self._stage("restore-commits-what-is-pending", advice) as stage:
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

    def _check_repeated_commits(self) -> None:
        advice = (
            "make commit() idempotent, for new instances too: keep a marker of the last committable in the same "
            "transaction, or a key or name for each committable that a second commit finds taken"
        )
        for crash in (_Stage.die, _Stage.close):
            with self._stage("commit-is-idempotent", advice) as stage:
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

    def _check_fenced(self) -> None:
        advice = "call ctx.check_owner() first in commit(), and let what it raises through"
        with self._stage("check-owner-comes-first", advice) as stage:
            if not stage.attempt.commits:
                return
            stage.write(6)
            stage.checkpoint()
            stage.write(6)
            last = stage.barrier()
            stage.complete(last)
            (subtask, order), *_ = stage.attempt.orders()
            stage.attempt.faults.fenced = True
            stage.story.append("another driver takes the job over; the old one commits")
            if not _fails(lambda: stage.attempt.commit(subtask, order, notify=False)):
                stage.broken("commit returned although ctx.check_owner raises Fenced")
            stage.expect_nothing_new(6)
            stage.die()
            stage.restart(restore=last)
            stage.commit_all()
            stage.expect(range(12))

    def _check_stale_committer(self) -> None:
        """An old process that is late: it has passed the owner check, and commits after its successor did."""
        advice = "find out in the transaction itself (a locked marker, a fencing token, a name taken) that it is out"
        with self._stage("late-commits-double-nothing", advice) as stage:
            if not stage.attempt.commits:
                return
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
                if _fails(partial(old.commit, subtask, order, notify=False)):
                    stage.story.append("which is refused")
            stage.expect(range(18))
            stage.write(6)
            stage.checkpoint()
            stage.expect(range(24))
            old.die()

    def _check_interrupted_commits(self) -> None:
        """A commit fails half-way, at each call that it makes of `check_owner` and `staging.read`."""
        advice = "let the error through (or try again), so that what the commit has not done is done after the restore"
        for calls in range(_MOST_FAULTS):
            with self._stage("interrupted-commits-are-finished", advice) as stage:
                if not stage.attempt.commits:
                    return
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
                    raised |= _fails(partial(stage.attempt.commit, subtask, order, notify=False))
                hit, faults.left = faults.left < 0, None
                if not raised:
                    stage.expect(range(12))
                if not hit:
                    return
                stage.close()
                stage.restart(restore=last)
                stage.commit_all()
                stage.write(3)
                stage.checkpoint()
                stage.expect(range(15))

    def _check_committer_state(self) -> None:
        """The task thread takes it while the committing thread goes on."""
        advice = "return from Committer.snapshot a value that is replaced whole, never changed in place"
        with self._stage("committer-state-stays-as-it-is", advice) as stage:
            if not stage.attempt.commits:
                return
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

    # -- other parallelism, other histories -----------------------------------------------------------------------

    def _check_rescaling(self) -> None:
        advice = (
            "commit for the owner that ctx.owner says: a committer makes all its names from it, never from the subtask "
            "that it happens to run in"
        )
        for crash in (_Stage.die, _Stage.close):
            with self._stage("old-owners-are-committed", advice) as stage:
                stage.close()
                stage.restart(3)
                stage.write(9)
                stage.checkpoint()
                last: Checkpoint | None = None
                for parallelism in (2, 1, 4):
                    stage.write(9)
                    last = stage.barrier()
                    stage.complete(last)
                    if parallelism == 1:
                        stage.commit_unnoticed()
                    crash(stage)
                    stage.restart(parallelism, last)
                    stage.commit_all()
                    stage.expect(range(stage.position))
                stage.write(9)
                last = stage.barrier()
                stage.complete(last)
                crash(stage)
                stage.restart(1, last)
                stage.write(9)
                stage.commit_all()
                stage.checkpoint()
                stage.expect(range(54))

    def _check_driver_side(self) -> None:
        advice = (
            "let uncommitted() leave out only what certainly is out, and check_restore() refuse only what open() would"
        )
        with self._stage("uncommitted-tells-the-truth", advice) as stage:
            if not stage.attempt.commits:
                return
            stage.write(6)
            first = stage.checkpoint()
            stage.write(6)
            last = stage.barrier()
            sink, job = stage.job.sink, stage.job
            for checkpoint in (first, last):
                state = checkpoint.state
                pending = state.pending.get(0, [])
                left = list(sink.uncommitted(job.pipeline, SINK_ID, 0, state.committers.get(0), pending))
                if checkpoint is last and [each.name for each in left] != [each.name for each in pending]:
                    stage.broken(f"uncommitted() returned {left} of {pending}, of which nothing is committed")
            stage.complete(last)
            stage.die()
            held = last.state
            restore = OwnerRestore(
                job.pipeline,
                SINK_ID,
                0,
                job.lineage,
                last.id,
                held.committers.get(0),
                held.pending.get(0, []),
                False,
                False,
            )
            stage.do("check_restore", lambda: sink.check_restore(restore))
            stage.expect_nothing_new(6)
            stage.restart(restore=last)
            stage.commit_all()
            stage.expect(range(12))

    def _check_rewind(self) -> None:
        advice = (
            "with ctx.rewind go on from the checkpoint given, though output is ahead of it: keep the lineage beside "
            "the marker, and take nothing of the new one for committed"
        )
        with self._stage("rewind-goes-on", advice) as stage:
            stage.write(5)
            first = stage.checkpoint()
            stage.write(5)
            stage.checkpoint()
            stage.close()
            parent = (stage.job.lineage.id, first.id)
            stage.restart(restore=first, rewind=True, lineage=Lineage("lineage-2", parent))
            stage.commit_all()
            stage.write(5)
            stage.checkpoint()
            stage.write(5)
            last = stage.barrier()
            stage.complete(last)
            stage.die()
            stage.restart(restore=last)
            stage.commit_all()
            found = Counter(map(canonical, stage.visible()))
            lost = [canonical(self.record(n)) for n in range(15) if not found[canonical(self.record(n))]]
            if lost:
                stage.broken(f"lost: {shown(lost)}")
            fresh = [canonical(self.record(n)) for n in range(10, 15)]
            twice = [each for each in fresh if found[each] > 1]
            if twice and self.exact:
                stage.broken(f"too often: {shown(twice)}")

    def _check_new_lineage(self) -> None:
        """`start(restore="none")` in a new folder: ids begin again, unless the committer knows larger ones."""
        advice = (
            "tell committables apart by lineage, too, or return from highest_checkpoint() the largest id known "
            "outside: the ids of the new history are then larger"
        )
        with self._stage("new-histories-lose-nothing", advice) as stage:
            stage.write(3)
            stage.checkpoint()
            stage.write(3)
            stage.checkpoint()
            stage.close()
            stage.job.next_id = 1
            stage.restart(ignore_earlier_output=True, lineage=Lineage("lineage-2"))
            stage.position = 6
            stage.write(3)
            last = stage.barrier()
            stage.complete(last)
            stage.commit_unnoticed()
            stage.die()
            stage.restart(restore=last)
            stage.commit_all()
            stage.write(3)
            stage.checkpoint()
            stage.expect(range(12))

    def _check_fork(self) -> None:
        """Another pipeline begins with this one's checkpoint; both go on."""
        advice = (
            "make all names from ctx.pipeline, ctx.sink_id and ctx.owner, and with ctx.fork touch nothing of the "
            "pipeline that the checkpoint is of"
        )
        with self._stage("forks-leave-the-original-alone", advice) as stage:
            stage.write(5)
            stage.checkpoint()
            stage.write(5)
            last = stage.barrier()
            stage.complete(last)
            original, pipeline, lineage = stage.attempt, stage.job.pipeline, stage.job.lineage
            stage.job.pipeline, next_id = f"{pipeline}-fork", stage.job.next_id
            stage.restart(restore=last, fork=True, lineage=Lineage("fork-1", (lineage.id, last.id)))
            stage.position = 10
            stage.write(5)
            stage.checkpoint()
            stage.close()
            stage.job.pipeline, stage.job.lineage, stage.attempt = pipeline, lineage, original
            stage.job.next_id = next_id
            stage.story.append("the original goes on")
            stage.commit_all()
            stage.position = 15
            stage.write(5)
            stage.checkpoint()
            found = stage.visible()
            lost, doubled = lost_and_doubled(map(self.record, range(20)), found)
            if lost or (doubled and self.exact):
                stage.broken(f"lost: {shown(lost)}; too often: {shown(doubled)}")

    def _check_refused(self) -> None:
        advice = "let write() or prepare_commit() raise: a record that can't be delivered must fail the attempt"
        with self._stage("refused-records-fail-the-attempt", advice) as stage:
            refused = stage.subject.refused
            if refused is _UNSET:
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


def _fails(action: Callable[[], Any]) -> bool:
    """Whether it raises; whatever it is, the attempt would fail with it."""
    try:
        action()
    except ContractBroken:
        raise
    except Exception:
        return True
    return False
