"""Whether a job's owner still runs: from what can be seen here, and of real processes."""

from __future__ import annotations

import itertools
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from deadlines import eventually

from checkpoint.storage import fencing
from checkpoint.storage.storage import CheckpointStorage
from pipeline.errors import PipelineError
from pipeline.runtime.driver import owner_liveness
from pipeline.runtime.driver.operations import OperationsServer
from pipeline.runtime.driver.owner_liveness import OwnerAnswer, OwnerState, owner_state, refuse_living_owner

_RULES = {
    (True, OwnerAnswer.RUNS): OwnerState.LIVES,
    (False, OwnerAnswer.RUNS): OwnerState.LIVES,  # a container's, whose processes aren't seen here
    (True, OwnerAnswer.ENDED): OwnerState.GONE,
    (False, OwnerAnswer.ENDED): OwnerState.GONE,
    (True, OwnerAnswer.NOBODY): OwnerState.GONE,  # its process has gone on to something else
    (False, OwnerAnswer.NOBODY): OwnerState.GONE,
    (True, OwnerAnswer.SILENT): OwnerState.LIVES,  # it is stopped, or another user's
    (False, OwnerAnswer.SILENT): OwnerState.UNKNOWN,
    (True, OwnerAnswer.UNKNOWN): OwnerState.UNKNOWN,
    (False, OwnerAnswer.UNKNOWN): OwnerState.GONE,
}


@pytest.mark.parametrize(("there", "answer"), list(itertools.product([True, False], OwnerAnswer)))
def test_the_verdict_by_what_is_seen(there: bool, answer: OwnerAnswer) -> None:
    assert owner_state(True, there, answer) is _RULES[there, answer]
    assert owner_state(False, there, answer) is OwnerState.UNKNOWN  # a restart elsewhere must not need anything


_OWNER = """
import sys
from checkpoint.storage import fencing
from checkpoint.storage.storage import CheckpointStorage
fencing.take_ownership(CheckpointStorage(sys.argv[1], "job"), address=sys.argv[2])
"""


class Handle:
    """What the operations server asks of a job."""

    def __init__(self) -> None:
        self.status = "running"


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckpointStorage:
    monkeypatch.setenv("WEIR_STATE_DIR", str(tmp_path / "state"))
    storage = CheckpointStorage((tmp_path / "checkpoints").as_uri(), "job")
    storage.prepare()
    return storage


@pytest.fixture
def server(storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Of a job that only has a status."""
    monkeypatch.setattr(OperationsServer, "_status", lambda self: {"status": self._handle.status})
    from pipeline.runtime.driver import operations

    monkeypatch.setitem(operations._REQUESTS, "status", lambda server: {"status": server._handle.status})
    server = OperationsServer("job", Handle())  # type: ignore[arg-type]
    yield server
    server.close()


def test_a_job_without_an_owner_can_be_started(storage: CheckpointStorage) -> None:
    refuse_living_owner(storage, "job")


def test_a_living_owner_is_not_ended_unasked(
    storage: CheckpointStorage, server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fencing.take_ownership(storage, address=server.address)
    with pytest.raises(PipelineError, match=r"job 'job' runs already, in process .* --take-over, or start\(take_over"):
        refuse_living_owner(storage, "job")
    assert not caplog.records  # it isn't told of a stranger
    server._handle.status = "finished"
    refuse_living_owner(storage, "job")


def test_an_owner_that_can_not_be_asked_counts_as_long_as_its_process_listens(
    storage: CheckpointStorage, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fencing.take_ownership(storage, address=server.address)
    monkeypatch.setenv("WEIR_STATE_DIR", str(tmp_path / "another user's"))
    with pytest.raises(PipelineError, match="runs already"):
        refuse_living_owner(storage, "job")


def test_a_job_of_this_process_that_has_ended_is_gone_though_another_job_has_its_port_now(
    storage: CheckpointStorage, server: Any
) -> None:
    fencing.take_ownership(storage, address=server.address)
    server.close()
    with socket.create_server(("127.0.0.1", int(server.address.rpartition(":")[2]))):
        refuse_living_owner(storage, "job")


def test_a_job_whose_port_another_job_has_now_is_gone(storage: CheckpointStorage, server: Any) -> None:
    """Its process goes on, as a notebook's does."""
    code = _OWNER + "sys.stdin.read()"
    owner = subprocess.Popen([sys.executable, "-c", code, storage.uri, server.address], stdin=subprocess.PIPE)
    try:
        eventually(storage.owners)
        refuse_living_owner(storage, "job")
    finally:
        owner.communicate()
    fencing.take_ownership(storage, address=server.address)
    refuse_living_owner(storage, "another name")


def test_after_a_crash_nothing_is_needed(storage: CheckpointStorage) -> None:
    uri = storage.uri
    code = _OWNER + "import os\nos.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code, uri, "127.0.0.1:1"], timeout=300).returncode == -9
    assert len(storage.owners()) == 1
    refuse_living_owner(storage, "job")


def test_an_owner_whose_process_number_another_process_has_is_gone(
    storage: CheckpointStorage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a container's restart, where the driver always is process 1."""
    monkeypatch.setattr(fencing, "identity", lambda pid: "of the process before/17")
    fencing.take_ownership(storage)
    refuse_living_owner(storage, "job")
    assert not caplog.records


def test_an_owner_that_runs_is_not_taken_for_another_process_once_the_clock_was_set(
    storage: CheckpointStorage, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can ask it here, so that only its process tells."""
    fencing.take_ownership(storage, clock=lambda: time.time() - 10**6)
    refuse_living_owner(storage, "job")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_an_owner_that_nobody_has_waited_for_is_gone(
    storage: CheckpointStorage, caplog: pytest.LogCaptureFixture
) -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, storage.uri, ""])
    try:
        eventually(lambda: psutil.Process(owner.pid).status() == psutil.STATUS_ZOMBIE)
        assert len(storage.owners()) == 1
        refuse_living_owner(storage, "job")
        assert not caplog.records
    finally:
        owner.wait()


def test_of_an_owner_on_another_host_it_is_said_that_it_can_not_be_told(
    storage: CheckpointStorage, server: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fencing.take_ownership(storage, address=server.address)
    here = socket.gethostname()
    monkeypatch.setattr(owner_liveness.socket, "gethostname", lambda: "elsewhere")
    with caplog.at_level(logging.WARNING):
        refuse_living_owner(storage, "job")
    assert f"on host {here}, at {server.address}) still runs can't be told from here" in caplog.text
