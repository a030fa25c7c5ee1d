"""Rules of the production code, each broken on purpose: what the simulation checks has teeth only if that is found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from checkpoint.barriers.handler import BarrierHandler
from checkpoint.commit_log import CommitLog
from checkpoint.coordination.coordinator_events import NotifyComplete
from checkpoint.coordination.trigger_schedule import TriggerSchedule
from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.event_time.combiner import WatermarkCombiner
from checkpoint.in_flight.output_queue import OutputQueue
from checkpoint.in_flight.restored_input import RestoredInput
from checkpoint.state.timers import Timers
from checkpoint.storage import fencing
from checkpoint.storage.metadata import CheckpointMetadata
from jobs import steps
from pipeline import plan as plan_module
from pipeline.event_time_inputs import TimedInputs
from pipeline.runtime import restored_in_flight, topology_changes
from pipeline.runtime.driver import attempt as attempt_module
from pipeline.runtime.driver.checkpoints import DriverCheckpoints
from pipeline.runtime.driver.commit_progress import CommitProgress
from pipeline.runtime.network.network import Network
from pipeline.runtime.subtask.operator_task import OperatorTask
from pipeline.runtime.subtask.pending_snapshot import PendingSnapshot
from pipeline.runtime.subtask.record_writer import RecordWriter
from pipeline.runtime.subtask.snapshot_files import SnapshotFiles
from pipeline.runtime.subtask.task import Task
from pipeline.runtime.subtask.task_builder import TaskBuilder

FAULTS: dict[str, Callable[[], Any]] = {}
"""By name: what makes a context in which the rule is broken."""


def fault(make: Callable[[], Any]) -> Callable[[], Any]:
    FAULTS[make.__name__] = make
    return make


def _before(cls: type, method: str, action: Callable[..., Any]) -> Any:
    """`action` is called with the method's arguments first."""
    original = getattr(cls, method)

    def both(self: Any, *args: Any, **named: Any) -> Any:
        action(self, *args, **named)
        return original(self, *args, **named)

    return patch.object(cls, method, both)


def _after(cls: type, method: str, action: Callable[..., Any]) -> Any:
    """`action` is called with the object afterwards."""
    original = getattr(cls, method)

    def both(self: Any, *args: Any, **named: Any) -> Any:
        result = original(self, *args, **named)
        action(self)
        return result

    return patch.object(cls, method, both)


# -- snapshots and barriers -------------------------------------------------------------------------------------------


@fault
def half_built_batches_left() -> Any:
    def overtake(self: RecordWriter, barrier: Any, record: Any) -> None:
        for channel, name in zip(self.channels, self.names, strict=True):
            channel.overtake(barrier, partial(record, name))

    return patch.object(RecordWriter, "overtake", overtake)


@fault
def batch_in_progress_left() -> Any:
    return patch.object(Task, "_put_batch_back", lambda self: None)


@fault
def polled_counts_as_emitted() -> Any:
    original = steps._Reader.snapshot
    return patch.object(steps._Reader, "snapshot", lambda self, id, emitted: original(self, id, self._polled_rows))


@fault
def barriers_left_not_awaited() -> Any:
    original = PendingSnapshot.__init__

    def init(self: Any, barrier: Any, outputs: Any, *rest: Any) -> None:
        original(self, barrier, (), *rest)

    return patch.object(PendingSnapshot, "__init__", init)


@fault
def captures_not_awaited() -> Any:
    original = PendingSnapshot.__init__

    def init(self: Any, barrier: Any, outputs: Any, inputs: Any, *rest: Any) -> None:
        original(self, barrier, outputs, (), *rest)

    return patch.object(PendingSnapshot, "__init__", init)


@fault
@contextmanager
def broadcast_overtakes() -> Iterator[None]:
    original = Network.add_output

    def barriers(self: TaskBuilder, channels: list[Any]) -> BarrierHandler:
        return BarrierHandler(len(channels), self._system.monotonic(), [])

    with (
        patch.object(Network, "add_output", lambda self, channel, overtakes=True: original(self, channel, True)),
        patch.object(TaskBuilder, "_barriers", barriers),
    ):
        yield


@fault
def aligned_barriers_are_passed_by() -> Any:
    """A barrier that overtakes leaves the older ones in front of it aligned, so it comes to the receiver first."""
    return patch.object(OutputQueue, "make_unaligned", lambda self, checkpoint_id: {})


@fault
def asks_ignore_the_min_pause() -> Any:
    original = TriggerSchedule.ready_at.fget  # type: ignore[attr-defined]
    return patch.object(
        TriggerSchedule, "ready_at", property(lambda self: -math.inf if self._asked else original(self))
    )


# -- what was in flight ----------------------------------------------------------------------------------------------


@fault
def restored_data_not_first() -> Any:
    original = OperatorTask._take_restored
    turns = [0]

    def take(self: Any) -> None:
        turns[0] += 1
        if turns[0] % 2 and (polled := self._inputs.poll()) is not None:
            self._take(*polled)
        else:
            original(self)

    return patch.object(OperatorTask, "_take_restored", take)


@fault
def restored_rest_left() -> Any:
    return patch.object(RestoredInput, "rest", lambda self: [])


@fault
def restored_rest_joins_channels() -> Any:
    def join(self: PendingSnapshot) -> None:
        for channel, element in self.captured.restored:
            self.captured.outputs.setdefault(channel, []).append(element)
        self.captured.restored = []

    return _after(PendingSnapshot, "__init__", join)


@fault
def sources_do_not_wait_for_the_replay() -> Any:
    return patch.object(attempt_module, "must_replay", lambda *_: False)


@fault
def restore_barriers_overtake() -> Any:
    return patch.object(OperatorTask, "_on_start", lambda self: self._forward_restore_barrier())


@fault
def replaying_not_marked() -> Any:
    return _before(DriverCheckpoints, "tell", lambda self, event: setattr(self, "_replaying", lambda: False))


@fault
def forward_edges_carry_no_key_groups() -> Any:
    return patch.object(plan_module, "keeps_keys", lambda *_: False)


@fault
def changed_edges_are_taken_for_the_same() -> Any:
    """What was in flight on an edge that is spread otherwise now stays with the subtask that had it."""
    original = restored_in_flight._redistributions

    def redistributions(vertex: Any, plan: Any, old: Any, *rest: Any) -> Any:
        new = topology_changes.edge_shapes(plan)
        kept = {name: shape for name, shape in old.items() if shape.fingerprint == new[name].fingerprint}
        return original(vertex, plan, kept, *rest)

    return patch.object(restored_in_flight, "_redistributions", redistributions)


@fault
def leaving_out_in_flight_drops_state() -> Any:
    original = CheckpointMetadata.without_in_flight

    def without(self: CheckpointMetadata) -> CheckpointMetadata:
        left = original(self)
        vertices = {
            name: replace(
                vertex,
                subtasks=tuple(
                    replace(
                        subtask,
                        operators={id: replace(one, keyed_state=()) for id, one in subtask.operators.items()},
                    )
                    for subtask in vertex.subtasks
                ),
            )
            for name, vertex in left.vertices.items()
        }
        return replace(left, vertices=vertices)

    return patch.object(CheckpointMetadata, "without_in_flight", without)


# -- event time -------------------------------------------------------------------------------------------------------


@fault
def restored_watermarks_tell_for_new_channels() -> Any:
    original = WatermarkCombiner.restore

    def restore(self: WatermarkCombiner, states: Any, same_topology: bool, virtual: Any) -> None:
        if same_topology:
            original(self, states, same_topology, virtual)

    return patch.object(WatermarkCombiner, "restore", restore)


@fault
def broadcast_channels_hold_nothing_back() -> Any:
    original = WatermarkCombiner.restore

    def restore(self: WatermarkCombiner, states: Any, same_topology: bool, virtual: Any) -> None:
        original(self, states, same_topology, [id for id in virtual if not id.edge.upstream.startswith("rules")])

    return patch.object(WatermarkCombiner, "restore", restore)


@fault
def broadcast_inputs_left_out_of_event_time() -> Any:
    return patch.object(
        TimedInputs,
        "left_out",
        lambda self, vertex: [
            edge.name for edge in self._plan.inputs_of(vertex.index) if edge.upstream_step.startswith("rules")
        ],
    )


@fault
def timers_not_restored() -> Any:
    return patch.object(Timers, "restore", lambda self, *_: None)


@fault
@contextmanager
def timers_fire_behind_their_watermark() -> Iterator[None]:
    pop, due = Timers.pop, Timers.due

    def behind(now: int) -> int:
        return now if now == MAX_WATERMARK else now - 20

    with (
        patch.object(Timers, "pop", lambda self, now: pop(self, behind(now))),
        patch.object(Timers, "due", lambda self, now: due(self, behind(now))),
    ):
        yield


@fault
def idle_inputs_end_event_time() -> Any:
    original = WatermarkCombiner.on_idle

    def on_idle(self: WatermarkCombiner, channel: Any, idle: bool, restored: bool = False) -> None:
        original(self, channel, idle, restored)
        if idle:
            self.on_end(channel)

    return patch.object(WatermarkCombiner, "on_idle", on_idle)


@fault
def drains_not_marked() -> Any:
    """Event time that has ended in part is restored."""
    original = CheckpointMetadata.from_bytes
    return patch.object(CheckpointMetadata, "from_bytes", lambda data: replace(original(data), ended=False))


# -- sinks ------------------------------------------------------------------------------------------------------------


@fault
def committables_stay() -> Any:
    original = CommitLog.snapshot

    def snapshot(self: CommitLog) -> Any:
        newest = self._open.get(self._last, ())
        return {self._own: list(newest)} if original(self) else {}

    return patch.object(CommitLog, "snapshot", snapshot)


@fault
def aborted_segments_deleted() -> Any:
    def delete(self: DriverCheckpoints, id: int, *_: Any) -> None:
        one = self._checkpoints.get(id)
        for snapshot in one.snapshots.values() if one is not None else ():
            for handle in snapshot.all_files():
                if handle.path.startswith("shared/"):
                    self._c.start.storage._files.content.pop(self._c.start.storage._absolute(handle.path), None)

    return _before(DriverCheckpoints, "_abort", delete)


@fault
def new_epochs_not_held_back() -> Any:
    return _after(CommitLog, "__init__", lambda self: setattr(self, "_new_released", True))


@fault
def a_completion_commits_its_own_epoch_only() -> Any:
    """Where one notification got lost, its epoch is never committed."""
    original = CommitLog.complete

    def complete(self: CommitLog, checkpoint_id: int) -> None:
        for epoch in [epoch for epoch in self._open if epoch < checkpoint_id]:
            del self._open[epoch]
        original(self, checkpoint_id)

    return patch.object(CommitLog, "complete", complete)


@fault
def savepoints_commit() -> Any:
    return patch.object(NotifyComplete, "commits", property(lambda self: True))


@fault
def savepoints_refer_to_the_jobs_files() -> Any:
    return patch.object(SnapshotFiles, "gather", lambda self, barrier, step, snapshot: snapshot)


@fault
def the_job_ends_before_its_sinks_have_committed() -> Any:
    return patch.object(CommitProgress, "all_committed", lambda self, checkpoint_id: True)


@fault
def owners_not_checked() -> Any:
    return patch.object(fencing, "check", lambda *_: None)


@contextmanager
def broken(name: str) -> Iterator[frozenset[str]]:
    """A context in which the rule is broken; what a `Simulation` has to be given as its faults."""
    if name not in FAULTS:
        yield frozenset({name})
        return
    with FAULTS[name]():
        yield frozenset()
