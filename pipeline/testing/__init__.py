"""What users test their jobs with."""

from pipeline.testing import failpoints
from pipeline.testing.clock import ManualClock
from pipeline.testing.harness import OperatorHarness
from pipeline.testing.kafka import KafkaBroker, KafkaRecord
from pipeline.testing.sink import TestingSink
from pipeline.testing.source import AbortError, TestingSource

__all__ = [
    "AbortError",
    "KafkaBroker",
    "KafkaRecord",
    "ManualClock",
    "OperatorHarness",
    "TestingSink",
    "TestingSource",
    "failpoints",
]
