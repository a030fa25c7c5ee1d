"""The JVM of Weir's own sessions starts silently, and what workers print still comes out."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import psutil
import pytest
from deadlines import PATIENCE, eventually

from pipeline.runtime.driver.spark import gateway
from pipeline.runtime.driver.spark.gateway import _no_lost_connection

SCRIPT = """
from pipeline.runtime.driver.spark.spark_job import local_context
context = local_context(1, "quiet")
context.parallelize([1], 1).foreach(lambda _: print("from a worker", flush=True))
context.stop()
"""


@pytest.mark.slow
def test_nothing_is_printed_but_what_workers_print() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "from a worker\n")


VARIABLES = """
import os, sys
import psutil
from pipeline.runtime.driver.spark.allocators import SETTINGS
from pipeline.runtime.driver.spark.gateway import jvm_pid
from pipeline.runtime.driver.spark.spark_job import begin_local_context, local_context
os.environ["MALLOC_ARENA_MAX"] = "4"
if sys.argv[1] == "early":
    begin_local_context(None)
context = local_context(1, "quiet")
def look(_):
    import psutil, pyarrow
    forked_from = psutil.Process(os.getppid()).environ()
    began_with = [forked_from.get(name) for name in SETTINGS]
    return [os.environ.get(name) for name in SETTINGS], began_with, pyarrow.default_memory_pool().backend_name
print(*context.parallelize([1], 1).map(look).collect(), [name in os.environ for name in SETTINGS])
print([psutil.Process(jvm_pid()).environ().get(name) for name in SETTINGS], flush=True)
context.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize("begun", ["early", "late"])
def test_workers_and_jvm_give_freed_memory_back_and_what_the_user_has_set_stays(begun: str) -> None:
    command = [sys.executable, "-c", VARIABLES, begun]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    workers = ["4", "131072", "131072", "system"]
    expected = f"{(workers, workers, 'system')} {[True, False, False, False]}\n{['4', '131072', '32000', 'system']}\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


KILLED = """
import os, sys, tempfile, threading, time
import psutil
from pipeline.runtime.driver.spark import gateway
from pipeline.runtime.driver.spark.spark_job import local_context

def jvms():
    found = []
    for one in psutil.Process().children(recursive=True):
        try:
            found += [one.name()] * ("java" in one.name() and one.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            pass  # it has ended meanwhile
    return found

tempfile.tempdir = sys.argv[1]
threading.Thread(target=local_context, args=(1, "quiet"), daemon=True).start()
while not jvms():
    time.sleep(0.01)
gateway.kill()
print(jvms(), flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_a_jvm_can_be_killed_while_it_starts(tmp_path: Path) -> None:
    """A daemon for workers that was about to start meanwhile ends with the process."""
    mark = uuid.uuid4().hex
    command, env = [sys.executable, "-c", KILLED, str(tmp_path)], {**os.environ, "WEIR_TEST_SCRIPT": mark}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=300)
    assert (done.returncode, done.stdout) == (0, b"[]\n")
    await_end(mark)
    eventually(lambda: list(tmp_path.glob("weir-daemon-*")) == [])


EARLY = """
import psutil, time
from pipeline.runtime.driver.spark.spark_job import begin_local_context, local_context, stop_context

def jvms():
    return [one.pid for one in psutil.Process().children(recursive=True) if one.name() == "java"]

begin_local_context(None)
context = local_context(1, "quiet")
print(len(jvms()))
print(context.parallelize([1], 1).map(lambda one: one + 1).collect())
stop_context(context)
"""


@pytest.mark.slow
def test_a_session_runs_in_the_jvm_that_was_launched_for_it_before() -> None:
    done = subprocess.run([sys.executable, "-c", EARLY], stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n[2]\n", b"")


def test_a_java_that_is_too_old_is_named(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        '#!/bin/sh\necho \'openjdk version "11.0.2"\' >&2\n[ "$1" = -version ] && exit\n'
        "echo java.lang.UnsupportedClassVersionError: org/apache/spark >&2\nexit 1\n"
    )
    java.chmod(0o755)
    command, env = [sys.executable, "-c", SCRIPT], {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert f"JavaMissing: {java} is Java 11. Weir needs Java 17 or newer" in done.stderr
    assert "UnsupportedClassVersionError" not in done.stderr


def test_what_a_jvm_says_that_ends_before_it_is_up_is_passed_on(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        '#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "17.0.2"\' >&2 && exit\n'
        "echo no room for the heap >&2\nexit 1\n"
    )
    java.chmod(0o755)
    command, env = [sys.executable, "-c", SCRIPT], {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert "Spark's JVM ended before it was up" in done.stderr
    assert "no room for the heap" in done.stderr


@pytest.mark.parametrize("abandoned", [False, True])
def test_a_jvm_that_weir_gives_up_at_the_end_is_told_as_no_trouble(
    abandoned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind an error such as a wrong address, a line about Java would have readers look in the wrong place."""

    def killed(conf: object) -> None:
        raise RuntimeError("it was killed")

    monkeypatch.setattr(gateway, "_connection", killed)
    monkeypatch.setattr(gateway, "_abandoned", abandoned)
    with caplog.at_level(logging.INFO, "weir"):
        gateway.launch_early("error")
        eventually(lambda: not any(thread.name == "weir-spark-jvm" for thread in threading.enumerate()))
    assert ("Spark's JVM could not be launched ahead of time: it was killed" in caplog.text) is not abandoned


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.05, 8.0])
def test_a_process_that_needs_no_session_after_all_leaves_nothing(seconds: float) -> None:
    mark = uuid.uuid4().hex
    script = f"from pipeline.runtime.driver.spark.spark_job import begin_local_context as begin; begin(None); {LATER}"
    env = {**os.environ, "WEIR_TEST_SCRIPT": mark}
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", script.format(seconds)], env=env, check=True, timeout=300)
    assert time.monotonic() - began < seconds + 120
    await_end(mark)


def await_end(mark: str) -> None:
    """Of all processes with this mark."""
    eventually(lambda: not any(environment(one).get("WEIR_TEST_SCRIPT") == mark for one in psutil.process_iter()))


LATER = "import time; time.sleep({})"


def environment(process: psutil.Process) -> dict[str, str]:
    try:
        return dict(process.environ())
    except psutil.Error:
        return {}


@pytest.mark.parametrize(
    ("name", "module", "passes"),
    [
        ("root", "java_gateway", False),
        ("root", "clientserver", False),
        ("root", "orders", True),
        ("orders", "java_gateway", True),
    ],
)
def test_of_the_root_loggers_messages_only_those_of_a_lost_jvm_are_left_out(
    name: str, module: str, passes: bool
) -> None:
    record = logging.LogRecord(name, logging.ERROR, f"/somewhere/{module}.py", 1, "lost", None, None)
    assert _no_lost_connection(record) is passes
