"""How long a task waits when nothing happens but the clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from checkpoint.barriers.events import Barrier, BarrierArrived
from checkpoint.barriers.handler import BarrierHandler
from checkpoint.elements import ChannelName, EdgeName
from checkpoint.row_format import row_format
from pipeline.buffers import BufferConfig
from pipeline.runtime.network.frames import ChannelId
from pipeline.runtime.network.input_channels import InputChannels
from pipeline.runtime.subtask.chain import ChainEntry
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.operator_task import OperatorTask
from pipeline.runtime.subtask.point_queries import PointQueries
from pipeline.runtime.subtask.task_metrics import TaskMetrics

EDGE = EdgeName("in", "count", "")


class NotingMailbox(Mailbox):
    """Notes for how long it was asked to wait, and doesn't."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float) -> None:
        self.waits.append(timeout)


class Pacer:
    """Has the next record wait for as long as it is told to."""

    what = "its turn"

    def __init__(self, left: float) -> None:
        self.left = left

    def seconds_left(self, now: float) -> float:
        return self.left

    def waits_since(self, now: float) -> float | None:
        return now - 1.5 if self.left else None


def task(mailbox: Mailbox, deadline_of_sent: float | None = None, pacers: Sequence[Pacer] = ()) -> OperatorTask:
    """With two input channels; `deadline_of_sent`: when a barrier that waits in its output queue turns unaligned."""
    channels = [ChannelName(EDGE, upstream, 0) for upstream in (0, 1)]
    gate = InputChannels([ChannelId(0, i, 2) for i in (0, 1)], BufferConfig(), lambda channel: None, lambda: None)
    unused: Any = None
    return OperatorTask(
        inputs=gate,
        channels=channels,
        barriers=BarrierHandler(2, time.monotonic()),
        name="count[0]",
        chain=unused,
        writers=[],
        sinks={},
        checkpoints=SimpleNamespace(next_deadline=deadline_of_sent),
        event_time=SimpleNamespace(seconds_to_next=lambda now: float("inf"), report=lambda *_, **__: None),
        batch=unused,
        restored=unused,
        entries={EDGE: ChainEntry(lambda value: None, row_format(carries_keys=False))},
        replay=False,
        queries=PointQueries(None, lambda message: None, time.monotonic),
        mailbox=mailbox,
        driver=unused,
        metrics=TaskMetrics(time.monotonic),
        linger=0.05,
        pacers=pacers,
    )


@pytest.mark.parametrize("wait", ["_wait_for_work", "_wait_for_room"])
def test_a_task_that_waits_looks_up_when_a_checkpoint_it_has_seen_turns_unaligned(wait: str) -> None:
    mailbox = NotingMailbox()
    waiting = task(mailbox)
    getattr(waiting, wait)()
    waiting._tell(BarrierArrived(0, Barrier(1, alignment_timeout=0.03)))
    getattr(waiting, wait)()
    assert mailbox.waits[0] > 0.03
    assert 0 <= mailbox.waits[1] <= 0.03


@pytest.mark.parametrize("wait", ["_wait_for_work", "_wait_for_room"])
def test_a_task_that_waits_looks_up_when_a_barrier_in_its_output_queue_turns_unaligned(wait: str) -> None:
    mailbox = NotingMailbox()
    getattr(task(mailbox, deadline_of_sent=time.monotonic() + 0.03), wait)()
    assert 0 <= mailbox.waits[0] <= 0.03


def test_a_task_waits_for_the_slowest_of_its_pacers_and_no_longer() -> None:
    mailbox = NotingMailbox()
    paced = task(mailbox, pacers=[Pacer(0.0), Pacer(0.02), Pacer(0.01)])
    assert not paced._may_process()
    paced._wait_for_room()
    assert mailbox.waits == [0.02]
    assert paced.metrics.backpressured_s > 0


def test_a_pacer_that_lets_records_pass_makes_no_wait_for_room_shorter() -> None:
    mailbox = NotingMailbox()
    paced = task(mailbox, pacers=[Pacer(0.0)])
    assert paced._may_process()
    paced._wait_for_room()
    assert mailbox.waits[0] > 0.1


def test_what_a_pacer_waits_for_is_told_for_as_long_as_it_does() -> None:
    pacer = Pacer(0.02)
    paced = task(NotingMailbox(), pacers=[pacer])
    paced._set_gauges()
    ((what, seconds, kind),) = paced.metrics.report()["waits"]
    assert (what, round(seconds, 1), kind) == ("its turn", 1.5, "rate")
    assert paced.metrics.report()["waitingMs"] == 0, "it is no sign of trouble outside"
    pacer.left = 0.0
    paced._set_gauges()
    assert paced.metrics.report()["waits"] == []


def test_a_task_that_has_gone_quiet_waits_for_no_rate() -> None:
    paced = task(NotingMailbox(), pacers=[Pacer(0.02)])
    paced._set_gauges()
    paced._quiet = True
    paced._set_gauges()
    assert paced.metrics.report()["waits"] == []
