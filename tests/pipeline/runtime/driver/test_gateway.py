"""The JVM of Weir's own sessions starts silently, and what workers print still comes out."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
from pipeline.runtime.driver.spark_job import local_context
context = local_context(1, "quiet")
context.parallelize([1], 1).foreach(lambda _: print("from a worker", flush=True))
context.stop()
"""


@pytest.mark.slow
def test_nothing_is_printed_but_what_workers_print() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "from a worker\n")


KILLED = """
import os, threading, time
import psutil
from pipeline.runtime.driver import gateway
from pipeline.runtime.driver.spark_job import local_context

def alive():
    return [one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]

threading.Thread(target=local_context, args=(1, "quiet"), daemon=True).start()
while not any("java" in one.name() for one in alive()):
    time.sleep(0.01)
gateway.kill()
print(alive(), flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_a_jvm_can_be_killed_while_it_starts() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], stdin=subprocess.DEVNULL, capture_output=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, b"[]\n")
