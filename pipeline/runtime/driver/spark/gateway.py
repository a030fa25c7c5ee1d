"""The JVM of Weir's own Spark sessions: quick to start, and silent."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from pipeline.broker.java import JavaMissing, find_java, java_path
from pipeline.class_archive import EXIT_SECONDS, ClassArchive, class_archive
from pipeline.logs import log_format
from pipeline.runtime.driver.spark.allocators import JVM_SETTINGS, not_set
from pipeline.runtime.driver.spark.daemon_process import daemons, release_daemons, remove_folders

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_NOISE: Final = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
"""The first thing that the JVM says, since Spark's launcher adds the module; no option of the JVM turns it off."""
_EXIT_SECONDS: Final = 5.0
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOG = logging.getLogger(f"weir.{__name__}")


_archive = ClassArchive()
"""Of this process's JVM."""
_launching = False
"""The JVM is on its way, and nobody has its process yet."""
_launched: subprocess.Popen[bytes] | None = None
_lock = threading.Lock()
"""Held while it is launched."""
_newest: Any = None
"""The connection to it, or to one before that has ended."""
_asked_for = False
"""Somebody wants a session in it."""
_abandoned = False
"""This process ends before it was up: its end is no trouble."""


def java_options(log_level: str) -> str:
    """JVM options for a driver that only schedules: the second compiler would take longer than it could ever save."""
    return " ".join(
        (
            f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
            f"-Dweir.spark.log.level={log_level.lower()}",
            f"-Dweir.log.format={log_format()}",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            # What a start leaves behind is 70 MB, which nobody would collect before a third of the heap is full.
            "-Xmn8m",
        )
    )


def _archived_classes(conf: Any) -> ClassArchive:
    """Adds to the JVM's options what makes it start faster."""
    import pyspark

    archive = class_archive("spark", java_path(), Path(pyspark.__file__).parent / "jars")
    options = (conf.get(JAVA_OPTIONS, ""), *(shlex.quote(option) for option in archive.options))
    conf.set(JAVA_OPTIONS, " ".join(options))
    return archive


def launch_early(log_level: str) -> None:
    """Begin to launch the JVM, in a thread, for a session that is about to be asked for."""
    from pyspark import SparkConf

    conf = SparkConf(loadDefaults=False).set(JAVA_OPTIONS, java_options(log_level))

    def launch() -> None:
        try:
            _connection(conf)
        except Exception as error:
            # Whoever asks for the session launches it once more, and fails with what is wrong.
            if not _abandoned:
                _LOG.info("Spark's JVM could not be launched ahead of time: %s", error)

    threading.Thread(target=launch, name="weir-spark-jvm", daemon=True).start()


@atexit.register
def _abandon() -> None:
    """A JVM that isn't up yet has nothing to end."""
    global _abandoned
    if _launching:
        _abandoned = True
        kill(wait=False)


def gateway(conf: Any) -> Any:
    """This process's connection to its JVM, started with `conf` at the first call (a process has one JVM for good).

    The JVM's standard error is passed on, without its first warning. At the exit of this process the JVM is waited for.
    """
    global _asked_for
    _asked_for = True
    return _connection(conf)


def _connection(conf: Any) -> Any:
    global _newest
    from pyspark import SparkContext

    with _lock:
        if SparkContext._gateway is not None:
            return SparkContext._gateway
        if _newest is None or (_newest.proc is not None and _newest.proc.poll() is not None):
            _newest = _launch(conf)
        return _newest


def _launch(conf: Any) -> Any:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    # In a process group of its own, so that what a terminal or `timeout` sends to all of this one's comes here only:
    # Spark must live until the job has taken its last checkpoint. It ends with this process, whose pipe it reads.
    source, sink = os.pipe()
    relay = _Relay(source)
    relay.start()
    global _archive, _launched, _launching
    _archive = _archived_classes(conf)
    try:
        _launching = True
        # No others: this is a thread beside the main one.
        with _environment({**not_set(JVM_SETTINGS, os.environ), "PYTHONSAFEPATH": "1"}):
            started: Any = launch_gateway(conf, {"stderr": sink, "process_group": 0})  # type: ignore[no-untyped-call]
        _launched = started.proc
        relay.pass_on()
    except PySparkRuntimeError as error:
        try:
            find_java()  # it may be too old, and says so; what the JVM has said of that explains nothing
        except JavaMissing:
            relay.drop()
            raise
        relay.pass_on()
        raise RuntimeError(
            "Spark's JVM ended before it was up: it was killed, or Java can't run it; what it said is above"
        ) from error
    finally:
        _launching = False
        os.close(sink)
    logging.getLogger().addFilter(_no_lost_connection)
    if started.proc is not None:
        atexit.register(_end, started.proc, relay)
    return started


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Has these variables meanwhile: what is started inherits them.

    With `PYTHONSAFEPATH` Python workers don't look for modules in the current folder first, where a script of the
    user's may be called pipeline.py.
    """
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _no_lost_connection(record: logging.LogRecord) -> bool:
    """Py4J logs to the root, with the traceback, that the JVM is gone, which is raised as well."""
    return not (record.name == "root" and record.module in ("java_gateway", "clientserver"))


class _Relay(threading.Thread):
    """Passes on what the JVM writes, but for its first line if that is the noise. It is held back until `pass_on` or
    `drop`."""

    def __init__(self, source: int) -> None:
        super().__init__(name="weir-spark-stderr", daemon=True)
        self._source = source
        self._lock = threading.Lock()
        self._held: list[bytes] | None = []
        self._dropped = False

    def pass_on(self) -> None:
        with self._lock:
            for chunk in self._held or ():
                _write(chunk)
            self._held = None

    def drop(self) -> None:
        """Also what comes from now on."""
        with self._lock:
            self._held, self._dropped = None, True

    def run(self) -> None:
        with open(self._source, "rb", buffering=0) as stream:
            first = b""
            while _NOISE.startswith(first) and (chunk := stream.read(65536)):
                first += chunk
                if first.startswith(_NOISE):
                    first = first[len(_NOISE) :]
                    break
            chunk = first
            while chunk is not None:
                self._take(chunk)
                chunk = stream.read(65536) or None

    def _take(self, chunk: bytes) -> None:
        with self._lock:
            if self._held is not None:
                self._held.append(chunk)
            elif not self._dropped:
                _write(chunk)


def _write(data: bytes) -> None:
    while data:
        try:
            data = data[os.write(2, data) :]
        except OSError:
            return  # nobody listens any more


def _end(process: subprocess.Popen[bytes], relay: threading.Thread) -> None:
    """Let the JVM end, and what workers printed come out."""
    if not _asked_for:  # its archive would hold next to nothing
        process.kill()
    release_daemons()
    workers = [*_descendants(process.pid), *daemons()]
    if process.stdin is not None:
        process.stdin.close()  # what PySpark's JVM takes as the sign to end
    try:
        if process.wait(EXIT_SECONDS if _archive.is_made else _EXIT_SECONDS) >= 0:  # not killed meanwhile
            _archive.keep()
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _archive.discard()
    _, left = psutil.wait_procs(workers, _EXIT_SECONDS)
    _kill(left)
    psutil.wait_procs(left, _EXIT_SECONDS)
    relay.join(_EXIT_SECONDS)


def kill(wait: bool = True) -> None:
    """End the JVM and its workers at once: this process is about to end, and nobody waits for what they still do."""
    if family := [*_jvm(), *daemons()]:
        _kill(family)
        remove_folders()
        _archive.discard()
        if wait:
            psutil.wait_procs(family, _EXIT_SECONDS)


def jvm_pid() -> int | None:
    """Of this process's JVM, though no session may have been made in it; `None`: it has launched none."""
    return None if _launched is None else _launched.pid


def _jvm() -> list[psutil.Process]:
    """The JVM and its workers, or what is about to become the JVM."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None) or _launched
    if process is not None:
        return _family(process.pid)
    if not _launching:
        return []
    return [one for child in psutil.Process().children() if _launches(child) for one in _family(child.pid)]


def _launches(child: psutil.Process) -> bool:
    try:
        return any("spark-submit" in word or "SparkSubmit" in word for word in child.cmdline())
    except psutil.Error:
        return False  # it has ended meanwhile


def lost_jvm(context: Any) -> str | None:
    """What is known of the end of the session's JVM; `None` if it runs."""
    java = context._jsc
    if java is None:
        return None  # the session was stopped
    try:
        java.sc().isStopped()
    except Exception as error:  # Py4J raises this and that, depending on when it notices
        process = getattr(context._gateway, "proc", None)
        if process is None:
            return f"Spark's JVM is gone ({type(error).__name__})"
        try:
            status = process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return f"Spark's JVM, process {process.pid}, doesn't answer ({type(error).__name__})"
        how = f"it ended with status {status}"
        if status < 0:
            how = f"{signal.Signals(-status).name} ended it, perhaps the system, for want of memory"
        return f"Spark's JVM, process {process.pid}, is gone: {how}"
    return None


def _descendants(pid: int) -> list[psutil.Process]:
    return _family(pid)[1:]


def _family(pid: int) -> list[psutil.Process]:
    """A process and its descendants, as far as there are any."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass  # it has ended meanwhile
