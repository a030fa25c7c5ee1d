"""The server beside a job: who may ask, what is answered, and what is left when the job ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from deadlines import eventually
from idle_handle import idle_handle, run
from wire_parts import wiretap

from pipeline import PipelineError
from pipeline.cli import operate_tables
from pipeline.handle import JobHandle
from pipeline.runtime import running_jobs
from pipeline.runtime.driver.operations import OperationsServer
from pipeline.runtime.driver.operations_client import SECRET_VARIABLE, JobRequestFailed, NotReached, ask
from pipeline.runtime.driver.status.job_status import figures_of, vertex_of
from pipeline.runtime.driver.status.restart_times import Recovery


class Handle(JobHandle):
    """A job whose checkpoint takes until a test says so."""

    def __init__(self) -> None:
        self.asked, self.go_on = threading.Event(), threading.Event()

    def checkpoint(self, timeout: float | timedelta | None = None) -> int:
        self.asked.set()
        self.go_on.wait()
        return 7

    def savepoint(self, uri: str | Path, timeout: float | timedelta | None = None) -> str:
        raise RuntimeError(f"{uri} is full")

    def cancel(self, wait: bool = True) -> None: ...

    @property
    def status(self) -> str:
        return "cancelled"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "state" / "jobs"
    monkeypatch.setenv("WEIR_STATE_DIR", str(path))
    return path


@pytest.fixture
def handle() -> Iterator[Handle]:
    made = Handle()
    yield made
    made.go_on.set()


@pytest.fixture
def server(folder: Path, handle: Handle) -> Iterator[OperationsServer]:
    made = OperationsServer("orders", handle)
    yield made
    handle.go_on.set()
    made.close()


def secret() -> str:
    (job,) = running_jobs.running_jobs()
    return job.secret


def servers_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("weir-operations")]


# -- who may ask ------------------------------------------------------------------------------------------------


def test_a_job_answers_who_knows_its_secret(server: OperationsServer) -> None:
    assert ask(server.address, secret(), "cancel") == "cancelled"


def test_another_secret_is_refused_with_what_to_do(server: OperationsServer) -> None:
    with pytest.raises(NotReached, match=r"no job that has this secret.*--secret-file"):
        ask(server.address, "another secret, as long", "cancel")


def test_a_job_that_encrypts_is_asked_by_what_its_file_says(folder: Path, handle: Handle) -> None:
    server = OperationsServer("orders", handle, encrypt=True)
    try:
        (job,) = running_jobs.running_jobs()
        assert job.encrypted
        host, _, port = server.address.rpartition(":")
        with wiretap((host, int(port))) as tap:
            address = "{}:{}".format(*tap.address)
            assert ask(address, job.secret, "cancel", encrypted=True) == "cancelled"
            assert b"cancel" not in tap.seen
            with pytest.raises(
                NotReached, match=r"no job that has this secret.*WEIR_ENCRYPT=true, if the job encrypts"
            ):
                ask(address, job.secret, "cancel")
        with pytest.raises(NotReached, match="another certificate"):
            ask(server.address, "another secret, as long", "cancel", encrypted=True)
    finally:
        server.close()


def test_a_job_that_encrypts_cannot_be_asked_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cryptography", "cryptography.x509"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(NotReached, match=r"pip install 'weir-streams\[encryption\]'"):
        ask("127.0.0.1:1", "a secret that is long enough", "status", encrypted=True)


def test_an_encrypted_connection_that_asks_nothing_holds_up_no_end(folder: Path, handle: Handle) -> None:
    server = OperationsServer("orders", handle, encrypt=True)
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port))) as silent:
        eventually(lambda: "weir-operations-peer" in servers_threads())
        server.close()
        assert silent.recv(1) == b""
    assert servers_threads() == []


def test_what_comes_before_the_authentication_is_not_parsed(server: OperationsServer) -> None:
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(b"\x00\x00\x00\x07\x81\xa4type" + b"\xa6cancel")
        assert sock.recv(1) == b""
    assert ask(server.address, secret(), "cancel") == "cancelled"


def test_a_secret_can_be_given_to_the_job(folder: Path, handle: Handle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "known to compose, too")
    server = OperationsServer("orders", handle)
    try:
        assert ask(server.address, "known to compose, too", "cancel") == "cancelled"
    finally:
        server.close()
    monkeypatch.setenv(SECRET_VARIABLE, "short")
    with pytest.raises(PipelineError, match="at least 16 bytes"):
        OperationsServer("orders", handle)


def test_it_listens_on_loopback_only(server: OperationsServer) -> None:
    assert server.address.startswith("127.0.0.1:")


# -- answers ----------------------------------------------------------------------------------------------------


def test_a_request_that_takes_long_holds_up_nobody(server: OperationsServer, handle: Handle) -> None:
    known = secret()
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(ask, server.address, known, "checkpoint", timeout=None)
        assert handle.asked.wait(60)
        assert ask(server.address, known, "cancel") == "cancelled"
        assert not slow.done()
        handle.go_on.set()
        assert slow.result(60) == 7


def test_a_failure_is_told_to_who_asked(server: OperationsServer) -> None:
    with pytest.raises(JobRequestFailed, match=r"^/disk is full$") as caught:
        ask(server.address, secret(), "savepoint", uri="/disk", timeout=1.0)
    assert caught.value.error == "RuntimeError"


def test_an_unknown_request_is_refused_with_those_there_are(server: OperationsServer) -> None:
    with pytest.raises(
        JobRequestFailed,
        match="can't dance; there are status, metrics, state, checkpoint, savepoint, rescale, stop, cancel, web_link",
    ):
        ask(server.address, secret(), "dance")


def test_a_job_that_does_not_answer_is_given_up(server: OperationsServer) -> None:
    with pytest.raises(NotReached, match=r"doesn't answer within 0.1 s: its process may be stopped"):
        ask(server.address, secret(), "checkpoint", 0.1, timeout=None)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:99999", "nowhere.invalid:80", "no address"])
def test_an_address_without_a_job_is_an_error(address: str) -> None:
    with pytest.raises(NotReached, match=f"no job answers at {address}"):
        ask(address, "a secret that is long enough", "status")


@pytest.mark.parametrize(
    ("lags", "expected"),
    [([{}, {}], None), ([{"recordsLag": 3}, {"recordsLag": 4}], 7), ([{"recordsLag": 3}, {"recordsLag": None}], None)],
)
def test_a_vertex_has_its_subtasks_rates_and_a_lag_where_all_know_theirs(
    lags: list[dict[str, Any]], expected: int | None
) -> None:
    values = {"recordsIn": 5, "recordsInPerSecond": 2.5, "busyMsPerSecond": 100.0}
    busiest = {**values, "busyMsPerSecond": 700.0, "pendingCommits": 2}
    vertex = vertex_of([{**values, **lags[0]}, {**busiest, **lags[1]}])
    assert vertex["recordsLag"] == expected
    assert (vertex["subtasks"], vertex["recordsIn"], vertex["recordsInPerSecond"]) == (2, 10, 5.0)
    assert (vertex["busyMsPerSecond"], vertex["pendingCommits"], vertex["recordsOut"]) == (700.0, 2, 0)


def test_a_status_says_in_sentences_what_is_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    handle = idle_handle()
    run(handle, totals_1={"heldMs": 5000.0})
    handle._master.waits.report("in[0]", [("the brokers", 0.0, "brokers")])
    server = OperationsServer("orders", handle)
    try:
        found = ask(server.address, secret(), "status")
    finally:
        server.close()
    operate_tables.print_status(found)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("trouble:")]
    assert line.startswith("trouble:     totals → out[1] has not looked around for 5.00 s")


# -- the end ----------------------------------------------------------------------------------------------------


def test_the_end_leaves_no_file_and_no_thread(server: OperationsServer, folder: Path) -> None:
    known = secret()
    server.close()
    assert list(folder.iterdir()) == []
    assert servers_threads() == []
    with pytest.raises(NotReached, match="no job answers"):
        ask(server.address, known, "status")


def test_the_last_requests_get_their_answers_before_the_end(server: OperationsServer, handle: Handle) -> None:
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(ask, server.address, secret(), "checkpoint", timeout=None)
        assert handle.asked.wait(60)
        closing = pool.submit(server.close)
        handle.go_on.set()
        closing.result(60)
        assert slow.result(60) == 7


def test_who_has_not_asked_yet_is_cut_off_at_the_end(server: OperationsServer) -> None:
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port))) as sock:
        eventually(lambda: len(servers_threads()) == 2)
        server.close()
        assert servers_threads() == []
        assert sock.recv(1) == b""


# -- the job's file ---------------------------------------------------------------------------------------------


def test_only_the_user_can_read_the_file(server: OperationsServer, folder: Path) -> None:
    (file,) = folder.iterdir()
    assert (file.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    content = json.loads(file.read_text())
    assert (content["name"], content["address"], content["pid"]) == ("orders", server.address, os.getpid())


def test_a_folder_that_cannot_be_written_is_a_warning(
    tmp_path: Path, handle: Handle, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WEIR_STATE_DIR", str(tmp_path / "file" / "jobs"))
    monkeypatch.setenv(SECRET_VARIABLE, "known to compose, too")
    server = OperationsServer("orders", handle)
    try:
        assert "job orders can't be found by `weir status`" in caplog.text
        assert ask(server.address, "known to compose, too", "cancel") == "cancelled"
    finally:
        server.close()


def test_what_a_killed_driver_has_left_is_deleted_by_who_looks_next(folder: Path) -> None:
    code = (
        "from pipeline.runtime.running_jobs import announce; "
        "print(announce('killed', '127.0.0.1:1', 'x' * 32), flush=True); input()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        file = Path(process.stdout.readline().strip())
        assert [job.name for job in running_jobs.running_jobs()] == ["killed"]
        process.send_signal(signal.SIGKILL)
        # Dead, though nobody has waited for it, so that its number is still taken.
        eventually(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
        assert file.exists()
        assert running_jobs.running_jobs() == []
        assert not file.exists()
    finally:
        process.kill()
        process.communicate()


def test_a_process_that_only_has_the_same_number_is_not_the_jobs(server: OperationsServer, folder: Path) -> None:
    (file,) = folder.iterdir()
    file.write_text(json.dumps({**json.loads(file.read_text()), "process": "of a boot before/17"}))
    assert running_jobs.running_jobs() == []
    assert not file.exists()


def test_files_of_other_hosts_and_other_things_are_left_alone(server: OperationsServer, folder: Path) -> None:
    (file,) = folder.iterdir()
    (folder / "1-1.json").write_text(json.dumps({**json.loads(file.read_text()), "host": "another", "pid": 2**22}))
    (folder / "notes.json").write_text("no job's")
    (folder / "readme").touch()
    assert [job.address for job in running_jobs.running_jobs()] == [server.address]
    assert len(list(folder.iterdir())) == 4


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({"WEIR_STATE_DIR": "/own", "XDG_STATE_HOME": "/xdg"}, "/own"),
        ({"XDG_STATE_HOME": "/xdg"}, "/xdg/weir/jobs"),
        ({"HOME": "/home/me"}, "/home/me/.local/state/weir/jobs"),
    ],
)
def test_where_the_folder_is(variables: dict[str, str], wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WEIR_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert running_jobs.state_folder() == Path(wanted)


# -- recoveries -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "phases"),
    [
        ((1.0, 2.0, 4.0, 7.0, 11.0, 16.0), [1.0, 2.0, 3.0, 4.0, 5.0]),
        ((1.0, 2.0, 4.0, 7.0), [1.0, 2.0, 3.0, None, None]),
    ],
)
def test_a_recoverys_phases_follow_each_other(times: Any, phases: list[float | None]) -> None:
    assert Recovery(*times).phases == dict(zip(("cancel", "wait", "start", "restore", "catch_up"), phases, strict=True))


# -- what a status says ------------------------------------------------------------------------------------------


def test_what_steps_have_left_out_is_summed_by_vertex_and_the_last_of_each_subtask_told() -> None:
    subtasks = {
        "price[0]": {"recordsFailed": 2, "lastFailure": "'price': ValueError: no"},
        "price[1]": {"recordsFailed": 1, "lastFailure": "'price': KeyError: 'amount'"},
        "price[2]": {},
        "out[0]": {},
    }
    vertices = figures_of({"subtasks": subtasks, "totals": {}, "waits": []})["vertices"]
    assert (vertices["price"]["recordsFailed"], vertices["out"]["recordsFailed"]) == (3, 0)
    assert vertices["price"]["lastFailures"] == ["'price': KeyError: 'amount'", "'price': ValueError: no"]
    assert vertices["out"]["lastFailures"] == []
