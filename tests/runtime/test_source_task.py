"""A source's task: when its splits count as read, so that those without records may be idle."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoint.coordination.coordinator_events import Heartbeat
from checkpoint.gate import GateOptions, SourceGate
from checkpoint.in_flight.restored_input import RestoredInput
from pipeline.runtime.subtask import letters
from pipeline.runtime.subtask.batch_in_hand import BatchInHand
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.source_task import SourceTask
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from sources import SourceReader


class EmptyReader(SourceReader):
    def poll(self, max_records: int, timeout: float) -> Any:
        return None

    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        return None


class Silent:
    """Stands for what the task tells something that doesn't matter here."""

    due = False
    next_turn = None

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class Looks(Silent):
    """Event time that notes what it is told of time, and has a letter come after some of the looks."""

    def __init__(self, mailbox: Mailbox, after: dict[int, letters.Letter]) -> None:
        self.held_up: list[bool] = []
        self._mailbox = mailbox
        self._after = after

    def on_clock(self, now: float, held_up: bool) -> None:
        self.held_up.append(held_up)
        letter = self._after.get(len(self.held_up))
        if letter is not None:
            self._mailbox.post(letter)

    def seconds_to_next(self, now: float) -> float:
        return 0.001


@pytest.mark.parametrize("drain", [False, True])
def test_a_source_that_waits_for_restored_data_to_drain_is_not_reading(drain: bool) -> None:
    mailbox, context = Mailbox(), Context(0, 1)
    start = letters.HeartbeatLetter(Heartbeat((), 1.0, None), {})
    looks = Looks(mailbox, {2: start, 5: letters.Drained(), 9: letters.Finish()})
    silent: Any = Silent()
    task = SourceTask(
        reader=EmptyReader(),
        make_gate=lambda now: SourceGate(GateOptions(None), now, 0),
        alignment_timeout=None,
        savepoint_alignment_timeout=None,
        name="orders[0]",
        chain=silent,
        context=context,
        writers=[],
        sinks={},
        checkpoints=silent,
        event_time=looks,
        hand=BatchInHand(context, mailbox, None),
        restored=RestoredInput(),
        entries={},
        drain=drain,
        mailbox=mailbox,
        coordinator=silent,
        metrics=TaskMetrics(),
        linger=0.05,
    )
    task.run()
    # The first three looks come before it has found that nothing was in flight here.
    assert looks.held_up == [True] * 3 + [drain] * 2 + [False] * 5
