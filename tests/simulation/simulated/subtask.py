"""What every virtual subtask does: it has outputs, takes snapshots and reads its mail."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checkpoint.barriers.events import Barrier
from checkpoint.elements import BarrierElement, CancelMarker, Element, InFlight, RestoreBarrier
from checkpoint.key_groups import subtask_of
from pipeline.partitioners import Distribution, rescale_targets
from simulated.channel import Channel
from simulated.frames import batch
from simulated.graph import MAX_PARALLELISM, Edge, Row, Step, group_of
from simulated.storage import SubtaskState

if TYPE_CHECKING:
    from simulated.attempt import Attempt


@dataclass
class PendingSnapshot:
    """A snapshot that is not acknowledged."""

    state: SubtaskState
    open_inputs: set[int] = field(default_factory=set)
    """Channels on which the barrier has not arrived."""
    outputs: set[Channel] = field(default_factory=set)
    """Channels whose output queue the barrier has not left."""
    written: bool = False


@dataclass
class OutputEdge:
    edge: Edge
    channels: dict[int, Channel]
    """By downstream subtask."""
    shares: list[int]
    """Downstream subtasks of a rescale or rebalance edge, in turn."""
    turn: int = 0

    def targets(self, row: Row, upstream: int, parallelism: int) -> Iterable[int]:
        match self.edge.distribution:
            case Distribution.KEYED:
                assert self.edge.key is not None
                group = group_of(self.edge.key.of(row.split, row.sequence))
                return (subtask_of(group, parallelism, MAX_PARALLELISM),)
            case Distribution.CUSTOM:
                return (custom(self.edge, row, parallelism),)
            case Distribution.FORWARD:
                return (upstream,)
            case Distribution.BROADCAST:
                return range(parallelism)
        self.turn += 1
        return (self.shares[self.turn % len(self.shares)],)


def custom(edge: Edge, row: Row, parallelism: int) -> int:
    """What the user's function of a custom edge says."""
    assert edge.key is not None
    return edge.key.of(row.split, row.sequence) % parallelism


def shares(edge: Edge, upstream: int, upstreams: int, downstreams: int) -> list[int]:
    """The downstream subtasks that an upstream subtask has channels to."""
    if edge.distribution is Distribution.FORWARD:
        return [upstream]
    if edge.distribution is Distribution.RESCALE:
        return list(rescale_targets(upstream, upstreams, downstreams))
    return list(range(downstreams))


class Subtask:
    def __init__(self, attempt: Attempt, step: Step, index: int, number: int) -> None:
        """
        Args:
            index: within the step.
            number: within the job.
        """
        self.attempt = attempt
        self.step = step
        self.index = index
        self.number = number
        self.name = f"{step.id}-{index}"
        self.options = attempt.options
        self.scheduler = attempt.scheduler
        self.rng = attempt.scheduler.rng
        self.mail: deque[tuple[Any, ...]] = deque()
        """From the driver, in order."""
        self.inputs: list[Channel] = []
        self.outputs: list[OutputEdge] = []
        self.output_channels: list[Channel] = []
        self.snapshots: dict[int, PendingSnapshot] = {}
        self._turning: list[tuple[float, int]] = []
        """When aligned barriers in the output queues turn unaligned, and which."""

    # -- outputs --------------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        most = self.options.output_room
        return all(channel.output_batches < most for channel in self.output_channels)

    def emit(self, row: Row) -> None:
        for output in self.outputs:
            sent = row._replace(path=(*row.path, output.edge.index))
            for target in output.targets(sent, self.index, self.attempt.parallelism[output.edge.name.downstream]):
                channel = output.channels[target]
                channel.building.append(sent)
                if len(channel.building) >= self.options.batch_rows:
                    self._seal(channel)

    def send_all(self, element: Element) -> None:
        """Behind everything on every output."""
        self.seal()
        for channel in self.output_channels:
            channel.append(element)

    def seal(self) -> bool:
        building = [channel for channel in self.output_channels if channel.building]
        for channel in building:
            self._seal(channel)
        return bool(building)

    def _seal(self, channel: Channel) -> None:
        channel.append(batch(channel.building))
        channel.building = []

    @property
    def span(self) -> tuple[int | None, bool]:
        """Of a source: records since its last barrier, and whether it would have emitted more."""
        return None, False

    # -- snapshots ------------------------------------------------------------------------------------------------

    def take_snapshot(self, barrier: Barrier, unaligned: bool) -> PendingSnapshot:
        n = barrier.checkpoint_id
        now = self.scheduler.now
        self.scheduler.log("snapshot", self.name, n, "unaligned" if unaligned else "aligned")
        self.attempt.happened("snapshot")
        if "half_built_batches_left" not in self.options.faults:
            self.seal()
        snapshot = self.snapshots[n] = PendingSnapshot(self.state(n))
        snapshot.outputs = set(self.output_channels)
        for channel in self.output_channels:
            element = BarrierElement(barrier, at=now)
            if unaligned:
                self.keep(channel, channel.output.overtake(element))
            else:
                channel.append(element)
                if barrier.alignment_timeout is not None:
                    self._turning.append((now + barrier.alignment_timeout - barrier.age, n))
        self.attempt.report(self, ("taken", n, *self.span))
        self.attempt.write(self, n)
        return snapshot

    def keep(self, channel: Channel, captured: dict[int, list[InFlight]]) -> None:
        """What barriers have overtaken in an output queue is part of their snapshots."""
        for n, elements in captured.items():
            self.scheduler.log("overtook", channel.name, n, elements)
            if n in self.snapshots:
                self.snapshots[n].state.captured.outputs[channel.name] = elements

    def turn_due(self) -> bool:
        """Turn aligned barriers that have waited in an output queue for too long."""
        due = [n for at, n in self._turning if at <= self.scheduler.now]
        if not due:
            return False
        self._turning = [(at, n) for at, n in self._turning if n not in due]
        for channel in self.output_channels:
            self.keep(channel, channel.output.make_unaligned(max(due)))
        return True

    def turn_deadline(self) -> float | None:
        return min((at for at, _ in self._turning), default=None)

    def barrier_left(self, n: int, channel: Channel) -> None:
        snapshot = self.snapshots.get(n)
        if snapshot is not None:
            snapshot.outputs.discard(channel)
            self.acknowledge(n)

    def input_captured(self, n: int, channel: Channel, elements: list[InFlight]) -> None:
        snapshot = self.snapshots.get(n)
        if snapshot is not None:
            self.scheduler.log("captured", channel.name, n, elements)
            snapshot.open_inputs.discard(channel.number)
            snapshot.state.captured.inputs[channel.name] = elements
            self.acknowledge(n)

    def written(self, n: int, succeeded: bool) -> None:
        snapshot = self.snapshots.get(n)
        if snapshot is None:
            return
        if succeeded:
            snapshot.written = True
            self.acknowledge(n)
        else:
            self.forget(n)
            self.attempt.report(self, ("async failed", n))

    def acknowledge(self, n: int) -> None:
        snapshot = self.snapshots[n]
        waits = snapshot.outputs if "barriers_left_not_awaited" not in self.options.faults else ()
        if snapshot.written and not snapshot.open_inputs and not waits:
            del self.snapshots[n]
            self.scheduler.log("acknowledges", self.name, n)
            self.attempt.report(self, ("acknowledged", n, snapshot.state))

    def forget(self, n: int) -> None:
        """The checkpoint is given up."""
        if self.snapshots.pop(n, None) is not None:
            for channel in self.inputs:
                channel.input.cancel(n)

    def state(self, n: int) -> SubtaskState:
        raise NotImplementedError

    # -- mail -----------------------------------------------------------------------------------------------------

    def read_mail(self) -> bool:
        if not self.mail:
            return False
        letter = self.mail.popleft()
        self.scheduler.log("mail", self.name, letter)
        self.handle(letter)
        return True

    def handle(self, letter: tuple[Any, ...]) -> None:
        raise NotImplementedError

    def announce(self, channel: Channel, element: BarrierElement) -> None:
        """A barrier has arrived at an input."""
        raise NotImplementedError

    def work(self) -> bool:
        raise NotImplementedError

    def pass_restore_barrier(self) -> None:
        if self.output_channels:
            self.send_all(RestoreBarrier())
        else:
            self.attempt.report(self, ("replayed",))

    def cancel(self, n: int, message: str) -> None:
        """Give a checkpoint up from here on."""
        self.scheduler.log("cancels", self.name, n, message)
        self.forget(n)
        self.attempt.report(self, ("declined", n, message))
        self.send_all(CancelMarker(n))
