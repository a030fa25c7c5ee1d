"""A virtual subtask with inputs, around the production barrier handler."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from checkpoint.barriers import events as events
from checkpoint.barriers.handler import BarrierHandler
from checkpoint.barriers.tracker import BarrierTracker
from checkpoint.elements import (
    BarrierElement,
    CancelMarker,
    ChannelName,
    Data,
    EdgeName,
    Element,
    EndOfInput,
    IdleStatus,
    RestoreBarrier,
    Watermark,
)
from checkpoint.event_time.combiner import WatermarkCombiner
from checkpoint.in_flight.captured import CapturedState
from checkpoint.in_flight.replay import RestoreBarrierCounter
from checkpoint.in_flight.restored_input import Entry, RestoredInput
from pipeline.partitioners import Distribution
from simulated.channel import Channel
from simulated.frames import records_of
from simulated.graph import Edge, Row, Step
from simulated.storage import SubtaskState
from simulated.subtask import Subtask

if TYPE_CHECKING:
    from simulated.attempt import Attempt


class LateRecord(AssertionError):
    """A watermark has promised that it doesn't come."""


class Operator(Subtask):
    """Passes rows on; a keyed one remembers them by key, and one with a broadcast input those that came there."""

    def __init__(
        self, attempt: Attempt, step: Step, index: int, number: int, restored: SubtaskState, entries: Iterable[Entry]
    ) -> None:
        super().__init__(attempt, step, index, number)
        self.restored = RestoredInput(entries)
        self.keyed = dict(restored.keyed)
        self.broadcast = restored.broadcast
        self.ended = False
        self._current: tuple[Channel | ChannelName, Data, int] | None = None
        """Where the batch in progress came from, and its next row."""
        self._announced: deque[tuple[Channel, BarrierElement]] = deque()
        """By the network thread, in order."""
        self._open: set[int] = set()
        self._handler: BarrierHandler | BarrierTracker
        self._replay: RestoreBarrierCounter | None = None
        self.event_time: WatermarkCombiner

    def connected(self) -> None:
        """All inputs are known."""
        now = self.scheduler.now
        self._open = set(range(len(self.inputs)))
        broadcast = [c.number for c in self.inputs if c.edge.distribution is Distribution.BROADCAST]
        if "broadcast_overtakes" in self.options.faults:
            broadcast = []
        if self.options.exactly_once:
            self._handler = BarrierHandler(len(self.inputs), now, broadcast)
        else:
            self._handler = BarrierTracker(len(self.inputs), now)
        self._replay = RestoreBarrierCounter(self._open)
        if "restore_barriers_overtake" in self.options.faults and self.attempt.drains:
            self.attempt.at_start(self.pass_restore_barrier)
        self.event_time = WatermarkCombiner([channel.name for channel in self.inputs])

    def restore_event_time(self, told: list[dict[str, Any]], holders: dict[EdgeName, set[int]]) -> None:
        """As the runtime does: what the same subtask knew, or what the old channels knew whose rows come here."""
        parallelism = self.attempt.parallelism[self.step.id]
        own = [one for one in told if one["subtask"] == self.index and one["parallelism"] == parallelism]
        if own and self.attempt.same_parallelisms:
            self.event_time.restore(own, True, ())
        else:
            old = set().union(*holders.values())
            some = [one for one in told if one["subtask"] in old]
            ids = [id for one in some for id, *_ in one["channels"]]
            virtual = [id for id in ids if id.downstream in (holders.get(id.edge) or old)]
            if "broadcast_channels_hold_nothing_back" in self.options.faults:
                virtual = [id for id in virtual if id.edge in holders]
            if "restored_watermarks_tell_for_new_channels" in self.options.faults:
                return
            self.event_time.restore(some, False, virtual)

    def start(self) -> None:
        if not self.restored:
            self._restored_used_up()

    # -- processing -----------------------------------------------------------------------------------------------

    @property
    def may_process(self) -> bool:
        return self.has_room or self._handler.holding

    def work(self) -> bool:
        if self._current is not None:
            if not self.may_process:
                return False
            self._process_row()
            return True
        if self.event_time.pending is not None and not self._handler.holding:
            return self._pass_watermark()
        if len(self._open) == 0 and not self.ended:
            self._end_input()
            return True
        if self.restored and not self._handler.holding and not self._passes_restored_over():
            entry = self.restored.take() if self.may_process else None
            if entry is None:
                return False
            self._take(*entry)
            if not self.restored and self._current is None:
                self._restored_used_up()
            return True
        return self._poll()

    def _passes_restored_over(self) -> bool:
        return "restored_data_not_first" in self.options.faults and self.rng.random() < 0.5

    def _poll(self) -> bool:
        room = self.may_process
        blocked = self._handler.blocked
        channels = [channel for channel in self.inputs if channel.number not in blocked and len(channel.input)]
        self.rng.shuffle(channels)
        for channel in channels:
            element = channel.input.take(data=room)
            if element is not None:
                if type(element) is Data:
                    channel.input_batches -= 1
                self._take(channel, element)
                return True
        return False

    def _take(self, origin: Channel | ChannelName, element: Element) -> None:
        match element:
            case Data():
                self._current = (origin, element, element.start)
                return
            case Watermark(timestamp):
                self._on_watermark(origin, timestamp)
            case IdleStatus(idle):
                name, restored = (origin.name, False) if isinstance(origin, Channel) else (origin, True)
                self.event_time.on_idle(name, idle, restored)
            case _ if not isinstance(origin, Channel):
                raise AssertionError(f"{element} was captured")
            case BarrierElement():
                barrier = element.aged(self.scheduler.now)
                self.scheduler.log("takes", origin.name, barrier)
                self._tell(events.BarrierArrived(origin.number, barrier))
            case CancelMarker(n):
                self._tell(events.CancelArrived(origin.number, n))
            case EndOfInput():
                self._open.discard(origin.number)
                self._tell(events.EndOfInputArrived(origin.number))
                self.event_time.on_end(origin.name)
            case RestoreBarrier():
                assert self._replay is not None
                if self._replay.delivered(origin.number):
                    self.pass_restore_barrier()

    def _on_watermark(self, origin: Channel | ChannelName, timestamp: int) -> None:
        if isinstance(origin, Channel):
            self.event_time.on_watermark(origin.name, timestamp)
        elif "restored_watermarks_tell_for_new_channels" in self.options.faults:
            its = [channel.name for channel in self.inputs if channel.edge.name == origin.edge]
            self.event_time.on_watermark(its[origin.upstream % len(its)], timestamp)
        else:
            self.event_time.on_watermark(origin, timestamp, restored=True)

    def _pass_watermark(self) -> bool:
        timestamp = self.event_time.pending
        if timestamp is None or not self.may_process:
            return False
        self.scheduler.log("watermark", self.name, timestamp)
        self.send_all(Watermark(timestamp))
        self.event_time.passed(timestamp)
        return True

    def _check_lateness(self, row: Row) -> None:
        reached = self.event_time.emitted
        if self.options.exactly_once and reached is not None and row.timestamp <= reached:
            raise LateRecord(f"{self.name}: {row} with timestamp {row.timestamp} comes behind watermark {reached}")

    def _process_row(self) -> None:
        assert self._current is not None
        origin, data, row = self._current
        edge = origin.edge if isinstance(origin, Channel) else self.attempt.edges[origin.edge]
        records = records_of(data, edge)
        last = row + 1 == len(records)
        self._current = None if last else (origin, data, row + 1)
        self._check_lateness(records[row])
        self.process(records[row], edge)
        if last and not isinstance(origin, Channel) and not self.restored:
            self._restored_used_up()

    def _restored_used_up(self) -> None:
        assert self._replay is not None
        self.event_time.end_restored()
        if "restore_barriers_overtake" not in self.options.faults and self._replay.restored_used_up():
            self.pass_restore_barrier()

    def process(self, row: Row, edge: Edge) -> None:
        if edge.distribution is Distribution.BROADCAST:
            self.broadcast = (*self.broadcast, row)
            row = row._replace(path=(*row.path, -1 - self.index))
        elif self.step.key is not None:
            key = self.step.key.of(row.split, row.sequence)
            self.keyed[key] = (*self.keyed.get(key, ()), row)
        self.emit(row)

    def _end_input(self) -> None:
        self.ended = True
        self.send_all(EndOfInput())
        self.attempt.report(self, ("ended",))

    # -- barriers -------------------------------------------------------------------------------------------------

    def announce(self, channel: Channel, element: BarrierElement) -> None:
        self._announced.append((channel, element))

    def read_announcement(self) -> bool:
        if not self._announced:
            return False
        channel, element = self._announced.popleft()
        self._tell(events.BarrierAnnounced(channel.number, element.aged(self.scheduler.now)))
        return True

    def tick(self) -> bool:
        due = self._handler.next_deadline(self.scheduler.now)
        if due is None or due > self.scheduler.now:
            return False
        self._tell(events.Tick())
        return True

    def deadline(self) -> float | None:
        return self._handler.next_deadline(self.scheduler.now)

    def _tell(self, event: events.Event) -> None:
        for action in self._handler.handle(event, self.scheduler.now):
            match action:
                case events.TakeSnapshot(barrier, unaligned):
                    self._put_back()
                    self.take_snapshot(barrier, unaligned)
                case events.CaptureChannel(n, channel):
                    self._capture(n, self.inputs[channel])
                case events.HoldInput():
                    self._put_back()
                case events.ForwardCancel(n, message):
                    self.cancel(n, message)
                case events.BlockChannel() | events.UnblockChannel() | events.ReleaseInput():
                    self.scheduler.log(self.name, action)

    def _put_back(self) -> None:
        """The rest of the batch in progress is in-flight input."""
        if self._current is None or "batch_in_progress_left" in self.options.faults:
            return
        origin, data, row = self._current
        self._current = None
        if isinstance(origin, Channel):
            origin.input.put_back(data.from_row(row))
            origin.input_batches += 1
        else:
            self.restored.put_back(origin, data.from_row(row))

    def _capture(self, n: int, channel: Channel) -> None:
        snapshot = self.snapshots[n]
        snapshot.open_inputs.add(channel.number)
        captured = channel.input.capture(n)
        if captured is not None:
            self.input_captured(n, channel, captured)

    def state(self, n: int) -> SubtaskState:
        captured = CapturedState(restored=self.restored.rest())
        if "restored_rest_joins_channels" in self.options.faults:
            for channel, element in captured.restored:
                captured.outputs.setdefault(channel, []).append(element)
            captured.restored = []
        place = {"subtask": self.index, "parallelism": self.attempt.parallelism[self.step.id]}
        watermarks = {**self.event_time.snapshot(), **place}
        return SubtaskState(captured, keyed=dict(self.keyed), broadcast=self.broadcast, watermarks=watermarks)

    # -- mail -----------------------------------------------------------------------------------------------------

    def handle(self, letter: tuple[Any, ...]) -> None:
        match letter:
            case ("aborted", n):
                self.forget(n)
                self._tell(events.CheckpointAborted(n))
