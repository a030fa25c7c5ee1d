"""Where a task's records go: into the channels of its output edges, and into its sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from checkpoint.elements import Element
from pipeline.runtime import protocol
from pipeline.runtime.subtask import mail
from pipeline.runtime.subtask.record_writer import RecordWriter
from pipeline.runtime.subtask.sink_driver import SinkDriver
from pipeline.runtime.subtask.task_metrics import TaskMetrics


class Driver(Protocol):
    """How a task talks to the driver. Thread-safe; never blocks for long."""

    def report(self, message: protocol.ToDriver) -> None: ...

    def entered(self, phase: str | None) -> None: ...

    def failed(self, error: BaseException, *, step: str | None) -> None: ...


class TaskOutput:
    """Used by the task thread, but for what says otherwise."""

    def __init__(
        self, writers: Sequence[RecordWriter], sinks: Mapping[str, SinkDriver], driver: Driver, linger: float
    ) -> None:
        """
        Args:
            linger: seconds after which records are sent that don't fill a batch.
        """
        self._writers = writers
        self._sinks = sinks
        self._driver = driver
        self._linger = linger
        self._next_flush = 0.0
        self._opened: dict[str, mail.CommittersOpened] = {}
        self._awaits_output = any(sink.hides_output for sink in sinks.values())
        """The first checkpoint is taken as soon as there is output for it."""

    # -- begin and end ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """The driver hears that the subtask runs, now or once all committers are open."""
        for sink in self._sinks.values():
            sink.start()
        if self._sinks:
            self._driver.entered("is opening the committers of " + ", ".join(map(repr, self._sinks)))
        else:
            self._driver.report(protocol.Running())

    def committers_opened(self, opened: mail.CommittersOpened) -> None:
        self._opened[opened.step] = opened
        if len(self._opened) == len(self._sinks):
            highest = max(one.highest_checkpoint for one in self._opened.values())
            epochs = {id: one.restored_epochs for id, one in self._opened.items()}
            self._driver.report(protocol.Running(highest, epochs))

    @property
    def closes(self) -> list[Callable[[], None]]:
        """What is to be called at the end, also if one of it fails."""
        return [sink.close for sink in self._sinks.values()]

    # -- records ------------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether there is room in all channels for what another record emits; sinks have another limit."""
        return all(writer.has_room for writer in self._writers)

    @property
    def sinks_accept(self) -> bool:
        """See `SinkDriver.accepts_records`."""
        return all(sink.accepts_records for sink in self._sinks.values())

    @property
    def has_channels(self) -> bool:
        return bool(self._writers)

    def broadcast(self, element: Element) -> None:
        """Into every channel, behind what was written."""
        for writer in self._writers:
            writer.broadcast(element)

    def flush_overdue(self, now: float) -> None:
        """Send what has lingered for long enough."""
        if now >= self._next_flush:
            for writer in self._writers:
                writer.flush()
            self._next_flush = now + self._linger

    def next_flush(self) -> float | None:
        """When to send what isn't sent yet, a clock value; `None`: all is."""
        return self._next_flush if any(writer.unsent for writer in self._writers) else None

    def write_slices(self) -> None:
        """The record loop is left: sinks get what is held back for them."""
        for sink in self._sinks.values():
            sink.write_slice()
        if self._awaits_output and any(sink.records for sink in self._sinks.values() if sink.hides_output):
            self._awaits_output = False
            self._driver.report(protocol.OutputBegan())

    # -- commits ------------------------------------------------------------------------------------------------

    def commit(self, checkpoint_id: int) -> None:
        """It is complete, and sinks commit it."""
        for sink in self._sinks.values():
            sink.complete(checkpoint_id)

    def release_epoch(self, step: str, epoch: int) -> None:
        self._sinks[step].release_epoch(epoch)

    def release_new(self, step: str) -> None:
        self._sinks[step].release_new()

    # -- figures ------------------------------------------------------------------------------------------------

    def queued_bytes(self) -> int:
        """From any thread."""
        return sum(writer.queued_bytes for writer in self._writers)

    def set_gauges(self, metrics: TaskMetrics) -> None:
        metrics.bytes_out = sum(writer.sent_bytes for writer in self._writers)
        to_sinks = sum(sink.records for sink in self._sinks.values())
        metrics.records_out = sum(writer.records for writer in self._writers) + to_sinks
        metrics.gauge("recordsToSinks", to_sinks)
        metrics.gauge("overdraftBytes", max((writer.overdraft_bytes for writer in self._writers), default=0))
