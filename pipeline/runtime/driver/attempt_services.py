"""What an attempt has around it: clocks and threads, the server that its processes connect to, and Spark's job.

These are the real ones. A simulation gives an attempt others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, Protocol

from pipeline.logs import log_format
from pipeline.runtime.deployment import Contact
from pipeline.runtime.driver.attempt_context import AttemptContext
from pipeline.runtime.driver.attempt_events import AttemptEvent, SparkEnded
from pipeline.runtime.driver.server import ControlServer
from pipeline.runtime.driver.spark.spark_job import SparkJob
from pipeline.runtime.encryption import Encryption
from pipeline.runtime.protocol import Job
from pipeline.runtime.subtask.process import run_subtask
from pipeline.runtime.system import SYSTEM, System

Post = Callable[[AttemptEvent], None]
"""Puts an event into an attempt's inbox; from any thread."""


class Transport(Protocol):
    """Where processes connect to. Posts `Connected`, `Received`, `Lost` and `Misunderstood`."""

    @property
    def address(self) -> tuple[str, int]: ...

    def start(self, job: Job) -> None:
        """Listen. `job` is what every process is told first."""

    def stop_listening(self) -> None:
        """Refuse new connections; those there are stay."""

    def close(self) -> None:
        """Close all connections."""


class Processes(Protocol):
    """Spark's job, whose partitions are the processes. Posts `SparkEnded` once."""

    def start(self) -> None: ...

    def cancel(self) -> None:
        """Ask for its end; returns at once. Goes unheard if Spark doesn't know the job yet."""


class AttemptServices:
    """The real ones."""

    def __init__(self, system: System = SYSTEM):
        self.system = system

    def transport(self, context: AttemptContext, secret: bytes, post: Post) -> Transport:
        encryption = Encryption(secret) if context.job.encrypt else None
        return ControlServer(context.host, secret, context.spec.limits, post, encryption)

    def processes(
        self, context: AttemptContext, address: tuple[str, int], secret: bytes, description: str, post: Post
    ) -> Processes:
        """
        Args:
            address: of the transport.
            description: for Spark's web page.
        """
        return SparkJob(
            context.spark,
            context.plan.subtasks,
            functools.partial(
                run_subtask, Contact(address, context.spec.limits.vanished, context.job.encrypt), log_format()
            ),
            secret,
            description,
            lambda error: post(SparkEnded(error)),
        )


ATTEMPT_SERVICES: Final = AttemptServices()
