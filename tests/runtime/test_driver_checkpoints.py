"""What the driver carries out of a checkpoint coordinator's decisions, over a folder and connections of its own."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attempt_parts import attempt_context
from deadlines import eventually

from checkpoint.coordination import coordinator_events as events
from checkpoint.kinds import CheckpointKind
from checkpoint.storage import savepoints
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.metadata import OperatorSnapshot, SubtaskSnapshot
from pipeline import Pipeline
from pipeline.runtime.driver.attempt_context import CheckpointRequest, Progress
from pipeline.runtime.driver.checkpoints import DriverCheckpoints
from pipeline.runtime.driver.peers import Peer, Peers
from pipeline.runtime.driver.placement import Slot
from pipeline.runtime.wire import ControlConnection
from pipeline.testing import TestingSink, TestingSource

WAIT = 20.0


class Driver:
    """A `DriverCheckpoints` with one subtask, whose end of the connection nobody reads."""

    def __init__(self, folder: Path) -> None:
        p = Pipeline("job", parallelism=1)
        p.source("in", TestingSource()).sink("out", TestingSink())
        self.context = attempt_context(p.plan(), str(folder))
        self._folder = folder
        self._sockets = socket.socketpair()
        peers = Peers(p.plan(), lambda connection, reason: None)
        peer = Peer(ControlConnection(self._sockets[0]), 0, "here", 1, ("here", 1), Slot("", frozenset()))
        peers.add(peer)
        peers.place(peer, 0)
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.answers: list[int | Exception] = []
        self.master = DriverCheckpoints(
            self.context,
            peers,
            Progress(),
            self.inbox,
            on_failed=lambda message: None,
            on_final=lambda id: None,
            replaying=lambda: False,
        )
        self.master.tell(events.SubtasksRunning())

    def request(self, request: CheckpointRequest) -> None:
        self.master.request(request, self.answers.append)

    def acknowledge(self, id: int, *files: FileHandle) -> None:
        snapshot = SubtaskSnapshot({"out": OperatorSnapshot(files=files)})
        self.master.acknowledge(id, 0, snapshot.to_wire(), {})

    def checkpoint(self, id: int, *files: FileHandle) -> None:
        """One that completes."""
        self.request(CheckpointRequest())
        self.acknowledge(id, *files)
        self.hear("finalised")

    def shared_file(self, name: str) -> FileHandle:
        return self.context.storage.write_file(f"shared/1-{name}.arrow", b"staged")

    def left(self) -> list[str]:
        """Shared files that are there."""
        return sorted(f"shared/{path.name}" for path in (self._folder / "job" / "shared").iterdir())

    def hear(self, wanted: str) -> None:
        """Hand on what comes from the threads beside it, as an attempt does, up to one of this kind."""
        kind = ""
        while kind != wanted:
            kind, *args = self.inbox.get(timeout=WAIT)
            (self.master.finalised if kind == "finalised" else self.master.deleted)(*args)

    def close(self) -> None:
        self.master.close()
        for one in self._sockets:
            one.close()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    one = Driver(tmp_path / "weir")
    yield one
    one.close()


def test_shared_files_that_only_a_deleted_checkpoint_had_go_with_it(driver: Driver) -> None:
    first, second = (driver.shared_file(name) for name in ("a", "b"))
    driver.checkpoint(1, first)
    driver.checkpoint(2, second)
    driver.hear("deleted")
    assert driver.left() == [second.path]


def test_they_stay_while_a_savepoint_that_may_copy_them_is_in_progress(driver: Driver, tmp_path: Path) -> None:
    files = [driver.shared_file(name) for name in "abc"]
    driver.checkpoint(1, files[0])
    folder = savepoints.prepare(str(tmp_path / "savepoint"))
    driver.request(CheckpointRequest(CheckpointKind.SAVEPOINT, folder))
    for id, file in enumerate(files[1:], start=3):
        driver.checkpoint(id, file)
        driver.hear("deleted")
    assert driver.left() == [file.path for file in files]
    driver.acknowledge(2)
    driver.hear("finalised")
    eventually(lambda: driver.left() == [files[2].path], WAIT)
    assert driver.answers == [1, 3, 4, 2]
