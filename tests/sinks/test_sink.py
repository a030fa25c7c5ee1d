"""What a sink does that says nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sinks import Committable, CommittableName, Sink, SinkBatch, SinkWriter, WriterContext
from sinks.sink import Committer


class Writer(SinkWriter):
    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        return ()


class Plain(Sink[int]):
    def create_writer(self, ctx: WriterContext) -> SinkWriter:
        return Writer()


class Commits(Committer):
    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None: ...


def test_a_sink_without_a_committer_needs_no_checkpoints_and_owns_no_names() -> None:
    sink = Plain()
    pending = [Committable(CommittableName(1, 0), {})]
    assert not sink.needs_checkpoints
    assert sink.exclusive_names("job", "out") == ()
    assert sink.create_committer(None) is None  # type: ignore[arg-type]
    assert sink.uncommitted("job", "out", 0, None, pending) is pending


def test_a_committer_that_cannot_tell_commits_all_again_and_refreshes_nothing() -> None:
    committer, pending = Commits(), [Committable(CommittableName(1, 0), {})]
    assert committer.open(pending) is pending
    assert (committer.refresh_interval, committer.highest_checkpoint(), committer.snapshot()) == (None, 0, None)


def test_a_writer_that_can_write_nothing_says_so() -> None:
    batch = SinkBatch([1, 2], [None, None], [None, None])
    assert len(batch) == 2
    for write in (lambda: Writer().write(1, None), lambda: Writer().write_batch(batch)):  # type: ignore[arg-type]
        with pytest.raises(NotImplementedError, match="Writer implements neither write nor write_batch"):
            write()
