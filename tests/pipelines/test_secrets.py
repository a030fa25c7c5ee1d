"""Passwords of a pipeline go to its subtasks and to nobody else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from deadlines import PATIENCE, eventually
from pyspark import cloudpickle
from small_job import records, running, small_job

from pipeline.runtime.driver import attempt_services
from pipeline.runtime.driver.spark.spark_job import SparkJob
from pipeline.testing import TestingSink, TestingSource

CANARY = "canary-7f3a91c5"
TOKEN = "canary-of-the-web-server-c04e"


class SecretSource(TestingSource):
    """A source that knows a password."""

    def __init__(self, elements: list[Any], directory: Path):
        super().__init__(elements, directory=directory)
        self.password = CANARY


def test_what_spark_ships_as_blocks_has_no_password_and_not_the_attempts_secret(
    tmp_path: Path, unique_name: Callable[[str], str], spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Task binaries are broadcast, so Spark's block managers give them to who asks."""
    shipped: list[tuple[bytes, bytes]] = []

    class Seen(SparkJob):
        def start(self) -> None:
            shipped.append((cloudpickle.dumps(self._partition), self._secret))  # type: ignore[no-untyped-call]
            super().start()

    monkeypatch.setattr(attempt_services, "SparkJob", Seen)
    source = SecretSource([*records(0, 5), TestingSource.PAUSE()], tmp_path / "source")
    with running(small_job(unique_name("job"), tmp_path / "checkpoints", source, TestingSink()), spark):
        source.wait_until_paused(PATIENCE)
    ((binary, secret),) = shipped
    assert b"run_subtask" in binary
    assert CANARY.encode() not in binary
    assert len(secret) >= 16
    assert secret not in binary


def test_weirs_own_sessions_authenticate_and_listen_on_loopback_only(spark: Any) -> None:
    conf = spark.getConf()
    assert conf.get("spark.authenticate") == "true"
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
    java = [one for one in psutil.Process().children(recursive=True) if "java" in one.name()]
    _assert_loopback(java)


JOB = """
import sys
from pipeline import CheckpointConfig, Pipeline
from sinks import PrintSink
from sources import SequenceSource

class Secret(SequenceSource):
    def __init__(self):
        super().__init__(None, rate=20)
        self.password = open(sys.argv[2]).read()

p = Pipeline("secretive", checkpoints=CheckpointConfig(sys.argv[1], interval=0.5), stop_grace=300)
p.source("numbers", Secret()).sink("out", PrintSink())
p.run(http="127.0.0.1:0")
"""


@pytest.mark.slow
def test_a_password_shows_nowhere(tmp_path: Path) -> None:
    """Not in logs of Weir's and Spark's at their most talkative, event logs, work folders, checkpoints, processes and
    what the web server answers. Nor do the secrets that the job is asked with, but for the job's own file and the
    environment. And every port of the job's processes is on loopback."""
    made = tmp_path / "made"
    for folder in ("events", "local", "tmp", "state", "conf"):
        (made / folder).mkdir(parents=True)
    (made / "conf" / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir {(made / 'events').as_uri()}\nspark.eventLog.compress false\n"
    )
    (made / "job.py").write_text(JOB)
    (tmp_path / "password").write_text(CANARY)
    environment = {
        **os.environ,
        "SPARK_CONF_DIR": str(made / "conf"),
        "SPARK_LOCAL_DIRS": str(made / "local"),
        "TMPDIR": str(made / "tmp"),
        "WEIR_STATE_DIR": str(made / "state"),
        "WEIR_HTTP_TOKEN": TOKEN,
        "WEIR_LOG_LEVEL": "DEBUG",
        "WEIR_SPARK_LOG_LEVEL": "DEBUG",
    }
    with (made / "log").open("wb") as log:
        job = subprocess.Popen(
            [sys.executable, str(made / "job.py"), str(made / "checkpoints"), str(tmp_path / "password")],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        metadata = "checkpoints/secretive/chk-*/_metadata"
        eventually(lambda: any(made.glob(metadata)) or job.poll() is not None)
        assert job.poll() is None, (made / "log").read_text()[-3000:]
        processes = [psutil.Process(job.pid), *psutil.Process(job.pid).children(recursive=True)]
        told = [told for one in processes if (told := _what_it_shows(one)) is not None]
        assert len(told) >= 3  # the script, the JVM, the daemon
        _assert_loopback(processes)
        (running_job,) = [json.loads(path.read_text()) for path in (made / "state").glob("*.json")]
        secrets = [CANARY, TOKEN, running_job["secret"]]
        assert running_job["http_token"] == TOKEN
        assert not [secret for secret in (CANARY, running_job["secret"]) if secret in json.dumps(told)]
        shown = json.dumps([command for command, _ in told])
        with httpx.Client(base_url=running_job["http"], trust_env=False) as http:
            for path in ("/", "/metrics", "/readyz", "/api/v1/jobs/secretive", "/api/v1/jobs/secretive/subtasks"):
                answer = http.get(path, headers={"authorization": f"Bearer {TOKEN}"})
                assert answer.status_code == 200, (path, answer.text)
                shown += answer.text + http.get(path).text
        shown += subprocess.run(
            [sys.executable, "-c", "from pipeline.cli import main; main()", "status", "secretive", "--json"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        _look_through(made, secrets)
    finally:
        job.send_signal(signal.SIGTERM)
        job.wait(PATIENCE)
    assert not [secret for secret in secrets if secret in shown]
    _look_through(made, secrets)
    assert any((made / "events").iterdir())


def _what_it_shows(process: psutil.Process) -> list[Any] | None:
    """`None` of one that has ended meanwhile."""
    try:
        return [process.cmdline(), process.environ()]
    except psutil.NoSuchProcess:
        return None


def _assert_loopback(processes: Iterable[psutil.Process]) -> None:
    listening = set()
    for process in processes:
        try:
            ports = process.net_connections("tcp")
        except psutil.NoSuchProcess:
            continue
        listening |= {one.laddr.ip for one in ports if one.status == psutil.CONN_LISTEN}
    assert listening
    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


def _look_through(folder: Path, secrets: Iterable[str]) -> None:
    """The job's own file apart, which has them for its user."""
    for path in folder.rglob("*"):
        if path.is_file() and path.parent != folder / "state":
            try:
                held = path.read_bytes()
            except FileNotFoundError:
                continue
            assert not [secret for secret in secrets if secret.encode() in held], path
