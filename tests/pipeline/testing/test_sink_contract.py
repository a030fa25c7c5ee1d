"""The sink contract suite finds what it is for: one broken sink for each rule. Weir's own sinks keep them."""

from __future__ import annotations

import io
import itertools
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from checkpoint.storage.fencing import Fenced
from pipeline.testing import ContractBroken, SinkUnderTest, TestingSink, check_sink_contract
from sinks import (
    Committable,
    Committer,
    CommitterContext,
    PermanentFailure,
    PrintSink,
    Sink,
    SinkWriter,
    WriterContext,
)


class Target:
    """Where rows go: a table in memory, which all copies of a sink find by its name."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.done: set[Any] = set()
        self.staged: dict[Any, list[Any]] = defaultdict(list)
        self.highest = 0


TARGETS: dict[int, Target] = {}
_numbers = itertools.count()


class Writer(SinkWriter):
    def __init__(self, target: Target, ctx: WriterContext) -> None:
        self.target = target
        self.ctx = ctx
        self.rows: list[Any] = []

    def write(self, value: Any, ctx: Any) -> None:
        if value == "refused":
            raise ValueError("this record can't be delivered")
        self.rows.append(value)

    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        rows, self.rows = self.rows, []
        return [rows] if rows else []


class RowCommitter(Committer):
    def __init__(self, target: Target, ctx: CommitterContext) -> None:
        self.target = target
        self.ctx = ctx

    def key(self, committable: Committable) -> Any:
        return (self.ctx.pipeline, self.ctx.lineage.id, self.ctx.writer, committable.name)

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        self.ctx.check_owner()
        for committable in committables:
            if self.key(committable) not in self.target.done:
                self.target.done.add(self.key(committable))
                self.target.rows += committable.payload
        self.target.highest = max(self.target.highest, checkpoint_id)

    def highest_checkpoint(self) -> int:
        return self.target.highest


class Rows(Sink):
    """Keeps the contract."""

    def __init__(self, writer: type[Writer] = Writer, committer: type[RowCommitter] | None = RowCommitter) -> None:
        self.writer = writer
        self.committer = committer
        self.number = next(_numbers)
        TARGETS[self.number] = Target()

    def create_writer(self, ctx: WriterContext) -> SinkWriter:
        return self.writer(TARGETS[self.number], ctx)

    def create_committer(self, ctx: CommitterContext) -> Committer | None:
        return None if self.committer is None else self.committer(TARGETS[self.number], ctx)


# -- broken in one way each -----------------------------------------------------------------------------------


class HoldsLock(Rows):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class ValidateConnects(Rows):
    def validate(self) -> None:
        self.client: Any = "connected"


class WritesAtOnce(Writer):
    def write(self, value: Any, ctx: Any) -> None:
        self.target.rows.append(value)


class CommitsLater(RowCommitter):
    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        waiting, self.target.staged["late"] = self.target.staged["late"], list(committables)
        super().commit(checkpoint_id, waiting)


class NeedsRows(RowCommitter):
    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        assert committables[0].name.epoch
        super().commit(checkpoint_id, committables)


class StagesOutside(Writer):
    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        self.target.staged[0] += self.rows
        self.rows = []
        return [None]


class PublishesAll(RowCommitter):
    """Whatever is staged, whichever epoch it is of."""

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        rows, self.target.staged[0] = self.target.staged[0], []
        self.target.rows += rows


class Backwards(Writer):
    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        self.rows.reverse()
        return super().prepare_commit(checkpoint_id)


class OnlyOwnEpoch(RowCommitter):
    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        super().commit(checkpoint_id, [each for each in committables if each.name.epoch == checkpoint_id])


class FlushesAtClose(Writer):
    def close(self) -> None:
        self.target.rows += self.rows


class StagesToo(Writer):
    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        self.target.staged[checkpoint_id] += self.rows
        return super().prepare_commit(checkpoint_id)


class PublishesLeftovers(RowCommitter):
    """What an earlier process had staged, complete or not."""

    def open(self, restored: Sequence[Committable]) -> Sequence[Committable]:
        pending = {each.name.epoch for each in restored}
        for epoch in [each for each in self.target.staged if each not in pending]:
            self.target.rows += self.target.staged.pop(epoch)
        return restored

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        super().commit(checkpoint_id, committables)
        for committable in committables:
            self.target.staged.pop(committable.name.epoch, None)


class ForgetsRestored(RowCommitter):
    def open(self, restored: Sequence[Committable]) -> Sequence[Committable]:
        return [each for each in restored if self.ctx.restored_checkpoint == 0 or each.name.epoch < 2]


class InventsRestored(RowCommitter):
    def open(self, restored: Sequence[Committable]) -> Sequence[Committable]:
        return [Committable(each.name, each.payload * 2) for each in restored]


class Appends(RowCommitter):
    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        self.ctx.check_owner()
        for committable in committables:
            self.target.rows += committable.payload


class NeverChecks(RowCommitter):
    def __init__(self, target: Target, ctx: CommitterContext) -> None:
        super().__init__(target, ctx)
        self.ctx = CommitterContext(**{**vars(ctx), "check_owner": lambda: None})


class RemembersAlone(RowCommitter):
    """What is committed is read once, at the start, instead of in the transaction."""

    def __init__(self, target: Target, ctx: CommitterContext) -> None:
        super().__init__(target, ctx)
        self.known = set(target.done)

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        self.target.done = set(self.known)
        super().commit(checkpoint_id, committables)
        self.known = set(self.target.done)


class Swallows(RowCommitter):
    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        try:
            super().commit(checkpoint_id, committables)
        except Fenced:
            raise
        except Exception:
            return


class ChangesState(RowCommitter):
    def __init__(self, target: Target, ctx: CommitterContext) -> None:
        super().__init__(target, ctx)
        self.state = [0]

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        super().commit(checkpoint_id, committables)
        self.state[0] = checkpoint_id

    def snapshot(self) -> Any:
        return self.state


class OddState(RowCommitter):
    def snapshot(self) -> Any:
        return object()


class OddCommittable(Writer):
    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        return [object()]


class LeavesWritersOut(RowCommitter):
    def open(self, restored: Sequence[Committable]) -> Sequence[Committable]:
        return restored if self.ctx.writer < 2 else []


class RefusesRewind(RowCommitter):
    def open(self, restored: Sequence[Committable]) -> Sequence[Committable]:
        if self.ctx.lineage.parent and self.target.highest > self.ctx.restored_checkpoint:
            raise PermanentFailure("the output is ahead")
        return restored


class NamesWithoutLineage(RowCommitter):
    def key(self, committable: Committable) -> Any:
        return (self.ctx.pipeline, self.ctx.writer, committable.name)

    def highest_checkpoint(self) -> int:
        return 0


class NamesWithoutPipeline(RowCommitter):
    def key(self, committable: Committable) -> Any:
        return (self.ctx.writer, committable.name)


class DropsRefused(Writer):
    def write(self, value: Any, ctx: Any) -> None:
        if value != "refused":
            super().write(value, ctx)


class SaysAllOut(Rows):
    def uncommitted(self, *_: Any) -> Sequence[Committable]:
        return []


def sink(writer: type[Writer] = Writer, committer: type[RowCommitter] | None = RowCommitter) -> Callable[[], Rows]:
    return partial(Rows, writer, committer)


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ("definition-pickles", HoldsLock),
        ("validate-changes-nothing", ValidateConnects),
        ("nothing-visible-before-commit", sink(writer=WritesAtOnce)),
        ("commit-makes-visible", sink(committer=CommitsLater)),
        ("committables-need-a-committer", sink(committer=None)),
        ("committables-are-plain", sink(writer=OddCommittable)),
        ("committer-state-is-plain", sink(committer=OddState)),
        ("empty-epochs-are-harmless", sink(committer=NeedsRows)),
        ("epochs-stay-apart", sink(StagesOutside, PublishesAll)),
        ("epochs-keep-their-order", sink(writer=Backwards)),
        ("aborted-epochs-join-the-next", sink(committer=OnlyOwnEpoch)),
        ("close-delivers-nothing", sink(writer=FlushesAtClose)),
        ("uncheckpointed-output-vanishes", sink(StagesToo, PublishesLeftovers)),
        ("restore-commits-what-is-pending", sink(committer=ForgetsRestored)),
        ("open-returns-what-is-left", sink(committer=InventsRestored)),
        ("commit-is-idempotent", sink(committer=Appends)),
        ("check-owner-comes-first", sink(committer=NeverChecks)),
        ("late-commits-double-nothing", sink(committer=RemembersAlone)),
        ("interrupted-commits-are-finished", sink(committer=Swallows)),
        ("committer-state-stays-as-it-is", sink(committer=ChangesState)),
        ("old-writers-are-committed", sink(committer=LeavesWritersOut)),
        ("uncommitted-tells-the-truth", SaysAllOut),
        ("rewind-goes-on", sink(committer=RefusesRewind)),
        ("new-histories-lose-nothing", sink(committer=NamesWithoutLineage)),
        ("forks-leave-the-original-alone", sink(committer=NamesWithoutPipeline)),
        ("refused-records-fail-the-attempt", sink(writer=DropsRefused)),
    ],
)
def test_a_broken_rule_is_found_and_named(rule: str, broken: Callable[[], Rows]) -> None:
    with pytest.raises(ContractBroken) as found:
        check_sink_contract(lambda: subject(broken))
    assert (found.value.rule, found.value.rule in str(found.value)) == (rule, True), found.value


def subject(kind: Callable[[], Rows]) -> SinkUnderTest:
    made = kind()
    return SinkUnderTest(made, lambda: TARGETS[made.number].rows, refused="refused")


def test_a_sink_that_keeps_the_contract_passes() -> None:
    check_sink_contract(lambda: subject(Rows))


def test_at_least_once_allows_repeated_records_but_none_lost() -> None:
    check_sink_contract(lambda: subject(sink(committer=Appends)), delivery="at_least_once")
    with pytest.raises(ContractBroken, match="lost"):
        check_sink_contract(lambda: subject(sink(committer=ForgetsRestored)), delivery="at_least_once")


def test_the_testing_sink_keeps_the_contract() -> None:
    def testing_sink() -> SinkUnderTest:
        made = TestingSink()
        return SinkUnderTest(made, lambda: made.records)

    check_sink_contract(testing_sink)


def test_the_print_sink_delivers_at_least_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def print_sink() -> SinkUnderTest:
        printed = io.StringIO()
        monkeypatch.setattr(sys, "stdout", printed)
        return SinkUnderTest(PrintSink(), lambda: printed.getvalue().splitlines())

    check_sink_contract(print_sink, delivery="at_least_once", record=lambda n: f"record {n}")
