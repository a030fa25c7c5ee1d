"""What a sink commits, in which order, and what travels with checkpoints until then."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import ormsgpack
import pytest

from checkpoint.committables import Committable, SegmentName
from checkpoint.committing import CommitLog, CommitOrder, ReleaseEpoch, ReleaseNew, RestoredCommits
from checkpoint.storage.handles import FileHandle


def segments(epoch: int, *payloads: object) -> list[Committable]:
    return [Committable(SegmentName(epoch, index), payload) for index, payload in enumerate(payloads)]


def fresh(own: int = 0) -> CommitLog:
    """That of a start without restore."""
    log = CommitLog(own, {})
    log.release_new()
    return log


def commit(log: CommitLog) -> CommitOrder:
    order = log.next_commit()
    assert order is not None
    log.committed(order)
    return order


# -- committables ---------------------------------------------------------------------------------------------


def test_committables_survive_the_wire():
    committable = Committable(
        SegmentName(7, 2), {"rows": 3, "raw": b"\0\xff"}, (FileHandle("shared/2-out-0-17.arrow", 512, "ab"),)
    )
    wire = ormsgpack.unpackb(ormsgpack.packb(committable.to_wire()))
    assert Committable.from_wire(wire) == committable


def test_segment_names_are_ordered_by_epoch_and_then_index():
    names = [SegmentName(10, 0), SegmentName(9, 11), SegmentName(9, 2)]
    assert sorted(names) == [SegmentName(9, 2), SegmentName(9, 11), SegmentName(10, 0)]
    assert SegmentName.from_wire(SegmentName(9, 2).to_wire()) == SegmentName(9, 2)


# -- commit log: completions ----------------------------------------------------------------------------------


def test_an_epoch_is_committed_once_its_checkpoint_is_complete():
    log = fresh(own=3)
    log.add(1, segments(1, "a", "b"))
    assert log.next_commit() is None
    log.complete(1)
    assert log.next_commit() == CommitOrder(3, 1, tuple(segments(1, "a", "b")))
    commit(log)
    assert log.next_commit() is None
    assert log.idle


def test_the_same_order_is_handed_out_until_it_is_committed():
    log = fresh()
    log.add(1, segments(1, "a"))
    log.complete(1)
    first = log.next_commit()
    log.add(2, segments(2, "b"))
    log.complete(2)
    assert log.next_commit() == first


def test_every_completed_checkpoint_yields_an_order_even_when_empty():
    log = fresh()
    for epoch in (1, 2):
        log.add(epoch, [])
        log.complete(epoch)
    assert commit(log) == CommitOrder(0, 1, ())
    assert commit(log) == CommitOrder(0, 2, ())


def test_segments_of_aborted_checkpoints_go_out_with_the_next_completed_one_under_their_own_names():
    log = fresh()
    log.add(1, segments(1, "a"))
    log.add(2, segments(2, "b"))
    log.add(3, segments(3, "c"))
    log.complete(2)  # 1 was aborted
    assert commit(log) == CommitOrder(0, 2, (*segments(1, "a"), *segments(2, "b")))
    log.complete(3)
    assert commit(log) == CommitOrder(0, 3, tuple(segments(3, "c")))


def test_a_completed_epoch_is_never_merged_with_another():
    log = fresh()
    for epoch in (1, 2):
        log.add(epoch, segments(epoch, f"of {epoch}"))
        log.complete(epoch)
    assert commit(log) == CommitOrder(0, 1, tuple(segments(1, "of 1")))
    assert commit(log) == CommitOrder(0, 2, tuple(segments(2, "of 2")))


def test_notifications_may_come_twice_late_or_not_at_all():
    log = fresh()
    for epoch in (1, 2, 3):
        log.add(epoch, segments(epoch, epoch))
    log.complete(2)  # that of 1 was lost
    log.complete(2)
    log.complete(1)
    assert commit(log).checkpoint_id == 2
    log.complete(2)
    assert log.next_commit() is None
    assert log.snapshot() == {0: segments(3, 3)}


def test_a_notification_of_a_checkpoint_from_before_the_restore_is_ignored():
    log = CommitLog(0, {0: segments(5, "a")})
    log.complete(5)
    assert log.waiting == 0


def test_barriers_out_of_order_are_refused():
    log = CommitLog(0, {0: segments(5, "a")})
    with pytest.raises(ValueError, match="barrier 5 came after barrier 5"):
        log.add(5, [])
    log.add(7, [])
    with pytest.raises(ValueError, match="barrier 6 came after barrier 7"):
        log.add(6, [])


@pytest.mark.parametrize(
    "wrong", [segments(2, "a"), segments(4, "a"), segments(3, "a", "b")[::-1], segments(3, "a") * 2]
)
def test_names_that_do_not_fit_their_barrier_are_refused(wrong: list[Committable]):
    with pytest.raises(ValueError, match="SegmentName"):
        fresh().add(3, wrong)


def test_an_order_that_was_not_handed_out_cannot_be_reported():
    log = fresh()
    log.add(1, segments(1, "a"))
    with pytest.raises(ValueError, match="was committed"):
        log.committed(CommitOrder(0, 1, tuple(segments(1, "a"))))


# -- commit log: snapshots ------------------------------------------------------------------------------------


def test_what_is_not_known_to_be_committed_travels_with_every_later_checkpoint():
    log = fresh(own=1)
    log.add(1, segments(1, "a"))
    assert log.snapshot() == {1: segments(1, "a")}
    log.complete(1)
    log.add(2, segments(2, "b"))
    assert log.snapshot() == {1: [*segments(1, "a"), *segments(2, "b")]}
    commit(log)
    assert log.snapshot() == {1: segments(2, "b")}
    log.complete(2)
    commit(log)
    assert log.snapshot() == {}


def test_inherited_committables_travel_under_their_writer():
    log = CommitLog(0, {0: segments(4, "own"), 2: segments(4, "inherited")})
    log.add(6, segments(6, "new"))
    assert log.snapshot() == {0: [*segments(4, "own"), *segments(6, "new")], 2: segments(4, "inherited")}


# -- commit log: backpressure ---------------------------------------------------------------------------------


def test_the_writer_takes_no_more_records_once_two_completed_epochs_wait():
    log = fresh()
    for epoch in (1, 2):
        log.add(epoch, segments(epoch, epoch))
        assert log.accepts_records
        log.complete(epoch)
    assert log.waiting == 2
    assert not log.accepts_records
    log.add(3, [])  # barriers are taken all the same
    commit(log)
    assert log.accepts_records


def test_only_completed_epochs_count_as_waiting():
    log = CommitLog(0, {0: [*segments(1, "a"), *segments(2, "b"), *segments(3, "c")]})
    for epoch in (11, 12, 13):
        log.add(epoch, segments(epoch, epoch))
    assert log.waiting == 0
    assert log.accepts_records


def test_a_log_is_idle_when_nothing_completed_or_restored_is_left():
    log = CommitLog(0, {0: segments(1, "a")})
    assert not log.idle
    log.release_restored(1)
    commit(log)
    assert log.idle
    log.add(2, segments(2, "b"))
    assert log.idle
    log.complete(2)
    assert not log.idle


# -- commit log: after a restore ------------------------------------------------------------------------------


def test_restored_epochs_go_out_one_by_one_as_they_are_released():
    log = CommitLog(0, {0: [*segments(4, "a"), *segments(5, "b")], 2: segments(5, "c")})
    assert log.restored_epochs() == [4, 5]
    assert log.next_commit() is None
    log.release_restored(4)
    assert commit(log) == CommitOrder(0, 4, tuple(segments(4, "a")))
    assert log.restored_done(4)
    assert not log.restored_done(5)
    assert log.next_commit() is None
    log.release_restored(5)
    log.release_restored(4)  # a repetition takes nothing back
    assert commit(log) == CommitOrder(0, 5, tuple(segments(5, "b")))
    assert not log.restored_done(5)
    assert commit(log) == CommitOrder(2, 5, tuple(segments(5, "c")))
    assert log.restored_done(5)
    assert log.restored_epochs() == []


def test_a_subtask_that_has_nothing_of_an_epoch_is_done_with_it_at_once():
    log = CommitLog(0, {0: segments(5, "b")})
    assert log.restored_done(4)
    assert not log.restored_done(5)


def test_no_new_epoch_is_committed_before_it_is_released_even_when_nothing_was_restored_here():
    log = CommitLog(0, {})
    log.add(7, segments(7, "new"))
    log.complete(7)
    assert log.next_commit() is None
    assert log.waiting == 1
    log.release_new()
    assert commit(log).checkpoint_id == 7


def test_new_epochs_can_not_be_released_while_restored_ones_are_left():
    log = CommitLog(0, {2: segments(5, "b")})
    with pytest.raises(ValueError, match=r"\[5\]"):
        log.release_new()


def test_restored_committables_out_of_order_are_refused():
    with pytest.raises(ValueError, match="in the order"):
        CommitLog(0, {0: [*segments(5, "b"), *segments(4, "a")]})


# -- restored commits -----------------------------------------------------------------------------------------


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


# -- everything together --------------------------------------------------------------------------------------

KEYS = 4
Record = tuple[int, int]
"""Key, sequence number of the key."""


@dataclass
class Checkpoint:
    position: list[int]
    pending: dict[int, list[Committable]]


class Sink:
    """Its subtasks write, take barriers, commit segment by segment, crash and come back with another parallelism, at
    random; notifications come late, twice or never."""

    def __init__(self, seed: int, rescale: bool = True) -> None:
        self.rng = random.Random(seed)
        self.rescale = rescale
        self.output: list[Record] = []
        self.markers: dict[int, SegmentName] = {}
        """What is committed outside: the writer's last segment out, set together with the output."""
        self.next_id = 1
        self.completed: Checkpoint | None = None
        self.parallelism = self.rng.randint(1, 3)
        self.restore()

    def restore(self) -> None:
        base = self.completed or Checkpoint([0] * KEYS, {})
        subtasks = range(self.parallelism)
        self.position = list(base.position)
        self.buffers: list[list[Record]] = [[] for _ in subtasks]
        self.in_progress: dict[int, Checkpoint] = {}
        self.notices: list[list[int]] = [[] for _ in subtasks]
        self.releases: list[list[ReleaseEpoch | ReleaseNew]] = [[] for _ in subtasks]
        self.partly_out: dict[int, int] = {}
        """Writer → segments of the order in progress that are committed."""
        hosted: list[dict[int, list[Committable]]] = [{} for _ in subtasks]
        for writer, committables in base.pending.items():
            left = [c for c in committables if writer not in self.markers or c.name > self.markers[writer]]
            if left:
                hosted[writer % self.parallelism][writer] = left
        self.logs = [CommitLog(own, restored) for own, restored in enumerate(hosted)]
        self.unopened = list(subtasks)
        self.commits = RestoredCommits({"out": subtasks})

    def step(self) -> None:
        steps = {
            self.write: 30,
            self.barrier: 8,
            self.complete: 6,
            self.abort: 2,
            self.notify: 12,
            self.lose_a_notification: 1,
            self.open_committers: 8,
            self.release: 12,
            self.commit: 25,
            self.crash: 1.5,
        }
        self.rng.choices(list(steps), list(steps.values()))[0]()

    def subtask(self) -> int:
        return self.rng.randrange(self.parallelism)

    def write(self) -> None:
        key = self.rng.randrange(KEYS)
        subtask = key * self.parallelism // KEYS
        if self.logs[subtask].accepts_records:
            self.buffers[subtask].append((key, self.position[key]))
            self.position[key] += 1

    def barrier(self) -> None:
        if len(self.in_progress) == 2 or self.unopened:
            return
        n = self.next_id
        self.next_id += 1
        checkpoint = Checkpoint(list(self.position), {})
        for log, buffer in zip(self.logs, self.buffers, strict=True):
            log.add(n, segments(n, *(buffer[i : i + 2] for i in range(0, len(buffer), 2))))
            buffer.clear()
            for writer, committables in log.snapshot().items():
                assert writer not in checkpoint.pending
                checkpoint.pending[writer] = committables
        self.in_progress[n] = checkpoint

    def complete(self) -> None:
        if self.in_progress:
            n = self.rng.choice(list(self.in_progress))
            self.completed = self.in_progress[n]
            self.in_progress = {m: c for m, c in self.in_progress.items() if m > n}
            for notices in self.notices:
                notices.append(n)

    def abort(self) -> None:
        if self.in_progress:
            del self.in_progress[self.rng.choice(list(self.in_progress))]

    def notify(self) -> None:
        subtask = self.subtask()
        if notices := self.notices[subtask]:
            n = self.rng.choice(notices)
            if self.rng.random() < 0.7:
                notices.remove(n)
            self.logs[subtask].complete(n)

    def lose_a_notification(self) -> None:
        notices = self.notices[self.subtask()]
        if len(notices) > 1:  # the newest one is repeated until it arrives
            notices.pop(0)

    def open_committers(self) -> None:
        if self.unopened:
            subtask = self.rng.choice(self.unopened)
            self.unopened.remove(subtask)
            self.send(self.commits.opened("out", subtask, self.logs[subtask].restored_epochs()))

    def send(self, actions: list[ReleaseEpoch | ReleaseNew]) -> None:
        for mail in self.releases:
            mail.extend(actions)

    def release(self) -> None:
        subtask = self.subtask()
        if self.releases[subtask]:
            match self.releases[subtask].pop(0):
                case ReleaseEpoch(_, epoch):
                    self.logs[subtask].release_restored(epoch)
                    self.report(subtask, epoch)
                case ReleaseNew():
                    self.logs[subtask].release_new()

    def report(self, subtask: int, epoch: int) -> None:
        if self.logs[subtask].restored_done(epoch):
            self.send(self.commits.done("out", subtask, epoch))

    def commit(self) -> None:
        """One segment, or the report that all are committed: a crash may come in between."""
        subtask = self.subtask()
        log = self.logs[subtask]
        order = log.next_commit()
        if order is None:
            return
        out = self.partly_out.get(order.writer, 0)
        if out < len(order.committables):
            committable = order.committables[out]
            self.output += committable.payload
            self.markers[order.writer] = committable.name
            self.partly_out[order.writer] = out + 1
            return
        self.partly_out[order.writer] = 0
        restored = bool(log.restored_epochs())
        log.committed(order)
        if restored:
            self.report(subtask, order.checkpoint_id)

    def crash(self) -> None:
        if self.rescale:
            self.parallelism = self.rng.randint(1, 3)
        self.restore()

    def check(self) -> None:
        assert not [record for record, n in Counter(self.output).items() if n > 1], "doubled"
        for key in range(KEYS):
            numbers = [number for k, number in self.output if k == key]
            assert numbers == list(range(len(numbers))), "lost or out of order"

    def come_to_rest(self) -> None:
        """Then everything is committed."""
        while self.unopened:
            self.open_committers()
        self.in_progress = {}
        self.barrier()
        self.complete()
        for log, notices in zip(self.logs, self.notices, strict=True):
            log.complete(notices[-1])
        for _ in range(3000):
            self.release()
            self.commit()
        self.check()
        assert sorted(self.output) == [(key, i) for key in range(KEYS) for i in range(self.position[key])]
        assert all(log.idle and not log.snapshot() for log in self.logs)
        assert self.commits.settled


@pytest.mark.parametrize("rescale", [False, True])
@pytest.mark.parametrize("seed", range(100))
def test_every_record_comes_out_once_and_in_the_order_of_its_key(seed: int, rescale: bool):
    sink = Sink(seed, rescale)
    for _ in range(600):
        sink.step()
    sink.check()
    sink.come_to_rest()
