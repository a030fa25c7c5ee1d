"""Weir: stream processing in Python on Spark.

Begin with `Pipeline`; sources are in `sources`, sinks in `sinks`.
"""

from checkpoint.codec import register_pickle
from checkpoint.codec.stored import StoredRecord
from checkpoint.config import CheckpointConfig
from checkpoint.failure_rate import AtMost
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
from pipeline.aggregates import (
    Aggregate,
    ApproxCountDistinct,
    Collect,
    Count,
    CountDistinct,
    First,
    Fold,
    Last,
    Max,
    Mean,
    Min,
    Quantiles,
    StandardDeviation,
    Sum,
    Top,
    Variance,
)
from pipeline.async_calls.cache import LookupCache
from pipeline.async_calls.function import AsyncFunction
from pipeline.autoscale import Autoscale
from pipeline.buffers import BufferConfig
from pipeline.errors import Interrupted, JobCancelled, JobFailed, NotEnoughSlots, PipelineError
from pipeline.handle import JobHandle
from pipeline.job import Pipeline
from pipeline.on_error import DeadLetter, Skip
from pipeline.operators import KeyedOperator, Operator
from pipeline.runtime.driver.restart import RestartStrategy
from pipeline.runtime.driver.status.checkpoint_stats import CheckpointStats
from pipeline.watermarks import WatermarkStrategy
from pipeline.windows import CountWindow, Global, Session, Sliding, Tumbling

__all__ = [
    "TTL",
    "Aggregate",
    "AggregatingState",
    "ApproxCountDistinct",
    "AsyncFunction",
    "AtMost",
    "Autoscale",
    "BroadcastState",
    "BufferConfig",
    "CheckpointConfig",
    "CheckpointStats",
    "Collect",
    "Count",
    "CountDistinct",
    "CountWindow",
    "DeadLetter",
    "First",
    "Fold",
    "Global",
    "Interrupted",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "KeyedOperator",
    "Last",
    "ListState",
    "LookupCache",
    "MapState",
    "Max",
    "Mean",
    "Min",
    "NotEnoughSlots",
    "Operator",
    "OperatorListState",
    "OperatorUnionState",
    "Pipeline",
    "PipelineError",
    "Quantiles",
    "ReducingState",
    "RestartStrategy",
    "RocksDb",
    "Session",
    "Skip",
    "Sliding",
    "StandardDeviation",
    "StoredRecord",
    "Sum",
    "Top",
    "Tumbling",
    "ValueState",
    "Variance",
    "WatermarkStrategy",
    "register_pickle",
]
