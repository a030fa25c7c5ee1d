"""A source's task: when its splits count as read, and how it pushes a record batch."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pytest
from messages import example_of
from option_values import gate_options

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.config import CheckpointConfig
from checkpoint.coordination.coordinator_events import Heartbeat
from checkpoint.elements import RestoreBarrier, Watermark
from checkpoint.event_time.generator import WatermarkGenerator
from checkpoint.gate.source_gate import SourceGate
from checkpoint.in_flight.restored_input import RestoredInput
from pipeline.runtime import protocol
from pipeline.runtime.protocol import TO_SUBTASK
from pipeline.runtime.subtask import mail
from pipeline.runtime.subtask import source_task as source_task_module
from pipeline.runtime.subtask.batch_in_progress import BatchInProgress
from pipeline.runtime.subtask.mail import mail_of
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.point_queries import PointQueries
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.source_task import SourceTask
from pipeline.runtime.subtask.task import Cancelled
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from sources import END, SourceBatch, SourceReader


class EmptyReader(SourceReader):
    def poll(self, max_records: int, timeout: float) -> Any:
        return None

    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        return None


class Silent:
    """Stands for what the task tells something that doesn't matter here."""

    due = False
    next_deadline = None

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class Looks(Silent):
    """Event time that notes what it is told of time, and has mail come after some of the looks."""

    def __init__(self, mailbox: Mailbox, after: dict[int, mail.Mail]) -> None:
        self.held_up: list[bool] = []
        self._mailbox = mailbox
        self._after = after

    def on_clock(self, now: float, held_up: bool, most: float) -> None:
        self.held_up.append(held_up)
        one = self._after.get(len(self.held_up))
        if one is not None:
            self._mailbox.post(one)

    def seconds_to_next(self, now: float) -> float:
        return 0.001


def source_task(
    mailbox: Mailbox,
    record: RecordInProgress,
    reader: SourceReader,
    chain: Any,
    event_time: Any,
    replay: bool = False,
    writers: Any = (),
    sinks: Any = None,
) -> SourceTask:
    silent: Any = Silent()
    return SourceTask(
        reader=reader,
        make_gate=lambda now: SourceGate(gate_options(interval=None), now, 0),
        config=CheckpointConfig("/checkpoints", alignment="aligned"),
        name="orders[0]",
        chain=chain,
        writers=writers,
        sinks=sinks or {},
        checkpoints=silent,
        event_time=event_time,
        batch=BatchInProgress(record, mailbox, None),
        restored=RestoredInput(),
        entries={},
        replay=replay,
        queries=PointQueries(None, lambda message: None, lambda: 0.0),
        mailbox=mailbox,
        driver=silent,
        metrics=TaskMetrics(),
        linger=0.05,
    )


class OneBatch(SourceReader):
    """Hands over one record batch, and ends."""

    def __init__(self, mailbox: Mailbox, batch: Any) -> None:
        self._mailbox = mailbox
        self._left = [SourceBatch(batch, timestamps=[10 * i for i in range(len(batch))])]
        self.emitted: list[int] = []

    def poll(self, max_records: int, timeout: float) -> Any:
        if self._left:
            return self._left.pop()
        self._mailbox.post(protocol.Finish())
        return END

    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        self.emitted.append(emitted)


class Slices(Silent):
    """A chain that takes record batches; asks for a checkpoint behind some of the slices."""

    def __init__(self, mailbox: Mailbox, after: set[int]) -> None:
        self.record = RecordInProgress()
        self.rows: list[Any] = []
        self.timestamps: list[Any] = []
        self.sizes: list[int] = []
        self.at_trigger: list[int] = []
        self._mailbox, self._after = mailbox, after

    def push_batch(self, batch: pa.RecordBatch, timestamps: Any) -> None:
        self.rows += batch.column(0).to_pylist()
        self.timestamps += timestamps
        self.sizes.append(len(batch))
        if len(self.sizes) in self._after:
            self.at_trigger.append(len(self.rows))
            self._mailbox.post(mail.Triggered(protocol.Trigger(len(self.at_trigger), CheckpointKind.CHECKPOINT), 0.0))


def test_a_barrier_falls_between_two_slices_of_a_record_batch_and_knows_the_rows_emitted() -> None:
    mailbox = Mailbox()
    chain: Any = Slices(mailbox, {2, 5})
    reader = OneBatch(mailbox, pa.record_batch({"x": range(5000)}))
    start = protocol.Heartbeat(Heartbeat((), 1.0, None))
    source_task(mailbox, RecordInProgress(), reader, chain, Looks(mailbox, {1: start})).run()
    assert chain.rows == list(range(5000))
    assert chain.timestamps == [10 * i for i in range(5000)]
    assert chain.sizes[0] == 1  # and at most twice as many each time, as long as they are quick
    assert reader.emitted == chain.at_trigger


@pytest.mark.parametrize("replay", [False, True])
def test_a_source_that_waits_for_the_replay_is_not_reading(replay: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_task_module, "_HELD_UP_SECONDS", 60.0)  # a loaded machine may keep it from polling
    mailbox, record = Mailbox(), RecordInProgress()
    start = protocol.Heartbeat(Heartbeat((), 1.0, None))
    looks = Looks(mailbox, {2: start, 5: protocol.ReplayEnded(), 9: protocol.Finish()})
    task = source_task(mailbox, record, EmptyReader(), Silent(), looks, replay)
    task.run()
    # The first three looks come before it has found that nothing was in flight here.
    assert looks.held_up == [True] * 3 + [replay] * 2 + [False] * 5


class Edge(Silent):
    """A writer that keeps what is sent on all its channels."""

    has_room, unsent = True, False
    sent_bytes = records = overdraft_bytes = queued_bytes = 0

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def broadcast(self, element: Any) -> None:
        self.sent.append(element)


class Tells(Looks):
    """Event time with a watermark from before the restore."""

    edge: Edge

    def resend(self) -> None:
        self.edge.broadcast(Watermark(10))


@pytest.mark.parametrize("replay", [False, True])
def test_after_rescaling_the_watermark_is_told_again_behind_the_restore_barrier(replay: bool) -> None:
    """The new channels know none, and one that doesn't advance would never be sent."""
    mailbox, edge = Mailbox(), Edge()
    start = protocol.Heartbeat(Heartbeat((), 1.0, None))
    times = Tells(mailbox, {1: start, 5: protocol.Finish()})
    times.edge = edge
    source_task(mailbox, RecordInProgress(), EmptyReader(), Silent(), times, replay, [edge]).run()
    assert edge.sent == ([RestoreBarrier(), Watermark(10)] if replay else [])


class DueTimers(Silent):
    """Event time with a processing timer that is due."""

    def seconds_to_next(self, now: float) -> float:
        return 0.0


class Patience(Mailbox):
    """Notes for how long it was asked to wait, doesn't, and cancels the task after a few times."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float) -> None:
        self.waits.append(timeout)
        if len(self.waits) == 5:
            self.post(protocol.Cancel())


def test_before_all_subtasks_run_a_timer_that_is_due_keeps_nobody_busy() -> None:
    mailbox = Patience()
    with pytest.raises(Cancelled):
        source_task(mailbox, RecordInProgress(), EmptyReader(), Silent(), DueTimers()).run()
    assert min(mailbox.waits) > 0


def test_while_brokers_are_down_or_a_step_takes_long_no_split_counts_as_read() -> None:
    mailbox = Mailbox()
    looks = Looks(mailbox, {})
    task = source_task(mailbox, RecordInProgress(), EmptyReader(), Silent(), looks)
    task._take_restored()
    task._poll()
    for seconds in (0.1, 30):
        task._on_clock(task._polled_at + seconds)
    task.metrics.waiting.begin("the brokers")
    task._on_clock(task._polled_at + 0.1)
    assert looks.held_up == [False, True, True]


def test_where_every_record_takes_long_each_poll_counts_and_splits_fall_idle() -> None:
    mailbox = Mailbox()
    looks = Looks(mailbox, {})
    task = source_task(mailbox, RecordInProgress(), EmptyReader(), Silent(), looks)
    task._take_restored()
    generator = WatermarkGenerator(0, 5.0, task._clock_at)
    generator.set_splits(["busy", "quiet"])
    looks.on_clock = generator.on_clock  # type: ignore[assignment, method-assign]
    idle = []
    for _ in range(8):
        task._polled_at = task._clock_at  # it brings one record, which takes half a minute
        generator.touch(generator.split("busy"))
        task._on_clock(task._polled_at + 30.0)
        idle.append(generator.split("quiet").idle)
    assert idle == [False] * 4 + [True] * 4


class SilentSink(Silent):
    records = 0
    accepts_records = True


@pytest.mark.parametrize("kind", TO_SUBTASK.classes.values(), ids=TO_SUBTASK.classes)
def test_a_source_understands_all_mail_from_the_driver(kind: type[Any]) -> None:
    mailbox = Mailbox()
    if (received := mail_of(example_of(kind), 0.0)) is not None:
        mailbox.post(received)
    mailbox.post(protocol.Finish())
    task = source_task(mailbox, RecordInProgress(), EmptyReader(), Silent(), Silent(), sinks={"out": SilentSink()})
    with pytest.raises(Cancelled) if kind is protocol.Cancel else contextlib.nullcontext():
        task.run()
