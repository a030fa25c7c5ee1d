"""Both kinds of task without a job: what is behind them notes what it is told, and the clock stands still."""

from __future__ import annotations

from collections import deque
from typing import Any

from captures import channel
from chains import chain_of
from manual_system import ManualSystem
from option_values import gate_options

from checkpoint.barriers.events import Barrier
from checkpoint.barriers.handler import BarrierHandler
from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.config import CheckpointConfig
from checkpoint.coordination.coordinator_events import Heartbeat
from checkpoint.elements import BarrierElement
from checkpoint.gate.source_gate import SourceGate
from checkpoint.in_flight.restored_input import RestoredInput
from checkpoint.row_format import row_format
from pipeline.buffers import BufferConfig
from pipeline.runtime import protocol
from pipeline.runtime.network.frames import ChannelId
from pipeline.runtime.network.input_channels import InputChannels
from pipeline.runtime.subtask import mail
from pipeline.runtime.subtask.batch_in_progress import BatchInProgress
from pipeline.runtime.subtask.chain import ChainEntry
from pipeline.runtime.subtask.event_time.domains import TimeDomain
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.operator_task import OperatorTask
from pipeline.runtime.subtask.point_queries import PointQueries
from pipeline.runtime.subtask.source_task import SourceTask
from pipeline.runtime.subtask.task import Task
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from sources import SourceReader

PLAIN = row_format(carries_keys=False)
CHANNELS = [channel(upstream, 0) for upstream in (0, 1)]
CHAINED = channel(0, 0)._replace(edge=CHANNELS[0].edge._replace(downstream="behind"))
"""Where a step in the middle of the chain was a vertex of its own."""


class Waits(Mailbox):
    """Notes for how long it was asked to wait; the clock moves on by half of that."""

    def __init__(self, system: ManualSystem) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._clock = system

    def wait(self, timeout: float) -> None:
        self.waits.append(round(timeout, 6))
        self._clock.now += timeout / 2


class Times:
    """Event time that notes what it is told; due if a test says so."""

    def __init__(self, log: list[Any]) -> None:
        self.due = False
        self.next = 5.0
        self.held_up: list[bool] = []
        self._log = log

    def fire(self) -> None:
        self.due = False
        self._log.append("fired")

    def on_watermark(self, name: Any, timestamp: int, restored: bool) -> None:
        self._log.append(("watermark", name.upstream, timestamp, restored))

    def on_idle(self, name: Any, idle: bool, restored: bool) -> None:
        self._log.append(("idle", name.upstream, idle, restored))

    def on_end(self, name: Any) -> None:
        self._log.append(("end", name.upstream))

    def end_restored(self) -> None:
        self._log.append("all restored")

    def end_of_input(self) -> None:
        self._log.append("input ended")

    def resend(self) -> None:
        self._log.append("told again")

    def on_clock(self, now: float, held_up: bool, most: float = 0.0) -> None:
        self.held_up.append(held_up)

    def report(self, metrics: Any, waits: bool) -> None: ...

    def open(self) -> None:
        self._log.append("times open")

    def seconds_to_next(self, now: float) -> float:
        return self.next


class Driver:
    def __init__(self, log: list[Any]) -> None:
        self._log = log

    def report(self, message: Any) -> None:
        if not isinstance(message, protocol.Running):
            self._log.append(message)

    def entered(self, phase: str | None) -> None: ...

    def failed(self, error: BaseException, *, step: str | None) -> None:
        self._log.append(("failed", str(error)))


class Checkpoints:
    next_deadline = None

    def __init__(self, log: list[Any]) -> None:
        self.taken: list[dict[str, Any]] = []
        self.captured: list[Any] = []
        self.closed = False
        self._log = log

    def take(
        self, barrier: Barrier, unaligned: bool, alignment: float, capture: Any, head: Any, figures: Any, busy: bool
    ) -> None:
        what = {"unaligned": unaligned, "alignment": alignment, "capture": list(capture)}
        self.taken.append({"barrier": barrier, **what, "head": head, "figures": figures, "busy": busy})

    def give_up(self, checkpoint_id: int, message: str) -> None:
        self._log.append(("given up", checkpoint_id))

    def input_captured(self, *captured: Any) -> None:
        self.captured.append(captured)

    def make_overdue_unaligned(self, now: float) -> None: ...

    def completed(self, checkpoint_id: int) -> None:
        self._log.append(("copies", checkpoint_id))

    def aborted(self, checkpoint_id: int) -> None: ...

    def close(self) -> None:
        self.closed = True


class Edge:
    """An output edge; without room if a test says so."""

    queued_bytes = 3
    sent_bytes = records = overdraft_bytes = 0

    def __init__(self, log: list[Any]) -> None:
        self.has_room = True
        self.unsent = False
        self.flushes = 0
        self._log = log

    def broadcast(self, element: Any) -> None:
        self._log.append(element)

    def flush(self) -> None:
        self.flushes += 1


class Sink:
    records = 0
    hides_output = False
    accepts_records = True

    def __init__(self, log: list[Any]) -> None:
        self.fails: Exception | None = None
        self._log = log

    def start(self) -> None: ...

    def write_slice(self) -> None: ...

    def complete(self, checkpoint_id: int) -> None:
        self._log.append(("commit", checkpoint_id))

    def close(self) -> None:
        self._log.append("sink closed")
        if self.fails is not None:
            raise self.fails


class Rig:
    """What both kinds of task have; `log` has what comes out and what is told, in order."""

    task: Task

    def __init__(self, restored: Any, replay: bool, edge: bool, sinks: int) -> None:
        self.log: list[Any] = []
        self.system = ManualSystem()
        self.mailbox = Waits(self.system)
        self.times, self.checkpoints, self.edge = Times(self.log), Checkpoints(self.log), Edge(self.log)
        self.sinks = {f"out{i}": Sink(self.log) for i in range(sinks)}
        chain, record = chain_of(
            lambda stream: stream.map(lambda value: value, "map"),
            {("map", None): [self.take]},
            clock=self.system.monotonic,
        )
        behind = ChainEntry(lambda value: self.log.append(("behind", value)), PLAIN, TimeDomain("map"))
        self.restored = RestoredInput(restored)
        self.common: dict[str, Any] = {
            "name": "map[0]",
            "chain": chain,
            "writers": [self.edge] if edge else [],
            "sinks": self.sinks,
            "checkpoints": self.checkpoints,
            "event_time": self.times,
            "batch": BatchInProgress(record, self.mailbox, None),
            "restored": self.restored,
            "entries": {CHANNELS[0].edge: ChainEntry(chain.push, PLAIN), CHAINED.edge: behind},
            "replay": replay,
            "queries": PointQueries(None, lambda message: None, self.system.monotonic),
            "mailbox": self.mailbox,
            "driver": Driver(self.log),
            "metrics": TaskMetrics(self.system.monotonic),
            "linger": 0.05,
            "clock": self.system.monotonic,
        }
        self.interrupted_by: Any = None

    def take(self, value: Any) -> None:
        self.log.append(value)
        if value == self.interrupted_by:
            self.mailbox.interrupt = True

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.mailbox.interrupt = False
            self.task._step()

    def said(self) -> list[Any]:
        """What has come since it was asked last."""
        found, self.log[:] = list(self.log), []
        return found


class Operator(Rig):
    """A task with two input channels."""

    def __init__(self, restored: Any = (), replay: bool = False, edge: bool = True, sinks: int = 0) -> None:
        super().__init__(restored, replay, edge, sinks)
        ids = [ChannelId(0, i, 2) for i in (0, 1)]
        self.inputs = InputChannels(ids, BufferConfig(), lambda one: None, lambda: None)
        self.task: OperatorTask = OperatorTask(
            inputs=self.inputs, channels=CHANNELS, barriers=BarrierHandler(2, self.system.now), **self.common
        )

    def ready(self) -> Operator:
        self.step()
        assert self.said() == ["all restored"]
        return self

    def put(self, upstream: int, *elements: Any) -> None:
        for element in elements:
            self.inputs.channels[upstream].put(element)

    def barrier(self, upstream: int, checkpoint_id: int = 1, timeout: float | None = None) -> None:
        self.put(upstream, BarrierElement(Barrier(checkpoint_id, alignment_timeout=timeout), self.system.now))


class Reader(SourceReader):
    """Gives batches; notes what it is told."""

    def __init__(self, log: list[Any], *batches: Any) -> None:
        self.batches = deque(batches)
        self.polls: list[tuple[int, float]] = []
        self._log = log

    def poll(self, max_records: int, timeout: float) -> Any:
        self.polls.append((max_records, timeout))
        return self.batches.popleft() if self.batches else None

    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        return emitted

    def pause(self) -> None:
        self._log.append("paused")

    def resume(self) -> None:
        self._log.append("resumed")

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._log.append(("complete", checkpoint_id))

    def on_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._log.append(("aborted", checkpoint_id))

    def close(self) -> None:
        self._log.append("reader closed")


class Source(Rig):
    def __init__(
        self, *batches: Any, restored: Any = (), replay: bool = False, alignment: Any = 7.0, **gate: Any
    ) -> None:
        super().__init__(restored, replay, edge=True, sinks=0)
        self.reader = Reader(self.log, *batches)
        self.task: SourceTask = SourceTask(
            reader=self.reader,
            make_gate=lambda now: SourceGate(gate_options(**{"interval": None, **gate}), now, 0),
            config=CheckpointConfig("/checkpoints", alignment=alignment),
            **self.common,
        )

    def ready(self) -> Source:
        self.step()
        assert self.said() == ["all restored"]
        self.task._read(protocol.Heartbeat(Heartbeat((), 1.0, None)))
        return self

    def trigger(self, checkpoint_id: int, kind: Any = CheckpointKind.CHECKPOINT, age: float = 0.0, **more: Any) -> None:
        options = protocol.BarrierOptions(**more)
        message = protocol.Trigger(checkpoint_id, kind, options)
        self.task._read(mail.Triggered(message, self.system.now - age))
