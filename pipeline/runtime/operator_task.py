"""A subtask that reads input channels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from checkpoint import barrier_events as events
from checkpoint.barriers import BarrierHandler
from checkpoint.batch import from_frame, rows
from pipeline.runtime import letters
from pipeline.runtime.channels import InputGate
from pipeline.runtime.frames import BarrierElement, CancelMarker, Data, EndOfInput
from pipeline.runtime.task import Task


class OperatorTask(Task):
    """Takes batches from its input gate and pushes their records through the chain; aligns barriers."""

    def __init__(self, *, gate: InputGate, keyed_channels: Sequence[bool], **common: Any):
        super().__init__(**common)
        self._gate = gate
        self._keyed_channels = keyed_channels
        self._keyed = False
        """Whether the batch in hand has keys."""
        self._handler = BarrierHandler(len(gate.channels), time.monotonic())
        self._open_channels = set(range(len(gate.channels)))
        self._values: list[Any] = []
        self._timestamps: list[int | None] | None = None
        self._keys: list[bytes] = []
        self._groups: list[int] = []
        self._row = 0
        self._batch_bytes = 0
        """Size of the frame that the batch in hand came in."""
        self._started = time.monotonic()

    def _step(self) -> None:
        room = self._may_process()
        if self._row < len(self._values):
            if room:
                self._process_rows()
            else:
                self._wait_for_room()
            return
        # Barriers are taken without room, too: a checkpoint must not wait for a sink's commits to catch up.
        polled = self._gate.poll(data=room)
        if polled is not None:
            self._take(*polled)
        elif room:
            self._wait_for_work()
        else:
            self._wait_for_room()

    def _take(self, channel: int, element: Any) -> None:
        match element:
            case Data(payload, size):
                self.metrics.bytes_in += size
                self._batch_bytes = size
                self._keyed = self._keyed_channels[channel]
                unpacked = rows(from_frame(payload, self._keyed))
                self._values, self._timestamps = unpacked.values, unpacked.timestamps
                if self._keyed:
                    assert unpacked.keys is not None
                    assert unpacked.key_groups is not None
                    self._keys, self._groups = unpacked.keys, unpacked.key_groups
                self._row = 0
            case BarrierElement(barrier):
                self._tell(events.BarrierArrived(channel, barrier))
            case CancelMarker(checkpoint_id):
                self._tell(events.CancelArrived(channel, checkpoint_id))
            case EndOfInput():
                self._open_channels.discard(channel)
                self._tell(events.EndOfInputArrived(channel))
                if not self._open_channels:
                    self._end_input()
            case _:
                raise RuntimeError(f"{self.name} can't handle a {type(element).__name__} in a channel")

    def _process_rows(self) -> None:
        """Push the rest of the batch in hand, until something asks for attention."""
        values, timestamps, mailbox = self._values, self._timestamps, self.mailbox
        context, push = self.context, self.chain.push
        first = row = self._row
        last = len(values)
        context.timestamp = None
        try:
            if self._keyed and self.backend is not None:
                keys, groups, select = self._keys, self._groups, self.backend.set_current_key
                while row < last and not mailbox.interrupt:
                    key = context.key_bytes = keys[row]
                    select(key, groups[row])
                    if timestamps is not None:
                        context.timestamp = timestamps[row]
                    push(values[row])
                    row += 1
                self.backend.clear_current_key()
            else:
                keys_or_none = self._keys if self._keyed else None
                context.key_bytes = None
                while row < last and not mailbox.interrupt:
                    if keys_or_none is not None:
                        context.key_bytes = keys_or_none[row]
                    if timestamps is not None:
                        context.timestamp = timestamps[row]
                    push(values[row])
                    row += 1
            self._leave_records()
        finally:
            self._row = row
            self.metrics.records_in += row - first
        if row == last:
            self._values, self._row = [], 0

    def _tell(self, event: events.Event) -> None:
        for action in self._handler.handle(event, time.monotonic()):
            match action:
                case events.BlockChannel(channel):
                    self._gate.block(channel)
                case events.UnblockChannel(channel):
                    self._gate.unblock(channel)
                case events.TakeSnapshot(barrier, _, alignment_seconds):
                    self._take_snapshot(barrier, alignment_seconds)
                case events.ForwardCancel(checkpoint_id, message):
                    self._give_up(checkpoint_id, message)
                case _:
                    raise RuntimeError(f"{self.name} can't carry out {action!r}")

    def _on_clock(self, now: float) -> None:
        rows = len(self._values)
        in_hand = self._batch_bytes * (rows - self._row) // rows if rows else 0
        self._gate.debloat(now, now - self._started - self.metrics.idle_s, in_hand)
        pending = self._handler.pending
        channels = self._gate.channels
        self.metrics.barriers = (
            {} if pending is None else {pending: [channels[i].id.upstream for i in self._handler.missing(pending)]}
        )

    def _set_gauges(self) -> None:
        super()._set_gauges()
        inputs = self._gate.statistics()
        self.metrics.gauge("bufferBudgetBytes", inputs.budget_bytes)
        seconds = inputs.estimated_time_to_consume
        self.metrics.gauge("estimatedTimeToConsumeMs", None if seconds is None else 1000 * seconds)

    def _in_flight_bytes(self) -> int:
        return self._gate.queued_bytes + super()._in_flight_bytes()

    def _on_resolved(self, checkpoint_id: int, completed: bool) -> None:
        if not completed:
            self._tell(events.CheckpointAborted(checkpoint_id))

    def _handle(self, letter: letters.Letter) -> None:
        if not isinstance(letter, letters.HeartbeatLetter | letters.Trigger):
            raise RuntimeError(f"{self.name} can't handle {letter!r}")

    def _head_state(self, checkpoint_id: int) -> dict[str, Any]:
        return {}
