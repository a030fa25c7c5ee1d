"""How a job is found by others on its host, and what becomes of the files of jobs that are gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.runtime.running_jobs import announce, running_jobs, state_folder, withdraw


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEIR_STATE_DIR", str(tmp_path / "jobs"))
    return tmp_path / "jobs"


def announced(name: str, port: int = 41233, **changed: Any) -> Path:
    """Of this process, but for what is changed in its file."""
    path = announce(name, f"127.0.0.1:{port}", "secret", http="http://h", http_token="t")
    assert path is not None
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    return path


def names() -> list[str]:
    return [job.name for job in running_jobs()]


def test_a_job_is_found_until_it_withdraws_and_by_its_user_alone(folder: Path) -> None:
    assert names() == []
    path = announce("orders", "127.0.0.1:41233", "secret", http="http://h", http_token="t")
    assert path is not None
    assert path.name == f"{os.getpid()}-41233.json"
    assert (path.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    (job,) = running_jobs()
    assert (job.name, job.address, job.secret, job.pid, job.file) == (
        *("orders", "127.0.0.1:41233", "secret"),
        *(os.getpid(), path),
    )
    assert (job.http, job.http_token) == ("http://h", "t")
    assert "secret" not in repr(job)
    withdraw(path)
    withdraw(path)
    assert (names(), list(folder.iterdir())) == ([], [])


def test_a_file_that_says_nothing_of_later_options_is_of_a_job_without_them(folder: Path) -> None:
    """Another version may have written it."""
    path = announced("orders")
    known = json.loads(path.read_text())
    path.write_text(json.dumps({name: known[name] for name in ("name", "address", "secret", "pid", "host", "started")}))
    (job,) = running_jobs()
    assert (job.http, job.http_token, job.encrypted) == ("", "", False)


def test_the_newest_comes_last(folder: Path) -> None:
    now = time.time()
    for port, started in ((1, now), (2, now - 2), (3, now - 1)):
        announced(f"job {port}", port, started=started)
    assert names() == ["job 2", "job 3", "job 1"]


def test_a_job_whose_process_is_gone_is_forgotten(folder: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    path = announced("gone", pid=gone.pid)
    assert names() == []
    assert not path.exists()


def test_another_process_has_only_got_its_number(folder: Path) -> None:
    began = announced("job", process="of a boot before/17")
    assert names() == []
    assert not began.exists()


def test_a_process_that_is_younger_than_a_job_of_an_older_version_has_only_got_its_number(folder: Path) -> None:
    began = announced("job", started=0.0, process="")
    assert names() == []
    assert not began.exists()


@pytest.mark.parametrize("clock", [-86_400.0, 86_400.0])
def test_a_job_is_found_after_the_clock_was_set(folder: Path, clock: float) -> None:
    announced("job", started=time.time() - clock)
    assert names() == ["job"]


def test_a_process_that_nobody_has_waited_for_is_dead(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as zombie:
        assert zombie.stdout is not None
        zombie.stdout.read()
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        announced("zombie", pid=zombie.pid)
        assert names() == []


def test_files_of_other_hosts_and_others_that_are_no_jobs_are_left_alone(folder: Path) -> None:
    other = announced("elsewhere", host="elsewhere", pid=1)
    (folder / "notes.txt").write_text("{}")
    (folder / "half.json").write_text("{")
    (folder / "older.json").write_text('{"name": "no more"}')
    assert names() == []
    assert other.exists()
    assert len(list(folder.iterdir())) == 4


def test_a_file_that_was_never_finished_is_deleted_after_a_minute(folder: Path) -> None:
    announced("job")
    for name, age in (("old", 61), ("new", 0)):
        path = folder / f".tmp-{name}"
        path.write_text("")
        os.utime(path, (time.time() - age, time.time() - age))
    assert names() == ["job"]
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == [".tmp-new"]


def test_a_folder_that_can_not_be_written_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WEIR_STATE_DIR", str(tmp_path / "file" / "jobs"))
    assert announce("orders", "127.0.0.1:1", "secret") is None


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"WEIR_STATE_DIR": "/a", "XDG_STATE_HOME": "/b"}, "/a"),
        ({"XDG_STATE_HOME": "/b"}, "/b/weir/jobs"),
        ({"HOME": "/c"}, "/c/.local/state/weir/jobs"),
    ],
)
def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str) -> None:
    for name in ("WEIR_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(state_folder()) == expected
