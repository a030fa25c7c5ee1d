"""A subtask's part in a checkpoint, piece by piece: what is sent on, what is kept, what is told, what is forgotten."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from captures import channel, data
from manual_system import ManualExecutor

from checkpoint.barriers.events import Barrier
from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.codec import EncodingError
from checkpoint.elements import CancelMarker
from checkpoint.in_flight.restored_input import RestoredInput
from checkpoint.storage.handles import FileHandle, StateFile
from pipeline.runtime.protocol import Acknowledged, Declined, SnapshotTaken
from pipeline.runtime.subtask.task_checkpoints import TaskCheckpoints
from pipeline.runtime.subtask.task_metrics import TaskMetrics

OUT = [channel(0, 0), channel(0, 1)]
IN = channel(3, 0)
HEAD = "count"


def handle(name: str, size: int) -> FileHandle:
    return FileHandle(name, size, "")


class Writer:
    """One edge with two channels, and what is sent on it."""

    def __init__(self, log: list[Any]) -> None:
        self.names = OUT
        self.channels = [SimpleNamespace(on_barrier_left=None) for _ in OUT]
        self.queued: dict[Any, Any] = {}
        """What a barrier overtakes, by channel: as `OutputChannel.overtake` tells it."""
        self._log = log

    def broadcast(self, element: Any) -> None:
        self._log.append(element if isinstance(element, CancelMarker) else ("behind", element.barrier, element.at))

    def overtake(self, element: Any, record: Any) -> None:
        self._log.append(("in front", element.barrier.checkpoint_id))
        self._tell(record)

    def make_unaligned(self, checkpoint_id: int, record: Any) -> None:
        self._log.append(("unaligned", checkpoint_id))
        self._tell(record)

    def _tell(self, record: Any) -> None:
        for name, captured in self.queued.items():
            record(name, captured)

    def leave(self, checkpoint_id: int, *which: int) -> None:
        for index in which or (0, 1):
            self.channels[index].on_barrier_left(checkpoint_id)


class Frozen:
    def __init__(self, how: str) -> None:
        self.how = how
        self.reused_bytes = 30
        self.released = 0

    def release(self) -> None:
        self.released += 1


class Backend:
    """Keyed state, and the log of its changes."""

    def __init__(self) -> None:
        self.frozen: list[Frozen] = []

    def freeze(self) -> Frozen:
        self.frozen.append(Frozen("all"))
        return self.frozen[-1]

    def freeze_changes(self) -> str:
        return "changes"

    def barrier(self, frozen: str) -> Frozen:
        self.frozen.append(Frozen(frozen))
        return self.frozen[-1]


class Files:
    """Writing takes some time: 3 s for keyed state, 4 s for channel state."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.fails: BaseException | None = None
        self.fails_channel_state: BaseException | None = None
        self.unfit: str | None = None
        self.told: list[tuple[str, int]] = []

    def write_keyed_state(self, barrier: Barrier, step: str, snapshot: Any) -> list[StateFile]:
        if self.fails is not None:
            raise self.fails
        self._rig.now += 3
        return [StateFile(handle(f"{step}-{snapshot.how}", 100))]

    def write_channel_state(self, barrier: Barrier, captured: Any) -> FileHandle:
        if self.fails_channel_state is not None:
            raise self.fails_channel_state
        self._rig.now += 4
        return handle("in-flight", 7)

    def gather(self, barrier: Barrier, step: str, snapshot: Any) -> Any:
        return snapshot

    def spill(self, barrier: Barrier, step: str, snapshot: Any) -> Any:
        if step == self.unfit:
            raise EncodingError("a socket")
        return snapshot

    def completed(self, checkpoint_id: int) -> None:
        self.told.append(("completed", checkpoint_id))

    def aborted(self, checkpoint_id: int) -> None:
        self.told.append(("aborted", checkpoint_id))


class Rig:
    """A subtask with keyed state (if there is a backend), an output edge, and a pool that works when it is told to."""

    def __init__(self, backend: Backend | None = None, log: bool = False, restored: Any = (), **state: Any) -> None:
        self.now = 100.0
        self.sent: list[Any] = []
        self.said: list[Any] = []
        self.writer, self.files, self.pool = Writer(self.sent), Files(self), ManualExecutor()
        self.metrics = TaskMetrics(lambda: self.now)
        chain = {"snapshot": {}, "broadcast_snapshot": {}, "broadcast_contents": {}, "freeze_lists": {}, **state}
        parts: Any = {
            "chain": SimpleNamespace(
                head=HEAD,
                snapshot=lambda n: chain["snapshot"],
                **{name: lambda name=name: chain[name] for name in chain if name != "snapshot"},
            ),
            "event_time": SimpleNamespace(
                snapshot=self._event_time_in_2_s, snapshot_watermarks=lambda: state.get("watermarks", {})
            ),
            "sinks": state.get("sinks", {}),
            "writers": [self.writer],
            "backend": backend,
            "log": backend if log else None,
            "driver": SimpleNamespace(report=self.said.append),
            "files": self.files,
            "pool": self.pool,
        }
        self.checkpoints = TaskCheckpoints(
            subtask=0,
            restored=RestoredInput(restored),
            metrics=self.metrics,
            clock=lambda: self.now,
            **parts,
        )

    def _event_time_in_2_s(self) -> dict[str, int]:
        self.now += 2
        return {"reached": 5}

    def take(self, barrier: Barrier, unaligned: bool = False, capture: Any = (), **more: Any) -> None:
        given = {"alignment": 0.0, "head_state": {}, "statistics": {}, **more}
        self.checkpoints.take(barrier, unaligned, capture=capture, **given)

    def acknowledged(self) -> Acknowledged:
        self.pool.run()
        (found,) = [one for one in self.said if isinstance(one, Acknowledged)]
        return found

    @property
    def declined(self) -> list[Declined]:
        return [one for one in self.said if isinstance(one, Declined)]


# -- what is kept ---------------------------------------------------------------------------------------------------


def test_the_snapshot_has_every_kind_of_state_under_its_step() -> None:
    sink = SimpleNamespace(snapshot=lambda n: ({"pending": n}, [handle("staged", 11)]))
    lists = SimpleNamespace(stored=lambda: {"lists": {"seen": [1]}})
    rig = Rig(
        Backend(),
        snapshot={"score": "own"},
        broadcast_snapshot={"rules": {"r": {}}},
        broadcast_contents={"rules": {"r": "int"}},
        freeze_lists={"score": lists},
        watermarks={"times": {"emitted": 3}},
        sinks={"out": sink},
    )
    rig.take(Barrier(4), head_state={"source": "position"})
    rig.writer.leave(4)
    snapshot = rig.acknowledged().snapshot
    assert {step: dict(one.state) for step, one in snapshot.operators.items()} == {
        HEAD: {"source": "position", "event_time": {"reached": 5}},
        "score": {"operator": "own", "lists": {"seen": [1]}},
        "rules": {"broadcast": {"r": {}}, "broadcast_contents": {"r": "int"}},
        "times": {"watermarks": {"emitted": 3}},
        "out": {"sink": {"pending": 4}},
    }
    assert [one.path for one in snapshot.all_files()].count("staged") == 1
    assert snapshot.operators["out"].files == (handle("staged", 11),)
    assert [one.file.path for one in snapshot.operators[HEAD].keyed_state] == ["count-all"]


def test_what_user_code_returned_may_be_changed_by_it_while_it_is_written() -> None:
    own, position = {"n": [1]}, {"offsets": [7]}
    rig = Rig(snapshot={HEAD: own})
    rig.take(Barrier(1), head_state={"source": position})
    own["n"].append(2)
    position["offsets"].append(8)
    rig.writer.leave(1)
    state = rig.acknowledged().snapshot.operators[HEAD].state
    assert (state["operator"], state["source"]) == ({"n": [1]}, {"offsets": [7]})


@pytest.mark.parametrize(
    ("log", "target", "how"), [(True, None, "changes"), (True, "file:///s", "all"), (False, None, "all")]
)
def test_only_checkpoints_in_the_jobs_folder_are_made_of_changes(log: bool, target: str | None, how: str) -> None:
    backend = Backend()
    rig = Rig(backend, log)
    rig.take(Barrier(1, target=target))
    assert [one.how for one in backend.frozen] == [how]


def test_figures_are_those_of_this_checkpoint() -> None:
    restored = [(IN, data(["a", "b"]))]
    rig = Rig(Backend(), restored=restored)
    rig.take(Barrier(1, age=1.5), alignment=0.5, statistics={"span_records": 9}, busy=True)
    assert rig.said == [SnapshotTaken(1, 9, True)]
    rig.now += 10  # it waits for a thread of the pool
    rig.pool.run(1)
    rig.now += 20  # until the barrier has left
    rig.writer.leave(1)
    told = rig.acknowledged()
    figures = told.statistics
    assert (figures["alignment"], figures["start_delay"], figures["unaligned"]) == (0.5, 1.5, False)
    assert (figures["sync"], figures["async"]) == (2, 7)
    assert (figures["size"], figures["written"]) == (107, 77)
    assert (figures["span_records"], figures["in_flight_records"]) == (9, 2)
    assert figures["in_flight_bytes"] == told.snapshot.in_flight_bytes > 0


# -- when it is acknowledged ----------------------------------------------------------------------------------------


def test_it_is_acknowledged_once_all_parts_are_there_whichever_is_last() -> None:
    for last in ("state", "barrier", "capture"):
        rig = Rig()
        rig.take(Barrier(1, alignment_timeout=0.0), unaligned=True, capture=[IN])
        steps = {
            "state": lambda rig=rig: rig.pool.run(),
            "barrier": lambda rig=rig: rig.writer.leave(1, 1),
            "capture": lambda rig=rig: rig.checkpoints.input_captured(IN, 1, [data(["late"])]),
        }
        rig.writer.leave(1, 0)
        for part in steps:
            if part != last:
                steps[part]()
        assert [type(one) for one in rig.said] == [SnapshotTaken], last
        assert 1 in rig.metrics.pending
        steps[last]()
        assert rig.acknowledged().snapshot.in_flight_records == 1
        assert rig.metrics.pending == {}
        assert rig.metrics.writing == set()


def test_what_it_waits_for_is_told_as_long_as_it_does() -> None:
    rig = Rig()
    rig.take(Barrier(1, alignment_timeout=0.0), unaligned=True, capture=[IN])
    assert rig.metrics.pending[1]() == (OUT, [IN])
    assert rig.metrics.writing == {1}
    rig.writer.leave(1, 0)
    rig.pool.run()
    assert rig.metrics.pending[1]() == ([OUT[1]], [IN])
    assert rig.metrics.writing == set(), "state is written"
    rig.writer.leave(1, 1)
    rig.checkpoints.input_captured(IN, 1, [])
    rig.acknowledged()
    assert rig.checkpoints._pending == {}


def test_what_comes_for_a_checkpoint_that_is_not_known_changes_nothing() -> None:
    rig = Rig()
    rig.checkpoints.input_captured(IN, 1, [])
    rig.writer.leave(1)
    rig.checkpoints.aborted(1)
    rig.pool.run()
    assert rig.said == []


@pytest.mark.parametrize("aborted", [False, True])
def test_one_that_is_given_up_is_forgotten(aborted: bool) -> None:
    rig = Rig()
    rig.take(Barrier(1))
    if aborted:
        rig.checkpoints.aborted(1)
        assert (rig.metrics.pending, rig.checkpoints._pending) == ({}, {})
    else:
        rig.checkpoints.close()
    rig.writer.leave(1)
    rig.pool.run()
    assert [type(one) for one in rig.said] == [SnapshotTaken]
    assert rig.files.told == ([("aborted", 1)] if aborted else [])


def test_local_copies_hear_of_what_is_complete() -> None:
    rig = Rig()
    rig.checkpoints.completed(3)
    assert rig.files.told == [], "not in the task thread"
    rig.pool.run()
    assert rig.files.told == [("completed", 3)]


# -- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError("disk full"), SystemExit("user code")])
def test_state_that_cannot_be_written_declines_the_checkpoint(error: BaseException) -> None:
    backend = Backend()
    rig = Rig(backend)
    rig.files.fails = error
    rig.take(Barrier(1))
    rig.pool.run()
    rig.writer.leave(1)
    rig.pool.run()
    (declined,) = rig.declined
    assert (declined.checkpoint_id, declined.asynchronous) == (1, True)
    assert str(error) in declined.message
    assert not [one for one in rig.said if isinstance(one, Acknowledged)]
    assert rig.metrics.writing == set()
    assert backend.frozen[0].released == 1


def test_channel_state_that_cannot_be_written_declines_it_too() -> None:
    rig = Rig(restored=[(IN, data(["a"]))])
    rig.files.fails_channel_state = OSError("disk full")
    rig.take(Barrier(1))
    rig.writer.leave(1)
    rig.pool.run()
    (declined,) = rig.declined
    assert (declined.asynchronous, "disk full" in declined.message) == (True, True)
    assert (rig.metrics.writing, rig.metrics.pending) == (set(), {})


def test_state_that_no_checkpoint_can_keep_is_named() -> None:
    rig = Rig(snapshot={"score": "own"})
    rig.files.unfit = "score"
    rig.take(Barrier(1))
    rig.pool.run()
    (declined,) = rig.declined
    assert "what step 'score' returned from snapshot" in declined.message
    assert "can't be kept in a checkpoint: a socket" in declined.message


def test_one_that_cannot_be_taken_is_declined_and_cancelled_downstream() -> None:
    rig = Rig()
    rig.checkpoints.give_up(2, "input has ended")
    assert rig.said == [Declined(2, "input has ended", asynchronous=False)]
    assert rig.sent == [CancelMarker(2)]


def test_frozen_state_is_released_once_it_is_written() -> None:
    backend = Backend()
    rig = Rig(backend)
    rig.take(Barrier(1))
    assert backend.frozen[0].released == 0
    rig.pool.run()
    assert backend.frozen[0].released == 1


# -- barriers in output queues --------------------------------------------------------------------------------------


def test_an_aligned_barrier_goes_behind_what_was_written_and_an_unaligned_one_in_front() -> None:
    rig = Rig()
    barrier = Barrier(1, CheckpointKind.CHECKPOINT, None)
    rig.take(barrier)
    rig.take(Barrier(2, alignment_timeout=0.0), unaligned=True)
    assert rig.sent == [("behind", barrier, 100.0), ("in front", 2)]


def test_what_a_barrier_overtakes_is_in_its_checkpoint() -> None:
    rig = Rig()
    rig.writer.queued = {OUT[0]: {1: [data(["a"])], 7: [data(["of one that is over"])]}, OUT[1]: {1: []}}
    rig.take(Barrier(1, alignment_timeout=0.0), unaligned=True)
    rig.writer.leave(1)
    snapshot = rig.acknowledged().snapshot
    assert snapshot.in_flight_records == 1
    assert [one.path for one in snapshot.channel_state] == ["in-flight"]


def test_a_barrier_turns_unaligned_in_the_queue_when_its_timeout_is_over_since_the_trigger() -> None:
    rig = Rig()
    rig.take(Barrier(1, alignment_timeout=5.0, age=2.0))
    rig.take(Barrier(2, alignment_timeout=9.0, age=1.0))
    rig.take(Barrier(3, alignment_timeout=None))
    rig.sent.clear()
    rig.writer.queued = {OUT[0]: {1: [data(["a"])]}}
    assert rig.checkpoints.next_deadline == 103.0
    rig.checkpoints.make_overdue_unaligned(102.9)
    assert rig.sent == []
    rig.checkpoints.make_overdue_unaligned(103.0)
    assert rig.sent == [("unaligned", 1)]
    assert rig.checkpoints.next_deadline == 110.0, "it was sent 2 s later"
    rig.checkpoints.make_overdue_unaligned(200.0)
    assert rig.sent == [("unaligned", 1), ("unaligned", 2)]
    assert rig.checkpoints.next_deadline is None
    rig.writer.leave(1)
    assert rig.acknowledged().statistics["unaligned"] is True


def test_a_newer_barrier_that_is_overdue_takes_the_older_ones_with_it() -> None:
    rig = Rig()
    rig.take(Barrier(1, alignment_timeout=50.0))
    rig.take(Barrier(2, alignment_timeout=5.0))
    rig.take(Barrier(3, alignment_timeout=5.0))
    rig.sent.clear()
    rig.checkpoints.make_overdue_unaligned(109.0)
    assert rig.sent == [("unaligned", 3)]
    assert rig.checkpoints.next_deadline is None


def test_behind_an_unaligned_barrier_no_older_one_waits_for_its_timeout() -> None:
    rig = Rig()
    rig.take(Barrier(1, alignment_timeout=5.0))
    rig.take(Barrier(2, alignment_timeout=0.0), unaligned=True)
    assert rig.checkpoints.next_deadline is None
