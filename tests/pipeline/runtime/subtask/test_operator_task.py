"""An operator's task: what becomes of what it captures for a checkpoint."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from messages import example_of

from checkpoint.barriers.events import Barrier
from checkpoint.barriers.handler import BarrierHandler
from checkpoint.elements import BarrierElement, ChannelName, EdgeName
from checkpoint.in_flight.restored_input import RestoredInput
from checkpoint.row_format import row_format
from pipeline.buffers import BufferConfig
from pipeline.runtime import protocol
from pipeline.runtime.network.frames import ChannelId
from pipeline.runtime.network.input_channels import InputChannels
from pipeline.runtime.protocol import TO_SUBTASK
from pipeline.runtime.subtask import mail
from pipeline.runtime.subtask.batch_in_progress import BatchInProgress
from pipeline.runtime.subtask.chain import ChainEntry
from pipeline.runtime.subtask.mail import mail_of
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.operator_task import OperatorTask
from pipeline.runtime.subtask.point_queries import PointQueries
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.task import Cancelled
from pipeline.runtime.subtask.task_metrics import TaskMetrics

EDGE = EdgeName("in", "count", "")
CHANNELS = [ChannelName(EDGE, upstream, 0) for upstream in (0, 1)]


class Silent:
    """Stands for what the task tells something that doesn't matter here."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class Checkpoints(Silent):
    """Keeps what it is told of channels."""

    next_deadline = None

    def __init__(self) -> None:
        self.capturing: list[ChannelName] = []
        self.captured: list[tuple[ChannelName, int]] = []

    def take(self, barrier: Barrier, unaligned: bool, alignment: float, capture: Any, *state: Any) -> None:
        self.capturing += capture

    def input_captured(self, channel: ChannelName, checkpoint_id: int, elements: Any) -> None:
        self.captured.append((channel, checkpoint_id))


class SilentSink(Silent):
    records = 0
    accepts_records = True


class Writer(Silent):
    """An edge on which so much has been sent, with so much overdraft."""

    has_room, unsent, queued_bytes = True, False, 0

    def __init__(self, records: int, sent_bytes: int, overdraft_bytes: int) -> None:
        self.records, self.sent_bytes, self.overdraft_bytes = records, sent_bytes, overdraft_bytes


def operator_task(
    mailbox: Mailbox, inputs: InputChannels, checkpoints: Any, sinks: Any = None, writers: Any = ()
) -> OperatorTask:
    silent: Any = Silent()
    return OperatorTask(
        inputs=inputs,
        channels=CHANNELS,
        barriers=BarrierHandler(2, time.monotonic()),
        name="count[0]",
        chain=silent,
        writers=list(writers),
        sinks=sinks or {},
        checkpoints=checkpoints,
        event_time=silent,
        batch=BatchInProgress(RecordInProgress(), mailbox, None),
        restored=RestoredInput(),
        entries={EDGE: ChainEntry(lambda value: None, row_format(carries_keys=False))},
        replay=False,
        queries=PointQueries(None, lambda message: None, time.monotonic),
        mailbox=mailbox,
        driver=silent,
        metrics=TaskMetrics(time.monotonic),
        linger=0.05,
    )


def two_channels() -> InputChannels:
    return InputChannels([ChannelId(0, i, 2) for i in (0, 1)], BufferConfig(), lambda channel: None, lambda: None)


@pytest.mark.parametrize("aborted", [False, True])
def test_for_a_checkpoint_that_was_aborted_no_channel_is_captured_any_more(aborted: bool) -> None:
    """Each would keep all that arrives until the barrier comes, and that may never."""
    mailbox, inputs, checkpoints = Mailbox(), two_channels(), Checkpoints()
    task = operator_task(mailbox, inputs, checkpoints)
    barrier = BarrierElement(Barrier(1, alignment_timeout=0.0))
    mailbox.post(mail.BarrierSeen(0, barrier))
    if aborted:
        mailbox.post(protocol.Aborted(1))
    mailbox.post(protocol.Finish())
    task.run()
    assert checkpoints.capturing == CHANNELS
    for channel in inputs.channels:
        channel.put(barrier)
    assert checkpoints.captured == ([] if aborted else [(channel, 1) for channel in CHANNELS])


@pytest.mark.parametrize("kind", TO_SUBTASK.classes.values(), ids=TO_SUBTASK.classes)
def test_an_operator_understands_all_mail_from_the_driver(kind: type[Any]) -> None:
    mailbox = Mailbox()
    if (received := mail_of(example_of(kind), 0.0)) is not None:
        mailbox.post(received)
    mailbox.post(protocol.Finish())
    task = operator_task(mailbox, two_channels(), Checkpoints(), {"out": SilentSink()})
    with pytest.raises(Cancelled) if kind is protocol.Cancel else contextlib.nullcontext():
        task.run()


def test_what_several_outputs_and_sinks_have_taken_is_told_together() -> None:
    mailbox = Mailbox()
    mailbox.post(protocol.Finish())
    sink = SilentSink()
    sink.records = 4
    task = operator_task(
        mailbox, two_channels(), Checkpoints(), {"out": sink}, [Writer(1, 10, 7), Writer(2, 20, 300), Writer(0, 0, 0)]
    )
    task.run()
    told = task.metrics.report()
    names = ("recordsOut", "bytesOut", "recordsToSinks", "overdraftBytes")
    assert [told[name] for name in names] == [7, 30, 4, 300]
