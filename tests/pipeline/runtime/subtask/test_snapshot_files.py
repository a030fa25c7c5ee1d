"""Which files a subtask's snapshots have, and where they go."""

from __future__ import annotations

from pathlib import Path

import pytest
from captures import data

from checkpoint.barriers.events import Barrier
from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.elements import ChannelName, EdgeName
from checkpoint.in_flight.captured import CapturedState
from checkpoint.row_format import row_format
from checkpoint.storage.storage import CheckpointStorage
from pipeline.runtime.subtask.snapshot_files import SnapshotFiles

CHANNEL = ChannelName(EdgeName("in", "totals", "0.0"), 0, 0)


def captured() -> CapturedState:
    return CapturedState(inputs={CHANNEL: [data([1, 2, 3])]})


@pytest.mark.parametrize("limit", [0, 100, 100_000])
def test_what_is_small_is_inline_in_checkpoints_and_a_file_of_savepoints(tmp_path: Path, limit: int) -> None:
    storage = CheckpointStorage(str(tmp_path / "job"), "orders")
    target = (tmp_path / "savepoint").as_uri()
    files = SnapshotFiles(storage, 2, "totals", 1, lambda edge: row_format(False), "lz4", None, limit)
    checkpoint = files.write_channel_state(Barrier(5), captured())
    savepoint = files.write_channel_state(Barrier(6, CheckpointKind.SAVEPOINT, target=target), captured())
    assert checkpoint.inline == (limit == 100_000)
    assert not savepoint.inline
    assert checkpoint.path == "chk-5-2/totals-1-in%2Dflight.arrow"
    written = {path.name for path in tmp_path.rglob("*.arrow")}
    assert len(list(tmp_path.rglob("*.arrow"))) == (1 if checkpoint.inline else 2)
    assert written == {"totals-1-in%2Dflight.arrow"}
    assert storage.read_file(checkpoint) == CheckpointStorage(target, None).read_file(savepoint)
