"""In a Spark session of the user's own, a job's workers are forked from a process of Weir's, and only they."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.runtime.driver.spark.given_session import may_replace_daemon

SCRIPT = """
import json, os, signal, sys, threading, psutil
from pathlib import Path
from pyspark.sql import SparkSession
from pipeline.runtime.driver.spark.daemon_process import daemons
from pipeline.runtime.driver.spark.given_session import begin_workers
from pipeline.runtime.driver.spark import given_session
from pipeline.runtime.driver.spark.spark_job import SparkJob

builder = SparkSession.builder.master("local[2]")
context = builder.config("spark.python.worker.reuse", "false").getOrCreate().sparkContext
folder = Path(sys.argv[1])

def others():
    return context.parallelize([1], 1).map(lambda _: (os.getppid(), "WEIR_SPARK_DAEMON" in os.environ)).collect()

def job(name):
    def subtask(secret):
        import sinks
        (folder / name).write_text(f"{os.getppid()} {sinks.__name__} {secret}")
    ended = threading.Event()
    failed = []
    one = SparkJob(context, 1, subtask, b"s", "a job", lambda error: (failed.append(error), ended.set()))
    one.start()
    assert ended.wait(60) and failed == [None], failed
    return (folder / name).read_text()

told = {}
before = others()
begin_workers(context)
told["daemon"] = daemons()[0].pid
told["first"] = job("first")
told["others"] = others() == before
os.kill(told["daemon"], signal.SIGKILL)
psutil.wait_procs([psutil.Process(told["daemon"])], 10)
told["after its end"] = job("second")
begin_workers(context)
told["next"] = daemons()[0].pid
told["in the next"] = job("third")
all = [one for one in psutil.Process().children(recursive=True) if "python" in one.name()]
assert all
context.stop()
told["left"] = len(psutil.wait_procs(all, 60)[1])
given_session._SCRIPT = Path("/nowhere")
context = builder.getOrCreate().sparkContext
begin_workers(context)
told["without"] = [one.pid for one in daemons()]
print(json.dumps(told), flush=True)
"""


@pytest.mark.slow
def test_workers_of_a_job_are_forked_from_it_and_it_ends_with_the_session(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"  # where Spark looks for python3
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    in_it = f"{told['daemon']} sinks b's'"
    assert (told["first"], told["in the next"]) == (in_it, f"{told['next']} sinks b's'")
    assert told["others"], "functions of the session itself keep their daemon, and their environment"
    assert told["after its end"].endswith(" sinks b's'")
    assert told["after its end"] != in_it
    assert "weir: Spark's workers wait for another process" in done.stderr
    assert told["without"] == []
    assert "/nowhere isn't executable" in done.stderr
    assert told["left"] == 0


@pytest.mark.parametrize(
    ("master", "settings", "expected"),
    [
        ("local", {}, True),
        ("local[*]", {"spark.python.use.daemon": "true"}, True),
        ("spark://host:7077", {}, False),
        ("local-cluster[2,1,1024]", {}, False),
        ("local[2]", {"spark.python.daemon.module": "mine"}, False),
        ("local[2]", {"spark.python.use.daemon": "false"}, False),
    ],
)
def test_elsewhere_spark_starts_its_own(
    monkeypatch: pytest.MonkeyPatch, master: str, settings: dict[str, str], expected: bool
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert may_replace_daemon(master, settings, "python3") is expected


def test_workers_of_another_python_are_not_forked_from_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/elsewhere")
    assert not may_replace_daemon("local", {}, "/elsewhere")
    assert may_replace_daemon("local", {}, sys.executable)
