"""A subtask that reads a source, behind its gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from checkpoint.barriers.events import Barrier
from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.config import CheckpointConfig
from checkpoint.gate import gate_events as events
from checkpoint.gate.source_gate import SourceGate
from formats.arrow_rows import rows
from pipeline.runtime import protocol
from pipeline.runtime.subtask import mail
from pipeline.runtime.subtask.slices import SliceSize
from pipeline.runtime.subtask.task import Task
from sources.source import MAX_FETCH_RECORDS, End, SourceBatch, SourceReader

_POLL_SECONDS = 0.01
"""A source can't be woken by mail while it polls, so it never waits for longer."""
_GUESSED_BYTES = 100
"""Size of a record whose source doesn't tell."""
_HELD_UP_SECONDS = 1.0
"""Without a poll for so long a source counts as held up, by what its records go through. Each poll counts for so long
at most, so that splits fall idle where every record takes longer, too."""


class SourceTask(Task):
    """Polls a reader and pushes its records through the chain, stopping where the gate says so."""

    def __init__(
        self,
        *,
        reader: SourceReader,
        make_gate: Callable[[float], SourceGate],
        config: CheckpointConfig,
        **common: Any,
    ):
        """
        Args:
            make_gate: takes the clock's value now.
            config: says how long barriers that begin here align.
        """
        super().__init__(**common)
        self._reader = reader
        self._gate = make_gate(self._clock())
        self._config = config
        self._options: dict[int, protocol.BarrierOptions] = {}
        """Options of checkpoints in progress; ordinary ones have no options."""
        self._stopped_by: int | None = None
        """Checkpoint that the job is to end with: nothing may be emitted behind its barrier."""
        self._told_to_end = False
        self._awaits_replay = self.replay
        """Nothing new may be emitted before what was in flight has gone through the job."""
        self._values: list[Any] | pa.RecordBatch = []
        self._timestamps: list[int | None] | None = None
        self._row = 0
        self._slice = SliceSize()
        """How many rows of a record batch are pushed at once."""
        self._bytes_per_record = 0.0
        self._paused = False
        self._held_up = False
        """It has waited for room in its output queues since its last barrier."""
        self._polled_at = self._clock_at = self._clock()

    def _step(self) -> None:
        if not self._may_process():
            self._held_up = True
            self._wait_for_room()
        elif self.batch:
            self._process_batch()
        elif self._time_due:
            self._fire()
        elif self._restoring:
            self._take_restored()
        elif self._awaits_replay or self._stopped_by is not None or self._input_ended:
            self._wait_for_work()
        elif self._input_ending:
            self._end_output()
        elif self._told_to_end:
            self._begin_end()
        elif not self._gate.is_open:
            self._wait_while_closed()
        elif self._row < len(self._values):
            self._emit_rows()
        else:
            self._poll()

    def _poll(self) -> None:
        allowance = self._gate.record_allowance()
        most = MAX_FETCH_RECORDS if allowance is None else max(1, min(MAX_FETCH_RECORDS, allowance))
        started = self._clock()
        taken = self._take(self._reader.poll(most, _POLL_SECONDS))
        self._polled_at = self._clock()
        if not taken:
            self.metrics.idle_s += self._polled_at - started

    def _take(self, polled: SourceBatch | list[Any] | pa.RecordBatch | End | None) -> bool:
        """Begin with what was polled; whether there was anything."""
        self._values, self._row = [], 0
        if polled is None:
            return False
        if isinstance(polled, End):
            self._begin_end()
            return True
        if isinstance(polled, SourceBatch):
            batch = polled
        elif isinstance(polled, list):
            batch = SourceBatch(polled)
        elif isinstance(polled, pa.RecordBatch):
            batch = SourceBatch(polled, size=polled.nbytes)
        else:
            raise TypeError(
                f"{type(self._reader).__name__}.poll returned a {type(polled).__name__}; it must return a SourceBatch, "
                "a list, a record batch, END or None"
            )
        values = batch.values
        if isinstance(values, pa.RecordBatch) and self.chain.push_batch is None:
            values = rows(values)
        self._values, self._timestamps = values, batch.timestamps
        self.chain.record.source_rows = batch.context
        self.chain.record.source_splits = batch.splits
        self._bytes_per_record = batch.size / len(batch) if batch.size and len(batch) else _GUESSED_BYTES
        self.metrics.bytes_in += batch.size
        return True

    def _emit_rows(self) -> None:
        """Push the rest of the batch in progress, until something asks for attention."""
        first = self._row
        try:
            if isinstance(self._values, list):
                self._push_rows(self._values)
            else:
                self._push_slices(self._values)
            self._leave_records()
        finally:
            emitted = self._row - first
            self.metrics.records_in += emitted
        if emitted:
            now = self._clock()
            self._act(self._gate.handle(events.Emitted(emitted, int(emitted * self._bytes_per_record)), now))

    def _push_rows(self, values: list[Any]) -> None:
        timestamps, mailbox = self._timestamps, self.mailbox
        record, push = self.chain.record, self.chain.push
        row, last = self._row, len(values)
        record.timestamp = None
        try:
            while row < last and not mailbox.interrupt:
                record.row = row
                if timestamps is not None:
                    record.timestamp = timestamps[row]
                push(values[row])
                row += 1
        finally:
            self._row = row

    def _push_slices(self, batch: pa.RecordBatch) -> None:
        """A barrier waits for one slice at most."""
        timestamps, record, push = self._timestamps, self.chain.record, self.chain.push_batch
        assert push is not None
        last = len(batch)
        while self._row < last and not self.mailbox.interrupt:
            rows = min(self._slice.rows, last - self._row)
            started = self._clock()
            record.row = self._row
            record.timestamp = None
            end = self._row + rows
            push(batch.slice(self._row, rows), None if timestamps is None else timestamps[self._row : end])
            self._slice.took(rows, self._clock() - started)
            self._row = end

    def _wait_while_closed(self) -> None:
        # A reader without a batch in progress is still polled, so that it can serve its callbacks.
        if self._row >= len(self._values) and not self._input_ending:
            self._take(self._reader.poll(1, 0.0))
        started = self._clock()
        self.mailbox.wait(_POLL_SECONDS)
        self.metrics.gate_closed_s += self._clock() - started

    # -- gate ---------------------------------------------------------------------------------------------------

    def _act(self, actions: list[events.Action]) -> None:
        for action in actions:
            match action:
                case events.CloseGate():
                    if not self._paused and not self._input_ending:
                        self._paused = True
                        self._reader.pause()
                case events.OpenGate():
                    if self._paused:
                        self._paused = False
                        self._reader.resume()
                case events.AskForCheckpoint(last_barrier):
                    self.driver.report(protocol.CheckpointAsked(last_barrier))
                case events.TakeBarrier(checkpoint_id, kind):
                    self._take_barrier(checkpoint_id, kind)

    def _take_barrier(self, checkpoint_id: int, kind: CheckpointKind, age: float = 0.0) -> None:
        if not self._gate.admits_trigger(checkpoint_id):
            return
        options = self._options.get(checkpoint_id, protocol.BarrierOptions())
        timeout = self._config.alignment_timeout_of(kind, stops=options.stop, unaligned=options.unaligned)
        barrier = Barrier(checkpoint_id, kind, timeout, age, options.target)
        if options.stop:
            self._stopped_by = checkpoint_id
        self._take_snapshot(
            barrier,
            barrier.unaligned,
            alignment=0.0,
            head_state={"source": self._reader.snapshot(checkpoint_id, self._row)},
            statistics={"span_records": self._gate.span_records, "span_bytes": self._gate.span_bytes},
            busy=self._gate.busy(self._held_up),
        )
        taken = events.BarrierTaken(checkpoint_id, kind, self._held_up)
        if kind is not CheckpointKind.SAVEPOINT:
            self._held_up = False
        self._act(self._gate.handle(taken, self._clock()))

    def _on_start(self) -> None:
        self._act(self._gate.handle(events.ReadingBegins(), self._clock()))

    def _on_restored(self) -> None:
        self._forward_restore_barrier()

    def _on_clock(self, now: float) -> None:
        # A source that may not read, finds no room, or waits for brokers that are down, is not idle.
        waits = self._restoring or self._awaits_replay or self._stopped_by is not None or bool(self.metrics.waiting)
        looked = now - self._polled_at < _HELD_UP_SECONDS or self._polled_at >= self._clock_at
        reads = self._gate.is_open and not waits and self._may_process() and looked
        self.event_time.on_clock(now, held_up=not reads, most=_HELD_UP_SECONDS)
        self._clock_at = now
        if self._started:
            self._act(self._gate.handle(events.Tick(), now))
        self.metrics.gauge("sourceGateReason", self._gate.reason)

    def _set_gauges(self) -> None:
        super()._set_gauges()
        self.metrics.gauge("spanRecords", self._gate.span_records)
        self.metrics.gauge("gateWindowRecords", self._gate.window_records)
        self.metrics.gauge("gateWindowChange", self._gate.window_change)

    def _on_resolved(self, checkpoint_id: int, completed: bool) -> None:
        if completed:
            self._reader.on_checkpoint_complete(checkpoint_id)
        else:
            self._reader.on_checkpoint_aborted(checkpoint_id)
            if self._stopped_by == checkpoint_id:
                self._stopped_by = None
        self._options.pop(checkpoint_id, None)
        self._act(self._gate.handle(events.CheckpointResolved(checkpoint_id, completed), self._clock()))

    def _handle(self, received: mail.Mail) -> None:
        match received:
            case mail.Triggered(protocol.Trigger(checkpoint_id, kind, options), at):
                self._options[checkpoint_id] = options
                self._take_barrier(checkpoint_id, kind, self._clock() - at)
            case protocol.BarrierPassed(event):
                self._act(self._gate.handle(event, self._clock()))
            case protocol.ReplayEnded():
                self._awaits_replay = False
            case protocol.EndInput():
                self._told_to_end = True
            case protocol.Heartbeat(facts, options):
                self._options.update(options)
                self._act(self._gate.handle(events.HeartbeatReceived(facts), self._clock()))
            case _:
                raise RuntimeError(f"{self.name} can't handle {received!r}")

    def _close_input(self) -> None:
        self._reader.close()
