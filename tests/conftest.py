"""One broker for all tests, topics of their own for each, a sample of the longest tables, and a look at the end for
processes left behind.

Rows of tables that are marked `matrix`, and costly tests and tables that are marked `sample` (as tests of whole jobs,
and others with a broker or Spark, are if they say nothing else), are sampled: which of them a run takes is decided by
its seed, which it prints (`pytest --seed N` takes the same again, and draws the same in tests that draw something).
`--sample 1` takes all.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import psutil
import pytest
import s3_server
from hypothesis import settings
from s3_server import Bucket, S3Server
from sampling import left_out, mark_costly
from scratch import use_memory
from shared_broker import SharedBroker

from pipeline import class_archive
from pipeline.testing import KafkaBroker, failpoints
from pipeline.testing.kafka_backends import docker_trouble

_SESSION = "WEIR_TEST_SESSION"
_SEED = "WEIR_STRESS_SEED"
_GRACE_S = 10.0

# Else each of the many processes that tests start would compile Weir again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

os.environ[_SESSION] = uuid.uuid4().hex  # inherited by whatever tests start, however indirectly
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault(class_archive.VARIABLE, "use")  # making one takes a JVM some seconds
os.environ.update(s3_server.ENVIRONMENT)  # before Spark starts, whose workers inherit it
_scratch = None if "PYTEST_XDIST_WORKER" in os.environ else use_memory()  # workers inherit it
_left_by_workers: list[str] = []
_at_end: list[Callable[[], None]] = []
_at_exit = ExitStack()
_state_folder = tempfile.TemporaryDirectory(prefix="weir-jobs-")
os.environ["WEIR_STATE_DIR"] = _state_folder.name

# How long an example takes says something of the machine's load, not of the code.
settings.register_profile("weir", deadline=None)
settings.load_profile("weir")

TopicMaker = Callable[..., str]


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> KafkaBroker:
    """The broker that all tests share: that of WEIR_KAFKA_BOOTSTRAP, else a native one. Not to be killed."""
    if os.environ.get("WEIR_KAFKA_BOOTSTRAP"):
        return KafkaBroker.start(kind="running")
    folder = tmp_path_factory.getbasetemp()
    shared = SharedBroker(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder)
    _at_end.append(shared.leave)  # not in this fixture: the end of a worker's last test has a timeout
    return shared.join()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server for all tests. Not to be killed or stopped."""
    with S3Server.start() as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    """An empty bucket."""
    return s3.new_bucket()


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """`unique_name("orders")`: a name for a topic, group or pipeline that no other test or run uses."""
    test = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60].strip("-")

    def make(hint: str = "name") -> str:
        return f"{test}-{hint}-{uuid.uuid4().hex[:8]}"

    return make


@pytest.fixture
def make_topic(kafka: KafkaBroker, unique_name: Callable[[str], str]) -> TopicMaker:
    """`make_topic("in", partitions=3)`: creates a topic on the shared broker and returns its (unique) name."""

    def make(hint: str = "topic", partitions: int = 1, config: dict[str, object] | None = None) -> str:
        name = unique_name(hint)
        kafka.create_topic(name, partitions, config)
        return name

    return make


@pytest.fixture(autouse=True)
def _no_failpoint_outlives_its_test() -> Iterator[None]:
    yield
    failpoints.clear()


@cache
def _docker_trouble() -> str | None:
    return docker_trouble()


_LONGEST_FIRST = (
    "test_outages.py",
    "test_marker_expiry.py",
    "kafka_e2e",
    "cluster",
    "docker",
    "cli",
    "bench",
    "examples",
    "pipelines",
    "sinks",
    "sources",
    "testing",
)
"""Files, and folders wherever they lie, that take minutes. They begin, so that no worker has one left at the end while
others are idle. The files do little but wait."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("weir")
    group.addoption("--seed", type=int, default=None, help="which rows marked `matrix` are taken; the default is drawn")
    group.addoption("--sample", type=float, default=0.1, help="the share of the rows marked `matrix` that is taken")


def pytest_report_header(config: pytest.Config) -> str:
    return (
        f"--seed {os.environ[_SEED]}: what tests draw, and {config.getoption('sample'):.0%} of the rows marked matrix"
    )


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_costly(items)
    ranks = {folder: rank for rank, folder in enumerate(_LONGEST_FIRST)}
    items.sort(key=lambda item: min(ranks.get(part, len(ranks)) for part in item.nodeid.partition("::")[0].split("/")))
    if not any("::" in argument for argument in config.args):
        out = left_out(items, os.environ[_SEED], config.getoption("sample"))
        config.hook.pytest_deselected(items=[item for item in items if item in out])
        items[:] = [item for item in items if item not in out]


def _folder(nodeid: str) -> str:
    return "/".join(nodeid.partition("::")[0].split("/")[1:-1][:2])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Where the time goes: seconds of all workers, by folder."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[_folder(report.nodeid)] += report.duration
    if seconds:
        parts = ", ".join(f"{folder or 'tests'} {total:.0f}" for folder, total in seconds.most_common())
        terminalreporter.write_line(f"seconds of all workers, by folder: {parts}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("docker") and (trouble := _docker_trouble()):
        pytest.skip(trouble)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails the run if a process that a test started still lives. Of several workers each looks after its own."""
    config = session.config
    while _at_end:
        _at_end.pop()()
    if config.pluginmanager.hasplugin("dsession"):
        lines: list[str] = _left_by_workers
    else:
        _, left = psutil.wait_procs(_started_here(), timeout=_GRACE_S)
        lines = [line for process in left if (line := _describe(process))]
        if hasattr(config, "workeroutput"):
            config.workeroutput["left"] = lines
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if lines:
        text = "processes left behind by tests:\n  " + "\n  ".join(lines)
        if reporter is not None:
            reporter.write_line(f"\n{text}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if _scratch is not None:
        if session.exitstatus == pytest.ExitCode.OK:
            _at_exit.callback(shutil.rmtree, _scratch, ignore_errors=True)
        elif reporter is not None:
            reporter.write_line(f"\nthe files of this run's tests are in {_scratch} until the next run")


def pytest_unconfigure() -> None:
    _at_exit.close()


class _Workers:
    """Known only where pytest-xdist is."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        _left_by_workers.extend(getattr(node, "workeroutput", {}).get("left", ()))


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("seed") is not None:
        os.environ[_SEED] = str(config.getoption("seed"))
    os.environ.setdefault(_SEED, str(random.randrange(2**32)))  # workers inherit it
    config.pluginmanager.register(_Workers())


def _started_here() -> list[psutil.Process]:
    """Every other process with this session's variable in its environment, but Spark's JVM, which is this process's
    own and ends with it."""
    own = {os.getpid(), *_jvms()}
    return [p for p in psutil.process_iter() if p.pid not in own and _environ(p).get(_SESSION) == os.environ[_SESSION]]


def _jvms() -> set[int | None]:
    """That of the session, and one that was launched for a session that nobody needed after all."""
    from pyspark import SparkContext

    from pipeline.runtime.driver.spark.daemon_process import release_daemons
    from pipeline.runtime.driver.spark.gateway import jvm_pid

    release_daemons()
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    gateway = SparkContext._gateway
    return {jvm_pid(), None if gateway is None else gateway.proc.pid}


def _environ(process: psutil.Process) -> dict[str, str]:
    try:
        return dict(process.environ())
    except (psutil.Error, OSError):
        return {}  # gone, or another user's


def _describe(process: psutil.Process) -> str | None:
    try:
        started_by = process.environ().get("PYTEST_CURRENT_TEST", "outside of a test")
        return f"{process.pid} {' '.join(process.cmdline())[:120]} (started by {started_by})"
    except psutil.Error:
        return None
