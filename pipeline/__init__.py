"""Weir: stream processing in Python on Spark.

Begin with `Pipeline`; sources are in `sources`, sinks in `sinks`.
"""

from checkpoint.codec import register_pickle
from checkpoint.codec.stored import StoredRecord
from checkpoint.config import CheckpointConfig
from checkpoint.state import (
    TTL,
    AggregatingState,
    BroadcastState,
    ListState,
    MapState,
    OperatorListState,
    OperatorUnionState,
    ReducingState,
    ValueState,
)
from checkpoint.state_backends import RocksDb
from pipeline.aggregates import Aggregate, Count, Sum
from pipeline.async_calls.function import AsyncFunction
from pipeline.buffers import BufferConfig
from pipeline.errors import Interrupted, JobCancelled, JobFailed, NotEnoughSlots, PipelineError
from pipeline.handle import JobHandle
from pipeline.job import Pipeline
from pipeline.operators import KeyedOperator, Operator
from pipeline.runtime.driver.checkpoint_stats import CheckpointStats
from pipeline.runtime.driver.restart import RestartStrategy
from pipeline.watermarks import WatermarkStrategy
from pipeline.windows import Session, Sliding, Tumbling

__all__ = [
    "TTL",
    "Aggregate",
    "AggregatingState",
    "AsyncFunction",
    "BroadcastState",
    "BufferConfig",
    "CheckpointConfig",
    "CheckpointStats",
    "Count",
    "Interrupted",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "KeyedOperator",
    "ListState",
    "MapState",
    "NotEnoughSlots",
    "Operator",
    "OperatorListState",
    "OperatorUnionState",
    "Pipeline",
    "PipelineError",
    "ReducingState",
    "RestartStrategy",
    "RocksDb",
    "Session",
    "Sliding",
    "StoredRecord",
    "Sum",
    "Tumbling",
    "ValueState",
    "WatermarkStrategy",
    "register_pickle",
]
