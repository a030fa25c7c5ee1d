"""A subtask that reads input channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from checkpoint.barriers import events as events
from checkpoint.elements import (
    BarrierElement,
    CancelMarker,
    ChannelName,
    Data,
    EndOfInput,
    IdleStatus,
    InOrder,
    RestoreBarrier,
    Watermark,
)
from checkpoint.in_flight.replay import RestoreBarrierCounter
from pipeline.runtime import protocol
from pipeline.runtime.network.input_channels import InputChannels
from pipeline.runtime.subtask import mail
from pipeline.runtime.subtask.hot_keys import HotKeys
from pipeline.runtime.subtask.task import Task


class Barriers(Protocol):
    """`checkpoint.barriers.handler.BarrierHandler`, or `checkpoint.barriers.tracker.BarrierTracker`."""

    @property
    def pending(self) -> int | None: ...

    @property
    def holding(self) -> bool: ...

    def missing(self, checkpoint_id: int) -> tuple[int, ...]: ...

    def next_deadline(self, now: float) -> float | None: ...

    def handle(self, event: events.Event, now: float) -> list[events.Action]: ...


class OperatorTask(Task):
    """Takes batches from its input channels and pushes their records through the chain; carries out what the barrier
    handler asks for."""

    def __init__(
        self,
        *,
        inputs: InputChannels,
        channels: Sequence[ChannelName],
        barriers: Barriers,
        show_keys: bool = True,
        **common: Any,
    ):
        """
        Args:
            channels: their names, in the order of `inputs.channels`.
            show_keys: whether status may name the keys that have most of the records.
        """
        super().__init__(**common)
        self._inputs = inputs
        self._channels = channels
        self._entry_of = [self.entries[channel.edge] for channel in channels]
        self._barriers = barriers
        self._open_channels = set(channels)
        self._restore_barriers = RestoreBarrierCounter(channels)
        self._hot_keys = HotKeys(show_keys, self._clock())
        self._work_began = self._clock()
        self._processed_bytes = 0
        self._overhead_s = 0.0
        """Seconds that taking batches took, and looking around between them."""
        for channel, name in zip(inputs.channels, channels, strict=True):
            channel.on_captured = self._on_captured(name)

    def _on_captured(self, name: ChannelName) -> Any:
        return lambda checkpoint_id, elements: self.checkpoints.input_captured(name, checkpoint_id, elements)

    def _step(self) -> None:
        # While broadcast channels are read up to their barriers, all else waits, and outputs may be overdrawn.
        holding = self._barriers.holding
        if not holding and not self._may_process():
            self._step_without_room()
        elif self.batch:
            self._process_batch()
        elif holding:
            self._poll()
        elif self._time_due:
            self._fire()
        elif self._restoring:
            self._take_restored()
        elif self._input_ending and not self._input_ended:
            self._end_output()
        else:
            self._poll()

    def _step_without_room(self) -> None:
        # Barriers are taken without room, too: a checkpoint must not wait for a sink's commits to catch up.
        if not (self.batch or self.event_time.due or self._restoring):
            polled = self._inputs.poll(data=False)
            if polled is not None:
                self._take(*polled)
                return
        self._wait_for_room()

    def _look_around(self) -> None:
        if self.mailbox.mail:  # what it says takes time that no batch is to blame for
            super()._look_around()
            return
        started = self._clock()
        super()._look_around()
        self._overhead_s += self._clock() - started

    def _poll(self) -> None:
        started = self._clock()
        polled = self._inputs.poll()
        if polled is None:
            self._wait_for_work()
            return
        self._take(*polled)
        if self.batch:
            self._overhead_s += self._clock() - started

    def _take(self, channel: int, element: Any) -> None:
        match element:
            case Data():
                entry, new = self._entry_of[channel], element.unpacked is None  # else it was put back
                self.batch.take(element, channel, entry.format, entry.push)
                if new:
                    self.metrics.bytes_in += element.size
                    if element.unpacked.keys:
                        self._hot_keys.look(element.unpacked.keys)
            case Watermark() | IdleStatus() | RestoreBarrier():
                self._take_control(self._channels[channel], element)
            case BarrierElement(barrier):
                self._tell(events.BarrierArrived(channel, barrier))
            case CancelMarker(checkpoint_id):
                self._tell(events.CancelArrived(channel, checkpoint_id))
            case EndOfInput():
                self._tell(events.EndOfInputArrived(channel))
                self._take_control(self._channels[channel], element)
            case _:
                raise RuntimeError(f"{self.name} can't handle a {type(element).__name__} in a channel")

    def _take_control(self, channel: ChannelName, element: InOrder, restored: bool = False) -> None:
        match element:
            case RestoreBarrier():
                if self._restore_barriers.delivered(channel):
                    self._forward_restore_barrier()
            case EndOfInput():
                self._open_channels.discard(channel)
                self.event_time.on_end(channel)
                if not self._open_channels:
                    self._begin_end()
            case _:
                super()._take_control(channel, element, restored)

    def _process_batch(self) -> None:
        before = self.batch.bytes
        super()._process_batch()
        self._processed_bytes += before - self.batch.bytes

    def _put_back(self, channel: int, element: Data) -> None:
        self._inputs.put_back(channel, element)

    def _on_restored(self) -> None:
        if self._restore_barriers.restored_used_up():
            self._forward_restore_barrier()

    # -- barriers ---------------------------------------------------------------------------------------------------

    def _tell(self, event: events.Event) -> None:
        actions = self._barriers.handle(event, self._clock())
        for action in actions:
            match action:
                case events.BlockChannel(channel):
                    self._inputs.block(channel)
                case events.UnblockChannel(channel):
                    self._inputs.unblock(channel)
                case events.HoldInput():
                    self._put_batch_back()
                case events.ReleaseInput():
                    pass  # asked for at each step
                case events.TakeSnapshot(barrier, unaligned, alignment):
                    n = barrier.checkpoint_id
                    captured = [
                        self._channels[a.channel]
                        for a in actions
                        if isinstance(a, events.CaptureChannel) and a.checkpoint_id == n
                    ]
                    self._take_snapshot(barrier, unaligned, alignment, captured)
                case events.CaptureChannel(checkpoint_id, channel):
                    elements = self._inputs.channels[channel].capture(checkpoint_id)
                    if elements is not None:
                        self.checkpoints.input_captured(self._channels[channel], checkpoint_id, elements)
                case events.ForwardCancel(checkpoint_id, message):
                    self.checkpoints.give_up(checkpoint_id, message)

    def _on_clock(self, now: float) -> None:
        deadline = self._barriers.next_deadline(now)
        if deadline is not None and now >= deadline:
            self._tell(events.Tick())
        self.event_time.on_clock(now, held_up=not self._may_process())
        active = now - self._work_began - self.metrics.idle_s
        self._inputs.debloat(now, active, self._overhead_s, self._processed_bytes)
        pending = self._barriers.pending
        channels = self._inputs.channels
        self.metrics.barriers = (
            {} if pending is None else {pending: [channels[i].id.upstream for i in self._barriers.missing(pending)]}
        )

    def _next_deadline(self, now: float) -> float | None:
        deadlines = (super()._next_deadline(now), self._barriers.next_deadline(now))
        return min((one for one in deadlines if one is not None), default=None)

    def _set_gauges(self) -> None:
        super()._set_gauges()
        inputs = self._inputs.statistics()
        self.metrics.gauge("bufferBudgetBytes", inputs.budget_bytes)
        seconds = inputs.estimated_time_to_consume
        self.metrics.gauge("estimatedTimeToConsumeMs", None if seconds is None else 1000 * seconds)
        self.metrics.hot_keys = self._hot_keys.told(self._clock())

    def _in_flight_bytes(self) -> int:
        return self._inputs.queued_bytes + super()._in_flight_bytes()

    def _on_resolved(self, checkpoint_id: int, completed: bool) -> None:
        if not completed:
            for channel in self._inputs.channels:
                channel.cancel_capture(checkpoint_id)
            self._tell(events.CheckpointAborted(checkpoint_id))

    def _handle(self, received: mail.Mail) -> None:
        match received:
            case mail.BarrierSeen(channel, element):
                self._tell(events.BarrierAnnounced(channel, element.aged(self._clock())))
            case (
                protocol.Heartbeat()
                | mail.Triggered()
                | protocol.BarrierPassed()
                | protocol.ReplayEnded()
                | protocol.EndInput()
            ):
                pass  # for sources
            case _:
                raise RuntimeError(f"{self.name} can't handle {received!r}")
