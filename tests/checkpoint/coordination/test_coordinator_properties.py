"""The checkpoint coordinator under random events: what holds whatever comes in which order."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest
from option_values import checkpoint_config

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination.coordinator import CheckpointCoordinator
from checkpoint.coordination.coordinator_events import (
    Acknowledged,
    AllInputEnded,
    CheckpointAsked,
    CheckpointRequested,
    Declined,
    DeleteCheckpoint,
    DeletionDone,
    DiscardAcknowledgement,
    EndInput,
    Event,
    FailJob,
    FailureReason,
    FinaliseCheckpoint,
    Finalised,
    FinaliseFailed,
    IdSeen,
    JobEnding,
    NotifyAborted,
    NotifyComplete,
    OutputBegan,
    RejectRequest,
    StopRequested,
    SubtasksRunning,
    Tick,
    TriggerCheckpoint,
)
from checkpoint.coordination.failure_manager import MIN_SPAN_SCALE
from checkpoint.coordination.trigger_schedule import FIRST_OUTPUT_PAUSE

SUBTASKS = 2


@dataclass
class Seen:
    """What the world outside knows of one checkpoint."""

    kind: CheckpointKind
    triggered_at: float
    acknowledged: set[int] = field(default_factory=set)
    writing: bool = False
    resolved: str = ""
    stop: bool = False


class World:
    """Plays subtasks, storage, sources and users at random; checks every action against its own books."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.now = 0.0
        self.running = self.ended = self.failed = self.input_ended = self.told_to_end = self.finished = False
        self.draining: set[str] = set()
        """Tokens of requests to drain the job and stop it."""
        self.seen: dict[int, Seen] = {}
        self.last_end = -math.inf
        self.triggered_ordinary = False
        self.failures = 0
        self.requested: list[str] = []
        self.answered: list[str] = []
        self.deleting: dict[int, float] = {}
        """Id → when it was asked for."""
        self.deleted: set[int] = set()
        restored = rng.randint(0, 3)
        self.kept = list(range(1, restored + 1))
        self.largest = restored
        self.options = checkpoint_config(
            interval=rng.choice([None, 2.0, 5.0, 5.0]),
            timeout=rng.choice([6.0, 20.0]),
            min_pause=rng.choice([0.0, 1.0, 4.0]),
            max_concurrent=rng.randint(1, 3),
            tolerable_failures=rng.choice([0, 2, 1000, 1000]),
            retained=rng.randint(1, 2),
        )
        self.coordinator = CheckpointCoordinator(self.options, SUBTASKS, restored + 1, self.kept)

    # -- the world ------------------------------------------------------------------------------------------------

    def step(self) -> None:
        steps = {
            self.run: 3,
            self.wait: 10,
            self.wait_for_the_deadline: 8,
            self.acknowledge: 5,
            self.acknowledge_all: 20,
            self.decline: 3,
            self.write_metadata: 20,
            self.end_deletion: 12,
            self.ask: 5,
            self.begin_output: 1,
            self.request: 5,
            self.see_id: 1,
            self.end_input: 0.3,
            self.stop: 0.5,
            self.end_job: 0.1,
        }
        self.rng.choices(list(steps), list(steps.values()))[0]()
        self.check()

    def run(self) -> None:
        self.running = True
        self.send(SubtasksRunning())

    def wait(self) -> None:
        self.now += self.rng.choice([0.0, 0.1, 1.0, 2.5])
        self.send(Tick())

    def wait_for_the_deadline(self) -> None:
        deadline = self.coordinator.next_deadline(self.now)
        if deadline is None:
            return
        assert deadline >= self.now
        self.now = deadline
        self.send(Tick())
        after = self.coordinator.next_deadline(self.now)
        assert after is None or after > self.now, "a deadline that a tick does not move"

    def acknowledge(self) -> None:
        self.send(Acknowledged(self.some_id(), self.rng.randrange(SUBTASKS)))

    def acknowledge_all(self) -> None:
        if pending := self.pending():
            checkpoint_id = self.rng.choice(pending)
            for subtask in range(SUBTASKS):
                self.send(Acknowledged(checkpoint_id, subtask))

    def decline(self) -> None:
        reason = self.rng.choice([FailureReason.DECLINED, FailureReason.ASYNC])
        self.send(Declined(self.some_id(), 0, "no", reason))

    def write_metadata(self) -> None:
        if writing := [n for n, s in self.seen.items() if s.writing]:
            checkpoint_id = self.rng.choice(writing)
            self.seen[checkpoint_id].writing = False
            self.send(Finalised(checkpoint_id) if self.rng.random() < 0.9 else FinaliseFailed(checkpoint_id, "disk"))

    def end_deletion(self) -> None:
        if self.deleting:
            checkpoint_id = self.rng.choice(sorted(self.deleting))
            del self.deleting[checkpoint_id]
            self.send(DeletionDone(checkpoint_id))

    def ask(self) -> None:
        self.send(CheckpointAsked(self.some_id()))

    def begin_output(self) -> None:
        self.send(OutputBegan())
        waits = self.running and not (self.ordinary() or self.deleting or self.input_ended or self.ended)
        if waits and self.options.interval_s is not None and not self.triggered_ordinary and not self.stopping():
            deadline = self.coordinator.next_deadline(self.now)
            assert deadline is not None
            assert deadline <= max(self.now + FIRST_OUTPUT_PAUSE, self.last_end + self.options.min_pause_s)

    def stopping(self) -> bool:
        return len(self.requested) > len(self.answered)

    def request(self) -> None:
        token = str(len(self.requested))
        self.requested.append(token)
        kind = self.rng.choice([CheckpointKind.CHECKPOINT, CheckpointKind.SAVEPOINT, CheckpointKind.SAVEPOINT])
        self.send(CheckpointRequested(kind, token))

    def see_id(self) -> None:
        self.largest = max(self.largest, self.largest + self.rng.randint(-3, 3))
        self.send(IdSeen(self.largest))

    def end_input(self) -> None:
        self.input_ended = True
        self.send(AllInputEnded())

    def stop(self) -> None:
        token = str(len(self.requested))
        self.requested.append(token)
        drain = self.rng.random() < 0.5
        if drain:
            self.draining.add(token)
        self.send(StopRequested(self.rng.choice([CheckpointKind.FINAL, CheckpointKind.SAVEPOINT]), token, drain))

    def end_job(self) -> None:
        self.ended = True
        self.send(JobEnding())
        assert not self.pending()
        assert sorted(self.answered) == sorted(self.requested)

    def some_id(self) -> int:
        """Mostly one of the last few."""
        return self.rng.choice([*list(self.seen)[-4:], *self.pending(), *self.kept, 0, self.largest + 5])

    def pending(self) -> list[int]:
        return [n for n, s in self.seen.items() if not s.resolved]

    def ordinary(self) -> list[int]:
        return [n for n in self.pending() if self.seen[n].kind is not CheckpointKind.SAVEPOINT]

    # -- the books ------------------------------------------------------------------------------------------------

    def send(self, event: Event) -> None:
        timeout = self.options.timeout_s
        self.deleting = {n: at for n, at in self.deleting.items() if self.now < at + timeout}
        if isinstance(event, Acknowledged) and event.checkpoint_id in self.pending():
            seen = self.seen[event.checkpoint_id]
            if self.now < seen.triggered_at + timeout:
                seen.acknowledged.add(event.subtask)
        for action in self.coordinator.handle(event, self.now):
            match action:
                case TriggerCheckpoint():
                    self.triggered(action)
                case FinaliseCheckpoint(n, kind):
                    assert self.seen[n].kind is kind
                    assert len(self.seen[n].acknowledged) == SUBTASKS
                    assert not self.seen[n].writing
                    self.seen[n].writing = True
                case EndInput():
                    assert self.draining
                    self.told_to_end = True
                case NotifyComplete(n, kind, last):
                    self.completed(n, kind, event)
                    assert last == (kind is CheckpointKind.FINAL or self.seen[n].stop)
                    self.finished |= last
                case NotifyAborted():
                    self.aborted(action)
                case DeleteCheckpoint(n):
                    self.delete(n)
                case DiscardAcknowledgement(n, subtask):
                    assert event == Acknowledged(n, subtask)
                    assert n not in self.kept, "files of a retained checkpoint deleted"
                    assert n not in self.seen or self.seen[n].resolved != "completed" or n in self.deleted
                    assert n not in self.pending()
                case RejectRequest(token, _):
                    self.answered.append(token)
                case FailJob():
                    assert not self.failed
                    assert self.failures > self.options.tolerable_failures
                    self.failed = True
        assert self.failed or self.failures <= self.options.tolerable_failures

    def triggered(self, action: TriggerCheckpoint) -> None:
        assert self.running
        assert not self.ended
        assert not self.failed
        assert not self.finished, "something is triggered behind the last checkpoint"
        assert not [n for n in self.pending() if self.seen[n].stop], "something is triggered behind a stop's barrier"
        assert action.checkpoint_id > self.largest, "an id repeated"
        self.largest = action.checkpoint_id
        assert len(self.deleting) <= self.options.max_concurrent
        same = [n for n in self.pending() if self.seen[n].kind is CheckpointKind.SAVEPOINT]
        if action.kind is CheckpointKind.SAVEPOINT:
            assert not same, "two savepoints at once"
            assert len(action.tokens) == 1
        else:
            assert len(self.ordinary()) < self.options.max_concurrent
            assert (action.kind is CheckpointKind.FINAL) == (self.input_ended or action.stop)
        if action.stop and self.draining & set(action.tokens):
            assert self.input_ended, "stopped before it was drained"
        if action.kind is CheckpointKind.CHECKPOINT:
            assert self.now >= self.last_end + self.options.min_pause_s
        self.answered += action.tokens
        assert set(action.tokens) <= set(self.requested)
        self.triggered_ordinary |= action.kind is not CheckpointKind.SAVEPOINT
        self.seen[action.checkpoint_id] = Seen(action.kind, self.now, stop=action.stop)

    def completed(self, checkpoint_id: int, kind: CheckpointKind, event: Event) -> None:
        assert event == Finalised(checkpoint_id)
        self.resolve(checkpoint_id, kind, "completed")
        if kind is not CheckpointKind.SAVEPOINT:
            assert not [n for n in self.ordinary() if n < checkpoint_id], "an older one survives a completion"
            assert not [n for n in self.kept if n > checkpoint_id], "completions out of order"
            self.kept.append(checkpoint_id)
            self.last_end = self.now
            self.failures = 0

    def aborted(self, action: NotifyAborted) -> None:
        seen = self.seen[action.checkpoint_id]
        assert set(action.missing) == set(range(SUBTASKS)) - seen.acknowledged
        self.resolve(action.checkpoint_id, action.kind, "aborted")
        if action.reason is FailureReason.EXPIRED:
            assert self.now >= seen.triggered_at + self.options.timeout_s
        if action.reason is FailureReason.CANCELLED:
            assert self.ended
        if action.kind is CheckpointKind.SAVEPOINT:
            assert action.reason is not FailureReason.SUBSUMED
        elif action.reason not in (FailureReason.SUBSUMED, FailureReason.CANCELLED):
            self.last_end = self.now
            self.failures += not action.reason.tolerated

    def resolve(self, checkpoint_id: int, kind: CheckpointKind, how: str) -> None:
        seen = self.seen[checkpoint_id]
        assert not seen.resolved, "resolved twice"
        assert seen.kind is kind
        seen.resolved = how

    def delete(self, checkpoint_id: int) -> None:
        assert not self.ended
        assert checkpoint_id not in self.deleted, "deleted twice"
        if checkpoint_id in self.kept:
            assert checkpoint_id == self.kept.pop(0), "not the oldest"
            assert len(self.kept) >= self.options.retained
        else:
            seen = self.seen[checkpoint_id]
            assert seen.resolved == "aborted"
            assert not seen.writing, "deleted under its writer's hands"
        self.deleted.add(checkpoint_id)
        self.deleting[checkpoint_id] = self.now

    # -- at any time ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        beat = self.coordinator.heartbeat(self.now)
        assert beat.in_progress == tuple((n, self.seen[n].kind) for n in sorted(self.pending()))
        assert MIN_SPAN_SCALE <= beat.span_scale <= 1
        assert len(self.ordinary()) <= self.options.max_concurrent
        assert self.coordinator.statistics().retained == tuple(self.kept)
        assert self.coordinator.statistics().consecutive_failures == self.failures
        assert sorted(self.coordinator.statistics().deleting) == sorted(self.deleting)
        for n in self.pending():
            assert self.now < self.seen[n].triggered_at + self.options.timeout_s, "overdue"
        live = self.running and not self.failed and not self.ended
        if live and self.options.interval_s is not None and not self.input_ended and not self.finished:
            assert self.coordinator.next_deadline(self.now) is not None, "checkpoints have stopped for good"

    def come_to_rest(self) -> None:
        """Storage and subtasks work again: whatever came before, the next checkpoint completes."""
        if not self.running or self.failed or self.ended:
            return
        completed = [n for n, s in self.seen.items() if s.resolved == "completed"]
        if self.told_to_end and not self.input_ended:
            self.end_input()
        if self.options.interval_s is None and not self.input_ended:
            self.request()
        for _ in range(50):
            for n in self.pending():
                for subtask in range(SUBTASKS):
                    self.send(Acknowledged(n, subtask))
            for n in [n for n, s in self.seen.items() if s.writing]:
                self.seen[n].writing = False
                self.send(Finalised(n))
            self.check()
            self.wait_for_the_deadline()
        assert len([n for n, s in self.seen.items() if s.resolved == "completed"]) > len(completed) or self.finished
        assert sorted(self.answered) == sorted(self.requested)


@pytest.mark.parametrize("seed", range(100))
def test_what_must_hold_holds_whatever_comes_in_which_order(seed: int):
    world = World(seed)
    for _ in range(250):
        world.step()
    world.come_to_rest()
