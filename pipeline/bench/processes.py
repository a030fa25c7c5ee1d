"""Which processes a job of this driver has."""

from __future__ import annotations

import os

import psutil

from pipeline.bench.spark_jvm import jvm_pid
from pipeline.handle import JobHandle
from pipeline.runtime.driver.spark.daemon_process import daemons


def processes(handle: JobHandle) -> set[int]:
    """Process ids: this one, the JVM and whatever it has started, the process that workers are forked from, and the
    subtasks'. A broker that this process has started isn't among them."""
    found = {os.getpid(), *handle.processes().values(), *(one.pid for one in daemons())}
    jvm = jvm_pid()
    if jvm is not None:
        try:
            found |= {jvm, *(child.pid for child in psutil.Process(jvm).children(recursive=True))}
        except psutil.NoSuchProcess:
            pass  # it has ended
    return found
