"""Commit logs and restored commits together: every record comes out once, and in the order of its key."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from checkpoint.commit_log import CommitLog
from checkpoint.committables import Committable, CommittableName
from checkpoint.restored_commits import ReleaseEpoch, ReleaseNew, RestoredCommits

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
        self.markers: dict[int, CommittableName] = {}
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
            payloads = [buffer[i : i + 2] for i in range(0, len(buffer), 2)]
            log.add(n, [Committable(CommittableName(n, index), payload) for index, payload in enumerate(payloads)])
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
