"""What a job is started with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from checkpoint.config import CheckpointConfig
from pipeline.autoscale import Autoscale
from pipeline.buffers import BufferConfig
from pipeline.graph import Graph
from pipeline.plan import Plan
from pipeline.runtime.driver.restart import RestartStrategy


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """A pipeline and how it was started."""

    name: str
    plan: Plan
    max_parallelism: int
    checkpoints: CheckpointConfig | None
    restart: RestartStrategy
    buffers: BufferConfig
    restore: str
    claim: bool | None
    rewind: bool
    allow_unclaimed: bool
    ignore_in_flight: int | None
    spark: Any
    take_over: bool = False
    """From a driver that runs the job."""
    graph: Graph | None = None
    """What the plan was made of, so that it can be made at another parallelism; `None`: it can't."""
    autoscale: Autoscale | None = None
    """`None`: it is only rescaled when somebody asks for it."""
    show_keys: bool = True
    """Whether status may name keys."""
    encrypt: bool = False
    """Whether the connections of its processes are encrypted."""
    stop_grace: float = 30.0
    """Seconds that the job has for its last checkpoint once a signal has come."""
