"""When and where something was measured: versions of what took part, and the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final

import confluent_kafka
import psutil

from pipeline.broker.jars import KAFKA_VERSION
from pipeline.broker.java import find_java
from pipeline.version import VERSION

_PACKAGES: Final = ("pyspark", "confluent-kafka", "pyarrow", "ormsgpack", "orjson", "rocksdict")


@dataclass(frozen=True)
class Machine:
    system: str
    cores: int
    """Those that this process may use."""
    memory: int
    """Bytes."""
    load_before: float
    """Processes that ran or waited for a CPU, a mean over the minute before the measurement."""
    load_after: float
    """The same when it had ended; the measurement is in it."""


@dataclass(frozen=True)
class Environment:
    when: str
    """When it began, in UTC."""
    seconds: float
    """How long it took."""
    versions: dict[str, str]
    machine: Machine


class EnvironmentProbe:
    """Begin one before a measurement, and ask for `environment` after it."""

    def __init__(self) -> None:
        self._began = datetime.now(UTC)
        self._load = os.getloadavg()[0]

    def environment(self, kafka: str | None = None) -> Environment:
        """`kafka`: version of the broker, if one took part and it is known."""
        return Environment(
            when=self._began.isoformat(timespec="seconds"),
            seconds=round((datetime.now(UTC) - self._began).total_seconds(), 1),
            versions=_versions(kafka),
            machine=Machine(
                system=platform.platform(),
                cores=_cores(),
                memory=psutil.virtual_memory().total,
                load_before=round(self._load, 2),
                load_after=round(os.getloadavg()[0], 2),
            ),
        )


def own_kafka(bootstrap: str | None) -> str | None:
    """The version of the broker that a measurement starts; `None` if it uses the one at `bootstrap`."""
    return KAFKA_VERSION if bootstrap is None else None


def _versions(kafka: str | None) -> dict[str, str]:
    versions = {
        "weir": VERSION,
        "python": platform.python_version(),
        "java": _java(),
        **{package: version(package) for package in _PACKAGES},
        "librdkafka": confluent_kafka.libversion()[0],
    }
    return versions if kafka is None else {**versions, "kafka": kafka}


def _java() -> str:
    told = subprocess.run([find_java(), "-version"], capture_output=True, text=True, timeout=60, check=True)
    return next((line.split('"')[1] for line in told.stderr.splitlines() if '"' in line), told.stderr.strip())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
