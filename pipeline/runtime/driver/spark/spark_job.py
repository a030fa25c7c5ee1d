"""Spark as Weir uses it: a session, and one barrier job for each attempt."""

from __future__ import annotations

import itertools
import logging
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import cloudpickle as _cloudpickle

from pipeline.errors import PipelineError
from pipeline.runtime.driver.spark import daemon_process
from pipeline.runtime.driver.spark.allocators import SETTINGS, not_set
from pipeline.runtime.driver.spark.gateway import JAVA_OPTIONS, gateway, java_options, launch_early
from pipeline.runtime.driver.spark.given_session import begin_workers, run_in_workers
from pipeline.runtime.driver.spark.numpy_arguments import ask_of_numpys_only
from pipeline.runtime.encryption import EXTRA
from pipeline.runtime.versions import versions

cloudpickle: Any = _cloudpickle  # untyped

_LOG = logging.getLogger(f"weir.{__name__}")
_WORKER_SAID, _ITS_PATH = "Error from python worker:", "PYTHONPATH was:"
"""What Spark puts around the output of a Python that doesn't start."""
_BOOKED_MS = 1000
_TASKS = 100_000
_NO_WEIR = "Weir can't be imported by"
_NO_DAEMON = ("No module named 'pipeline'", "No module named 'pyspark_weir'")
"""Where Weir's own daemon is to start the Python workers, but Weir isn't installed."""
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""The variable by which `spark-submit` tells a script where its JVM is."""
_MASTER = re.compile(r"local(\[.+\])?|spark://\S+|yarn|k8s://\S+")
_OWN_WORKERS = {
    # A worker is its subtask's process: what a failed attempt left in it must not meet the next one.
    "spark.python.worker.reuse": "false",
    "spark.stage.maxConsecutiveAttempts": "1",
}
_HOPELESS = (_NO_WEIR, *_NO_DAEMON, "PYTHON_VERSION_MISMATCH", EXTRA)
"""In a line of a worker's error that says enough: no restart helps."""


def spark_context(given: Any, subtasks: int, name: str) -> tuple[Any, bool]:
    """The `SparkContext` to run in, and whether it is Weir's own (to be stopped with the job).

    The one given, else the active one, else that of `spark-submit`, which has started this script, else one of Weir's
    own, at the master whose URL is given, else `local[subtasks]`.

    Raises:
        PipelineError: the session can't run a barrier job as Weir needs it; the message says what to change.
    """
    if os.environ.get("SPARK_REMOTE") or os.environ.get("SPARK_CONNECT_MODE_ENABLED"):
        raise PipelineError(
            "Spark Connect can't run barrier jobs over RDDs; unset SPARK_REMOTE and use a classic session"
        )
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkContext._active_spark_context
    if isinstance(given, str):
        if not _MASTER.fullmatch(given):
            raise PipelineError(
                "spark must be a classic SparkSession, a SparkContext or a master's URL (local[4], spark://host:7077, "
                f"yarn, k8s://…), not {given!r}"
            )
        if active is not None:
            raise PipelineError(
                f"a Spark session at {active.master} is active already, so none can be started at {given}: stop it, or "
                "name no master"
            )
        if SUBMITTED in os.environ:
            raise PipelineError(f"spark-submit has chosen the master already: give it --master {given}")
        start = local_context if given.startswith("local") else _cluster_context
        return _own(start(subtasks, f"weir: {name}", given)), True
    if given is None:
        given = active
    if given is None and SUBMITTED in os.environ:
        return _own(_submitted_context()), True
    if given is not None:
        context = given
        if not isinstance(given, SparkContext):
            if not isinstance(given, SparkSession):
                raise PipelineError(
                    "spark must be a classic SparkSession, a SparkContext or a master's URL, not "
                    f"{type(given).__module__}.{type(given).__name__}; Spark Connect can't run barrier jobs over RDDs"
                )
            context = given.sparkContext
        return _checked(context), False
    return local_context(subtasks, f"weir: {name}"), True


def _checked(context: Any) -> Any:
    check_session(context)
    _warn_of_open_ports(context)
    if "PYSPARK_PYTHON" not in os.environ:
        # The context has looked for it already, and would use whatever `python3` each host has.
        os.environ["PYSPARK_PYTHON"] = context.pythonExec = sys.executable
    return context


def _own(context: Any) -> Any:
    """Checked, and stopped if it can't be used."""
    try:
        return _checked(context)
    except BaseException:
        stop_context(context)
        raise


def _submitted_context() -> Any:
    """In the JVM of `spark-submit`, with the master and the settings that it was given."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    conf = SparkConf()
    for key, value in _OWN_WORKERS.items():
        conf.setIfMissing(key, value)
    return SparkContext(conf=conf)


def _cluster_context(_: int, name: str, master: str) -> Any:
    """A new `SparkContext` on a cluster, with the settings of `spark-defaults.conf`."""
    from pyspark import SparkConf, SparkContext

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    log_level = _log_level()
    conf = SparkConf().setMaster(master).setAppName(name)
    conf.set(JAVA_OPTIONS, java_options(log_level)).set("spark.ui.showConsoleProgress", "false")
    for key, value in _OWN_WORKERS.items():
        conf.set(key, value)
    for name, value in SETTINGS.items():
        conf.setIfMissing(f"spark.executorEnv.{name}", value)
    try:
        context = SparkContext(conf=conf, gateway=gateway(conf))
    except Exception as error:
        raise PipelineError(f"no Spark session could be started at {master}: {_telling(str(error))}") from error
    context.setLogLevel(log_level)
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    return context


def begin_local_context(given: Any) -> None:
    """Start what takes long of the session that `spark_context` will start, if it will be a local one of Weir's own. In
    one that runs, start what its workers will be forked from."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running = SparkContext._active_spark_context if given is None else given
    if isinstance(running, SparkSession):
        running = running.sparkContext
    if isinstance(running, SparkContext) and running._jsc is not None:
        begin_workers(running)
    local = given is None or (isinstance(given, str) and given.startswith("local") and _MASTER.fullmatch(given))
    taken = SparkContext._active_spark_context is not None or SUBMITTED in os.environ
    if not local or taken or os.environ.get("SPARK_REMOTE") or os.environ.get("SPARK_CONNECT_MODE_ENABLED"):
        return
    _set_local_environment()
    # First, since the environment is the JVM's while that is launched.
    if not _early_daemons and (daemon := daemon_process.start_daemon()) is not None:
        _early_daemons.append(daemon)
    launch_early(_log_level())


_early_daemons: list[daemon_process.DaemonProcess] = []
"""The one for a session that is about to be started, if any."""


def _set_local_environment() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Else Spark looks the host's name up, and warns when that is a loopback address.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _log_level() -> str:
    return os.environ.get("WEIR_SPARK_LOG_LEVEL", "OFF")


def local_context(slots: int, name: str, master: str | None = None) -> Any:
    """A new `SparkContext` in this process, set up as Weir likes it."""
    from pyspark import SparkConf, SparkContext

    _set_local_environment()
    log_level = _log_level()
    conf = SparkConf()
    conf.setMaster(master or f"local[{slots}]").setAppName(name)
    conf.set(JAVA_OPTIONS, java_options(log_level))
    conf.set("spark.ui.enabled", os.environ.get("WEIR_SPARK_UI", "false"))
    conf.set("spark.ui.showConsoleProgress", "false")
    conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    # Else every user of this machine could read what Spark's block manager holds. Spark makes the secret.
    conf.set("spark.authenticate", "true").set("spark.network.crypto.enabled", "true")
    conf.set("spark.python.daemon.module", daemon_process.MODULE)
    for key, value in _OWN_WORKERS.items():
        conf.set(key, value)
    ask_of_numpys_only()
    daemon = _early_daemons.pop() if _early_daemons else daemon_process.start_daemon()
    try:
        context = SparkContext(conf=conf, gateway=gateway(conf))
    except BaseException:
        if daemon is not None:
            daemon.end()
        raise
    context.environment.update(not_set(SETTINGS, os.environ))  # else they would have the JVM's
    if daemon is not None:
        daemon.serve(context)
        _daemons[context] = daemon
    context.setLogLevel(log_level)
    # When the JVM is gone, this has nothing to tell that a job doesn't tell better.
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    return context


_daemons: weakref.WeakKeyDictionary[Any, daemon_process.DaemonProcess] = weakref.WeakKeyDictionary()
"""By session."""


def stop_context(context: Any) -> None:
    """Stop a session of Weir's own, whatever state it is in."""
    from pyspark import SparkContext

    try:
        context.stop()
    except Exception as error:
        # What PySpark raises depends on how far the JVM is gone; the job's own end tells what became of it.
        _LOG.warning("Spark could not be stopped, its JVM is gone (%s)", type(error).__name__)
        if SparkContext._active_spark_context is context:
            # A later job in this process needs a JVM of its own.
            SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    if (daemon := _daemons.pop(context, None)) is not None:
        daemon.end()


_warned: set[str] = set()
"""Sessions, by application id."""


def is_on(conf: Any, key: str) -> bool:
    """Whether this setting of Spark's, which is off by default, is on."""
    return bool(conf.get(key, "false").lower() == "true")


def _warn_of_open_ports(context: Any) -> None:
    conf, application = context.getConf(), context.applicationId
    if is_on(conf, "spark.authenticate") or application in _warned:
        return
    _warned.add(application)
    secret = "" if str(context.master).startswith("local") else " and spark.authenticate.secret, the same on all hosts"
    _LOG.warning(
        "spark.authenticate is off in this Spark session: whoever reaches its ports, every user of this machine "
        "included, may read its blocks, run code in it and take part in its jobs. Set spark.authenticate=true%s before "
        "the session starts (docs/security.md)",
        secret,
    )


def check_session(context: Any) -> None:
    """
    Raises:
        PipelineError: the session can't run a barrier job as Weir needs it, or runs no more.
    """
    if context._jsc is None:
        raise PipelineError("the Spark session given has been stopped; give one that runs")
    conf = context.getConf()
    for key, why in (
        ("spark.dynamicAllocation.enabled", "executors that come and go would end the job's long-lived tasks"),
        ("spark.speculation", "a second copy of a subtask would read and write twice"),
    ):
        if is_on(conf, key):
            raise PipelineError(f"{key} is on, and {why}; set it to false for sessions that run Weir")


class SparkJob:
    """One barrier job of `subtasks` partitions, submitted from a thread of its own."""

    def __init__(
        self,
        context: Any,
        subtasks: int,
        run_subtask: Callable[[bytes], None],
        secret: bytes,
        description: str,
        on_end: Callable[[SparkJobFailed | None], None],
    ):
        """
        Args:
            run_subtask: called with the secret in every partition; pickled here. Spark's block managers give it away.
            secret: travels as the data of the partitions, which are parts of tasks and never a block.
            on_end: called once, from the submitting thread, with the job's error or `None`.
        """
        self._context = context
        self._subtasks = subtasks
        self._partition = _partition_function(run_subtask)
        self._secret = secret
        self._description = description
        self._on_end = on_end
        self._tag = f"weir-{id(self):x}-{time.time_ns():x}"
        self._thread = threading.Thread(target=self._submit, name="weir-spark-job", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def cancel(self) -> None:
        """Ask Spark to end it; returns at once."""
        self._context.cancelJobsWithTag(self._tag)

    def _submit(self) -> None:
        error: SparkJobFailed | None = None
        try:
            self._context.addJobTag(self._tag)
            self._context.setJobDescription(self._description)
            rdd = self._context.parallelize([self._secret] * self._subtasks, self._subtasks)
            subtasks = rdd.barrier().mapPartitions(self._partition)
            run_in_workers(self._context, subtasks)
            subtasks.collect()
        except BaseException as caught:
            error = _failure(self._cause(caught))
        self._on_end(error)

    def _cause(self, error: BaseException) -> str:
        """What went wrong, without dozens of Java frames. For a barrier stage Spark's error only names the task, so the
        failed tasks' own errors are looked up; a worker's traceback says most."""
        texts = []
        try:
            java = self._context._jsc.sc()
            java.listenerBus().waitUntilEmpty(_BOOKED_MS)  # the store hears of a task's end a moment after us
            for job in java.statusTracker().getJobIdsForTag(self._tag):
                for stage in java.statusTracker().getJobInfo(job).get().stageIds():
                    tasks = java.statusStore().taskList(stage, 0, _TASKS)
                    failed = [task for i in range(tasks.size()) if (task := tasks.apply(i)).status() == "FAILED"]
                    texts += [task.errorMessage().get() for task in failed if task.errorMessage().isDefined()]
        except Exception as problem:
            _LOG.warning("Spark doesn't tell the tasks' errors: %s", problem)
        causes = [_telling(text) for text in (*texts, str(error))]
        return next((cause for cause in causes if "Traceback" in cause), causes[0])


def _partition_function(run_subtask: Callable[[bytes], None]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What Spark unpickles in its workers. Needs nothing of Weir until it is called, so that it can say where Weir is
    missing; else Spark would only say that some module is."""
    pickled: bytes = cloudpickle.dumps(run_subtask)
    wanted = versions()["Weir"]
    no_weir = _NO_WEIR  # a global would be looked up in this module, so in Weir

    def partition(data: Iterator[Any]) -> Iterator[Any]:
        import pickle
        import socket
        import sys

        try:
            run = pickle.loads(pickled)
        except ImportError as error:
            raise RuntimeError(
                f"host {socket.gethostname()}: {no_weir} {sys.executable} ({error}); install weir-streams {wanted} "
                "there, or point PYSPARK_PYTHON to a Python that has it"
            ) from error
        (secret,) = data  # to its end: Spark uses a worker again only if that was read
        run(secret)
        return iter(())

    return partition


class SparkJobFailed(RuntimeError):
    """The Spark job failed; the message says why."""

    def __init__(self, message: str, permanent: bool = False):
        """`permanent`: another attempt would fail alike."""
        super().__init__(message)
        self.permanent = permanent


def _failure(cause: str) -> SparkJobFailed:
    hopeless = [line for line in cause.splitlines() if any(sign in line for sign in _HOPELESS)]
    if not hopeless:
        return SparkJobFailed(cause)
    reason = hopeless[-1].strip()
    if _NO_WEIR not in reason and any(sign in reason for sign in _NO_DAEMON):
        reason += (
            f"; install weir-streams {versions()['Weir']} on all hosts, or point PYSPARK_PYTHON to a Python that has it"
        )
    return SparkJobFailed(reason, permanent=True)


def _telling(text: str) -> str:
    """A worker's Python traceback if there is one in a Spark error, else what the worker's Python said, else its first
    telling line."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    for i, line in enumerate(lines):
        if line.strip().endswith("Traceback (most recent call last):"):
            return "\n".join(["Traceback (most recent call last):", *lines[i + 1 : i + 40]])
    if _WORKER_SAID in lines:
        said = lines[lines.index(_WORKER_SAID) + 1 :]
        return "\n".join(line.strip() for line in itertools.takewhile(lambda line: line != _ITS_PATH, said))
    telling = [line.strip() for line in lines if "Error" in line or "Exception" in line or "crashed" in line]
    return (telling or lines or ["no reason given"])[0][:500]
