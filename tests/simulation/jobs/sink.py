"""A sink for the output system: segments staged in the checkpoint storage, committed under a marker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from checkpoint.codec import decode, encode
from jobs.graph import Row, Step
from jobs.world import WORLDS, World
from sinks.kafka.errors import MarkerLost
from sinks.kafka.marker import Marker
from sinks.kafka.recovery import KafkaRecovery, recover
from sinks.sink import Committable, Committer, CommitterContext, Sink, SinkBatch, SinkWriter, WriterContext

_SEGMENT_ROWS = 3


class Staged(Sink):
    needs_checkpoints = True

    def __init__(self, world: str, step: Step) -> None:
        self.world = world
        self.step = step

    def create_writer(self, ctx: WriterContext) -> SinkWriter:
        kind = _Writer if self.step.number % 2 else _BatchWriter
        return kind(WORLDS[self.world], self.step, ctx)

    def create_committer(self, ctx: CommitterContext) -> Committer:
        return SimulatedCommitter(WORLDS[self.world], ctx)


class _Writer(SinkWriter):
    def __init__(self, world: World, step: Step, ctx: WriterContext) -> None:
        self._world = world
        self._step = step
        self._staging = ctx.staging
        self._rows: list[list[Any]] = []

    def write(self, value: Any, ctx: Any) -> None:
        self._world.pause(0.2, self._step.id)
        _, row = self._world.received(self._step.id, value, ctx)
        self._rows.append([row.split, row.sequence, list(row.path)])

    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        rows, self._rows = self._rows, []
        found = []
        for start in range(0, len(rows), _SEGMENT_ROWS):
            file = self._staging.create("segment")
            file.write(encode(rows[start : start + _SEGMENT_ROWS]))
            found.append((None, [file.close()]))
        return found


class _At:
    """A record's context, as far as a batch tells."""

    watermark = None

    def __init__(self, timestamp: int | None) -> None:
        self.timestamp = timestamp


class _BatchWriter(_Writer):
    def write_batch(self, batch: SinkBatch) -> None:
        self._world.pause(0.5, self._step.id)
        for value, timestamp in zip(batch.values, batch.timestamps, strict=True):
            _, row = self._world.received(self._step.id, value, _At(timestamp))
            self._rows.append([row.split, row.sequence, list(row.path)])


class SimulatedCommitter(Committer):
    """Commits for one writer. Between any two things that it does others go on, and the process may die."""

    def __init__(self, world: World, ctx: CommitterContext) -> None:
        self._world = world
        self._ctx = ctx
        self._group = f"{ctx.sink_id}-{ctx.writer}"
        self._recorded = None if ctx.restored_state is None else Marker.from_wire(ctx.restored_state)
        self._marker: Marker | None = None
        self._producer = 0

    def open(self, restored: Sequence[Committable]) -> Sequence[Committable]:
        ctx, output = self._ctx, self._world.output
        ctx.check_owner()
        self._world.pause()
        self._producer = output.init(self._group)
        ctx.check_owner()
        self._world.pause()
        found = output.markers.get(self._group)
        state = KafkaRecovery(
            group=self._group,
            lineage=ctx.lineage,
            checkpoint=ctx.restored_checkpoint,
            recorded=self._recorded,
            found=found,
            restored=restored,
            rewind=ctx.rewind,
            ignore_earlier_output=ctx.ignore_earlier_output,
            fork=ctx.fork,
        )
        try:
            marker = recover(state)
        except MarkerLost:
            if "marker_lost_ignored" not in self._world.faults:
                raise
            marker = Marker(ctx.lineage, ctx.restored_checkpoint, self._recorded.last if self._recorded else None)
        self._world.pause()
        if marker != found:
            output.transact(ctx.sink_id, self._group, self._producer, (), marker)
        self._marker = marker
        self._world.pause()
        return list(restored) if "markers_ignored" in self._world.faults else marker.after(restored)

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        world, ctx, marker = self._world, self._ctx, self._marker
        assert marker is not None
        todo = list(committables) if "markers_ignored" in world.faults else marker.after(committables)
        checkpoint = max(checkpoint_id, marker.checkpoint)
        while True:
            size = world.rng.randint(1, 3)
            some, todo = todo[:size], todo[size:]
            last = some[-1].name if some else marker.last
            marker = Marker(marker.lineage, checkpoint, last)
            files = [file for one in some for file in one.files]
            rows = [Row(s, n, tuple(path)) for file in files for s, n, path in decode(ctx.staging.read(file))]
            ctx.check_owner()
            world.pause()
            world.happened("commit")
            world.output.transact(ctx.sink_id, self._group, self._producer, rows, marker)
            world.scheduler.log("commits", self._group, checkpoint_id, [one.name for one in some])
            world.happened("commit")
            world.pause()
            self._marker = marker
            if not todo:
                return

    def highest_checkpoint(self) -> int:
        return self._marker.checkpoint if self._marker is not None else 0

    def snapshot(self) -> Any:
        return self._marker.to_wire() if self._marker is not None else None
