"""Makes the parts of an epoch visible: copies them from the checkpoint storage, each under the name it has for good."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from checkpoint import failpoints
from sinks.files.errors import TargetUnavailable
from sinks.files.marker import Marker, newest
from sinks.files.recovery import FileRecovery
from sinks.files.target import Target, writer_name
from sinks.recovery import recover
from sinks.sink import Committable, Committer, CommitterContext, WriterRestore

log = logging.getLogger(f"weir.{__name__}")


class FileCommitter(Committer):
    """See `sinks.files.marker` for the protocol; it holds over a crash at any instruction."""

    def __init__(self, uri: str, ctx: CommitterContext) -> None:
        self._ctx = ctx
        self._target = Target(uri)
        self._writer = writer_name(ctx.pipeline, ctx.sink_id, ctx.writer)
        self._id = uuid.uuid4().hex
        self._marker: Marker | None = None
        """Replaced whole, never changed; read by `snapshot` in another thread."""
        self._highest = 0

    def open(self, restored: Sequence[Committable]) -> Sequence[Committable]:
        """
        Raises:
            OutputAhead, EarlierOutput, MarkerLost: the marker doesn't fit the checkpoint.
            TargetUnavailable: the folder can't be read or written.
            Fenced: another driver owns the job.
        """
        ctx = self._ctx
        ctx.check_owner()
        found = find_marker(self._target, self._writer, ctx.restored_state)
        marker = recover(
            FileRecovery(
                where=_where(self._target.uri, ctx.sink_id, ctx.writer),
                lineage=ctx.lineage,
                checkpoint=ctx.restored_checkpoint,
                recorded=recorded_marker(ctx.restored_state),
                found=found,
                restored=restored,
                rewind=ctx.rewind,
                ignore_earlier_output=ctx.ignore_earlier_output,
                fork=ctx.fork,
            )
        )
        self._highest = max(found.checkpoint if found else 0, marker.checkpoint)
        if found is not None and found.checkpoint > ctx.restored_checkpoint:
            log.warning(
                "%s: files of checkpoints %d to %d stay beside what is written from now on",
                _where(self._target.uri, ctx.sink_id, ctx.writer),
                ctx.restored_checkpoint + 1,
                found.checkpoint,
            )
        self._hit("files.before_settle")
        ctx.check_owner()
        self._write(replace(marker, term=found.term + 1 if found else 1))
        self._target.delete_other_markers(self._writer, self._id)
        self._target.remove_leftovers(one.payload["path"] for one in restored)
        self._hit("files.after_settle")
        return marker.after(restored)

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        """
        Raises:
            TargetUnavailable: not, or not wholly, visible; the restore does the rest.
            DamagedFile: a staged file can't be read.
            Fenced: another driver owns the job.
        """
        marker = self._marker
        if marker is None:
            raise RuntimeError("commit before open")
        todo = marker.after(committables)
        if not todo:
            return
        self._hit("files.before_commit")
        self._ctx.check_owner()
        if checkpoint_id > marker.checkpoint:
            self._write(replace(marker, checkpoint=checkpoint_id))
        self._hit("files.after_intent")
        for one in todo:
            self._publish(one)
        last = todo[-1]
        self._write(
            replace(marker, checkpoint=max(checkpoint_id, marker.checkpoint), last=last.name, path=last.payload["path"])
        )
        self._hit("files.after_commit")

    def highest_checkpoint(self) -> int:
        return self._highest

    def snapshot(self) -> Any:
        marker = self._marker
        return None if marker is None else [self._target.uri, marker.to_wire()]

    def _publish(self, one: Committable) -> None:
        path, size = one.payload["path"], one.payload["bytes"]
        if self._target.holds(path, size):
            return  # before a crash
        read = self._ctx.staging.read
        content = (read(file) for file in one.files)
        self._target.publish(path, size, content, lambda: self._hit("files.before_rename"))
        self._hit("files.after_rename")

    def _write(self, marker: Marker) -> None:
        self._target.write_marker(self._writer, self._id, marker)
        self._marker = marker

    def _hit(self, step: str) -> None:
        failpoints.hit(step, subtask=self._ctx.writer)


def recorded_marker(state: Any) -> Marker | None:
    """From what `FileCommitter.snapshot` returned."""
    return None if state is None else Marker.from_wire(state[1])


def find_marker(target: Target, writer: str, state: Any) -> Marker | None:
    """The newest marker of a writer, in its target or in the one that it had when the checkpoint was taken.

    Raises:
        TargetUnavailable: one of them can't be read.
    """
    found = target.markers(writer)
    if state is not None and state[0] != target.uri:
        found += Target(state[0]).markers(writer)
    return newest(found)


def not_committed(
    uri: str, pipeline: str, sink_id: str, writer: int, state: Any, committables: Sequence[Committable]
) -> Sequence[Committable]:
    """Those of a writer's committables that are not visible, by its marker; all of them where it can't be told."""
    recorded = recorded_marker(state)
    try:
        found = find_marker(Target(uri), writer_name(pipeline, sink_id, writer), state)
    except TargetUnavailable:
        return committables
    if found is None or recorded is None or found.lineage.id != recorded.lineage.id:
        return committables
    return found.after(committables)


def check_restore(uri: str, restore: WriterRestore) -> None:
    """By the writer's marker; a folder that can't be read is left to the committer.

    Raises:
        OutputAhead, EarlierOutput, MarkerLost: the writer's committer would refuse the checkpoint.
    """
    try:
        found = find_marker(Target(uri), writer_name(restore.pipeline, restore.sink_id, restore.writer), restore.state)
    except TargetUnavailable:
        return
    recover(
        FileRecovery(
            where=_where(uri, restore.sink_id, restore.writer),
            lineage=restore.lineage,
            checkpoint=restore.checkpoint,
            recorded=recorded_marker(restore.state),
            found=found,
            restored=restore.pending,
            rewind=restore.rewind,
            fork=restore.fork,
        )
    )


def _where(uri: str, sink_id: str, writer: int) -> str:
    return f"{uri} (sink {sink_id!r}, writer {writer})"
