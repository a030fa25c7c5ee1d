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
