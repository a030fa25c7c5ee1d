"""Which files a subtask's snapshots have, and where they go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from captures import data

from checkpoint.barriers.events import Barrier
from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.elements import ChannelName, EdgeName
from checkpoint.in_flight.captured import CapturedState
from checkpoint.row_format import row_format
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.naming import CheckpointRef
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


class Copies:
    """Local copies that note what they are told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.told.append((name, *args))


class Snapshot:
    """Keyed state in one file of a log, and a new one, which is written here."""

    def files(self, create: Any, compression: str) -> list[StateFile]:
        file = create("state")
        file.write(b"new")
        return [StateFile(FileHandle("shared/1-totals-0-7.arrow", 3, "0")), StateFile(file.close())]


@pytest.mark.parametrize("copied", [True, False])
def test_local_copies_are_told_of_the_log_and_of_the_end_of_each_checkpoint(tmp_path: Path, copied: bool) -> None:
    copies: Any = Copies() if copied else None
    storage = CheckpointStorage(str(tmp_path / "job"), "orders")
    files = SnapshotFiles(storage, 2, "totals", 1, lambda edge: row_format(False), "lz4", copies, 0)
    snapshot: Any = Snapshot()
    savepoint = Barrier(6, CheckpointKind.SAVEPOINT, target=(tmp_path / "savepoint").as_uri())
    for barrier in (Barrier(5), savepoint):
        written = files.write_keyed_state(barrier, "totals", snapshot)
        assert [one.file.shared for one in written] == [True, False]
    files.completed(5)
    files.aborted(7)
    told = [
        ("list_log", CheckpointRef(5, 2), ["1-totals-0-7.arrow"]),
        ("completed", CheckpointRef(5, 2)),
        ("aborted", CheckpointRef(7, 2)),
    ]
    assert copies is None or copies.told == told
