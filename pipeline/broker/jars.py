"""Fetching the broker's jars with the Ivy that PySpark ships, once per machine and user."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pipeline.broker.java import find_java
from pipeline.cache import cache_dir

KAFKA_VERSION: Final = "4.2.1"
"""Kafka 4.3.0 and 4.4.0 may forget commits that they have acknowledged; see `sinks.kafka.hanging`."""
_LOG4J_VERSION: Final = "2.25.5"
_FETCH_TIMEOUT_S: Final = 900.0
_MARKER: Final = "complete"

_IVY_MODULE: Final = """\
<ivy-module version="2.0">
  <info organisation="weir" module="kafka-broker"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{version}" conf="default->default"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{version}" conf="default->default"
        transitive="false"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="{log4j}" conf="default->default"/>
  </dependencies>
</ivy-module>
"""

log = logging.getLogger(f"weir.{__name__}")


class FetchFailed(RuntimeError):
    """The jars could not be fetched; the message has the end of Ivy's output."""


def jars_folder(root: Path, version: str = KAFKA_VERSION) -> Path:
    """Where Kafka's jars are kept below `root`. Another list of jars has another folder, so that it is fetched anew."""
    return root / f"kafka-{version}-{hashlib.sha256(_ivy_module(version).encode()).hexdigest()[:8]}"


def _ivy_module(version: str) -> str:
    return _IVY_MODULE.format(version=version, log4j=_LOG4J_VERSION)


def kafka_jars(root: Path | None = None, version: str = KAFKA_VERSION) -> Path:
    """The folder with Kafka's jars, fetched at the first call (45 MB from Maven Central, below a minute as a rule).

    Several processes may call this at once: one fetches, the others wait. A fetch that was interrupted isn't taken
    for a good one. `WEIR_IVY_SETTINGS` names an Ivy settings file, for a mirror or a proxy.

    Raises:
        FetchFailed: Ivy failed (no network, as a rule).
        JavaMissing: see `pipeline.broker.java.find_java`.
    """
    folder = jars_folder(cache_dir() if root is None else root, version)
    if _is_complete(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f"{folder.name}.lock")):
        if not _is_complete(folder):
            _fetch(folder, version)
    return folder


def ivy_jar() -> Path:
    """Ivy, as the installed PySpark ships it.

    Raises:
        FetchFailed: this PySpark has none.
    """
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    found = sorted(jars.glob("ivy-*.jar"))
    if not found:
        raise FetchFailed(
            f"PySpark {pyspark.__version__} has no ivy-*.jar in {jars}, which fetches Kafka. "
            "Install PySpark with pip, or point WEIR_KAFKA_BOOTSTRAP at a running broker."
        )
    return found[-1]


def _is_complete(folder: Path) -> bool:
    """Whether every jar that the fetch listed is there with its size."""
    try:
        lines = (folder / _MARKER).read_text().splitlines()
    except FileNotFoundError:
        return False
    for line in lines:
        size, _, name = line.partition(" ")
        try:
            if (folder / name).stat().st_size != int(size):
                return False
        except FileNotFoundError:
            return False
    return bool(lines)


def _fetch(folder: Path, version: str) -> None:
    log.info("fetching Kafka %s into %s", version, folder)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as scratch:
        work = Path(scratch)
        (work / "ivy.xml").write_text(_ivy_module(version))
        target = work / "jars"
        settings = os.environ.get("WEIR_IVY_SETTINGS")
        command = [
            *(find_java(), "-jar", str(ivy_jar())),
            *(("-settings", settings) if settings else ()),
            *("-cache", str(work / "cache"), "-ivy", str(work / "ivy.xml"), "-confs", "default"),
            *("-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"),
            *("-types", "jar", "bundle", "-warn"),
        ]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_FETCH_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise FetchFailed(f"fetching Kafka {version} took longer than {_FETCH_TIMEOUT_S:g} s") from error
        jars = sorted(target.glob("*.jar"))
        missing = [
            need for need in ("kafka_2.13", "kafka-clients", "kafka-tools", "log4j-slf4j-impl") if not _has(jars, need)
        ]
        if done.returncode != 0 or missing:
            raise FetchFailed(
                f"Ivy could not fetch Kafka {version} (exit status {done.returncode}"
                f"{', lacks ' + ', '.join(missing) if missing else ''}). Is Maven Central in reach? A mirror can be "
                f"named by WEIR_IVY_SETTINGS, a running broker by WEIR_KAFKA_BOOTSTRAP. Ivy said:\n{_tail(done.stdout)}"
            )
        (target / _MARKER).write_text("".join(f"{jar.stat().st_size} {jar.name}\n" for jar in jars))
        if folder.exists():
            shutil.rmtree(folder)  # a damaged one
        target.rename(folder)


def _has(jars: list[Path], artifact: str) -> bool:
    return any(jar.name.startswith(f"{artifact}-") for jar in jars)


def _tail(output: str, lines: int = 25) -> str:
    told = [line for line in output.splitlines() if line.strip(" .") and not line.lstrip(" .").startswith("(")]
    return "\n".join(told[-lines:])


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # goes with the process, so a killed one leaves no stale lock
        yield
