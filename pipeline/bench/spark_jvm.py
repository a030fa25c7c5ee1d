"""The JVM of this process's Spark session: its process, and its time in garbage collection."""

from __future__ import annotations

from typing import Any


def jvm_pid() -> int | None:
    """`None` before a session was made, or where the session runs in a JVM that is not ours."""
    gateway = _gateway()
    return None if gateway is None or gateway.proc is None else int(gateway.proc.pid)


def jvm_gc_ms() -> int:
    """Milliseconds that its collectors have taken since it started; 0 before a session was made."""
    gateway = _gateway()
    if gateway is None:
        return 0
    beans = gateway.jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
    return sum(max(0, int(bean.getCollectionTime())) for bean in beans)


def _gateway() -> Any:
    from pyspark import SparkContext

    return SparkContext._gateway
