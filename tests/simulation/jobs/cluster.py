"""Where jobs run: drivers and subtasks as virtual processes, and what Spark is to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from virtual.control import ControlServer
from virtual.scheduler import Killed, Process, Scheduler
from virtual.sockets import Host, Sockets
from virtual.system import System

from checkpoint.gate import gate_options
from pipeline.runtime import packing
from pipeline.runtime.deployment import Contact
from pipeline.runtime.driver.attempt import Attempt
from pipeline.runtime.driver.attempt_events import SparkEnded
from pipeline.runtime.driver.job_master import JobMaster
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.spark.spark_job import SparkJobFailed
from pipeline.runtime.subtask.process import run_partition

_UNLOADED = 2.0
"""Seconds after which Spark ends the process of a task that doesn't leave."""


class Cluster:
    """All processes there are."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.host = Host(scheduler)
        self.to_subtask: Callable[[Process, Any], bool] = lambda driver, message: False
        """Told of every message from a driver to a subtask; whether it gets lost."""
        self.to_driver: Callable[[Process, Any], bool] = lambda driver, message: False
        """The same of the other way."""
        self.subtasks: list[Process] = []
        """Processes of the newest attempt."""
        self.attempts = 0

    def start(self, options: JobOptions, name: str) -> Driver:
        return Driver(self, options, name)

    @contextmanager
    def with_its_code(self, first_window: int | None) -> Iterator[None]:
        """All processes have the modules of the simulated steps, so they travel by name.

        Args:
            first_window: records that sources may read ahead of checkpoints in the beginning; `None`: as ever.
        """
        least, rate = gate_options.LEAST_FIRST_RECORDS, gate_options.FIRST_RECORDS_PER_SECOND
        with (
            patch.object(packing, "_users_modules", list),
            patch.object(gate_options, "LEAST_FIRST_RECORDS", least if first_window is None else first_window),
            patch.object(gate_options, "FIRST_RECORDS_PER_SECOND", rate if first_window is None else 0),
        ):
            yield


class Driver:
    """A job's driver process."""

    def __init__(self, cluster: Cluster, options: JobOptions, name: str) -> None:
        self.process = Process(name)
        self.ended = False
        """The job's thread has."""
        system: Any = System(cluster.scheduler, self.process)
        services: Any = _Services(cluster, system)
        session: Any = lambda options: _Session()  # noqa: E731
        self.job = JobMaster(
            options,
            system=system,
            session=session,
            attempt=lambda context, progress: Attempt(context, progress, services),
        )
        self.job.on_ended = self._end
        self.job.start()

    def _end(self) -> None:
        self.ended = True

    @property
    def stopped(self) -> bool:
        """Its user has stopped the job."""
        return self.job.stopped and self.job.status == "finished"


class _Session:
    """`pipeline.runtime.driver.spark.session.JobSession`: there are always slots."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self.context = SimpleNamespace(version="virtual", master="local")

    def begin(self) -> None: ...

    def open(self, not_needed: Callable[[], bool]) -> bool:
        return True

    def check(self, stop: Any) -> None: ...

    def fit(self, options: Any) -> None: ...

    def lost(self) -> str | None:
        return None

    def close(self) -> None: ...


class _Services:
    """`pipeline.runtime.driver.attempt_services.AttemptServices`."""

    def __init__(self, cluster: Cluster, system: System) -> None:
        self.system = system
        self._cluster = cluster
        self._server: ControlServer

    def transport(self, context: Any, secret: bytes, post: Callable[[Any], None]) -> ControlServer:
        cluster, driver = self._cluster, self.system.process
        self._server = ControlServer(
            cluster.scheduler,
            driver,
            post,
            lambda message: cluster.to_subtask(driver, message),
            lambda message: cluster.to_driver(driver, message),
        )
        return self._server

    def processes(
        self, context: Any, address: tuple[str, int], secret: bytes, description: str, post: Callable[[Any], None]
    ) -> SparkJob:
        return SparkJob(self._cluster, self._server, self.system.process, context.plan.subtasks, secret, post)


class SparkJob:
    """A barrier job, one process a subtask (`pipeline.runtime.driver.attempt_services.Processes`)."""

    def __init__(
        self,
        cluster: Cluster,
        server: ControlServer,
        driver: Process,
        subtasks: int,
        secret: bytes,
        post: Callable[[Any], None],
    ) -> None:
        self._cluster = cluster
        self._scheduler = cluster.scheduler
        self._server = server
        self._driver = driver
        self._subtasks = subtasks
        self._secret = secret
        self._post = post
        self._processes: list[Process] = []
        self._failed = False

    def start(self) -> None:
        cluster = self._cluster
        cluster.attempts += 1
        for partition in range(self._subtasks):
            process = Process(f"{cluster.attempts}/{partition}")
            process.at_end.append(lambda process=process: self._gone(process, killed=True))  # type: ignore[misc]
            self._processes.append(process)
            self._scheduler.spawn(process, "task", lambda process=process, n=partition: self._run(process, n))  # type: ignore[misc]
        cluster.subtasks = list(self._processes)
        self._driver.at_end.append(self.cancel)

    def cancel(self) -> None:
        self._scheduler.after(_UNLOADED, self._end_all)

    def _end_all(self) -> None:
        for process in list(self._processes):
            self._scheduler.kill(process)

    def _run(self, process: Process, partition: int) -> None:
        self._scheduler.pause(self._scheduler.rng.random() * 0.05)
        system: Any = System(self._scheduler, process)
        sockets: Any = Sockets(self._cluster.host, process)
        try:
            run_partition(
                Contact(self._server.address, 0.0),
                self._secret,
                partition,
                lambda: 0.0,
                connect=lambda contact, secret, partition: self._server.connect(process, partition),
                system=system,
                sockets=sockets,
            )
        except ConnectionError:
            pass  # the driver was gone already
        except Killed:
            raise
        self._gone(process, killed=False)

    def _gone(self, process: Process, killed: bool) -> None:
        if process not in self._processes:
            return
        self._processes.remove(process)
        if not killed:
            self._scheduler.leave(process)
        elif not self._failed:
            self._failed = True
            self.cancel()
        if not self._processes:
            error = SparkJobFailed("a process was killed") if self._failed else None
            self._scheduler.after(0.01, lambda: self._post(SparkEnded(error)))
