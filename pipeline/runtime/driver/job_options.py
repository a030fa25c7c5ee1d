"""What a job is started with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkpoint.config import CheckpointConfig
from pipeline.buffers import BufferConfig
from pipeline.graph import Plan
from pipeline.runtime.driver.restart import RestartStrategy

if TYPE_CHECKING:
    from pipeline.job import Pipeline


@dataclass(frozen=True)
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

    @classmethod
    def of(
        cls,
        pipeline: Pipeline,
        restore: str,
        *,
        claim: bool | None,
        rewind: bool,
        allow_unclaimed: bool,
        ignore_in_flight: int | None,
        spark: Any,
    ) -> JobOptions:
        """
        Raises:
            PipelineError: the pipeline is not complete.
        """
        p = pipeline
        settings = (p.name, p.plan(), p.max_parallelism, p.checkpoints, p.restart, p.buffers)
        return cls(*settings, restore, claim, rewind, allow_unclaimed, ignore_in_flight, spark)
