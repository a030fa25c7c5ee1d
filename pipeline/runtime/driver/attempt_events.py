"""What an attempt finds in its inbox: what other threads tell the one that all of its state belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pipeline.runtime.driver.attempt_context import Answer, CheckpointRequest
from pipeline.runtime.driver.spark.spark_job import SparkJobFailed
from pipeline.runtime.protocol import ToDriver, ToSubtask


class ProcessConnection(Protocol):
    """The driver's end of a connection to a process. Thread-safe."""

    def __hash__(self) -> int: ...

    @property
    def heard_at(self) -> float:
        """When something came last, be it a part of a message."""

    def send(self, message: ToSubtask) -> None:
        """
        Raises:
            ConnectionLost: the other side is gone, or takes nothing.
        """


@dataclass(frozen=True, slots=True)
class Connected:
    """A process has shown that it knows the attempt's secret, and has been told which job this is."""

    connection: ProcessConnection
    name: str
    """How it calls itself."""


@dataclass(frozen=True, slots=True)
class Received:
    """A process has said something."""

    connection: ProcessConnection
    message: ToDriver


@dataclass(frozen=True, slots=True)
class Lost:
    """A connection has ended. What came on it before stands in front of this in the inbox."""

    connection: ProcessConnection
    reason: str


@dataclass(frozen=True, slots=True)
class Misunderstood:
    """A process has said what this version doesn't understand; its connection is closed."""

    connection: ProcessConnection
    error: str


@dataclass(frozen=True, slots=True)
class SparkEnded:
    """Spark's job has ended."""

    error: SparkJobFailed | None


@dataclass(frozen=True, slots=True)
class Finalised:
    """`_metadata` of a checkpoint is durable, or can't be written."""

    checkpoint_id: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Deleted:
    """The deletion of a checkpoint has ended, with an error or without."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another attempt owns the job now."""

    message: str


@dataclass(frozen=True, slots=True)
class CheckpointRequestedByUser:
    """Somebody asks for a checkpoint or savepoint."""

    request: CheckpointRequest
    answer: Answer


@dataclass(frozen=True, slots=True)
class QueryAsked:
    """Somebody asks for the state of a key."""

    number: int
    """Of the query (`PointQueries`)."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The job is to end now, without a last checkpoint."""


AttemptEvent = (
    Connected
    | Received
    | Lost
    | Misunderstood
    | SparkEnded
    | Finalised
    | Deleted
    | Fenced
    | CheckpointRequestedByUser
    | QueryAsked
    | CancelRequested
)
