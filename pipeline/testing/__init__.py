"""What users test their jobs with."""

from pipeline.testing import failpoints
from pipeline.testing.clock import ManualClock
from pipeline.testing.contracts import ContractBroken, SinkUnderTest, check_sink_contract, check_source_contract
from pipeline.testing.fake_service import FakeService, ServiceClient, ServiceError
from pipeline.testing.harness import OperatorHarness
from pipeline.testing.jobs import JobEnded
from pipeline.testing.kafka import KafkaBroker, KafkaRecord
from pipeline.testing.kafka_cluster import KafkaCluster
from pipeline.testing.pipeline_harness.harness import PipelineHarness
from pipeline.testing.pipeline_harness.snapshot import PipelineSnapshot
from pipeline.testing.schema_registry import SchemaRegistry
from pipeline.testing.sink import TestingSink
from pipeline.testing.source import AbortError, TestingSource

__all__ = [
    "AbortError",
    "ContractBroken",
    "FakeService",
    "JobEnded",
    "KafkaBroker",
    "KafkaCluster",
    "KafkaRecord",
    "ManualClock",
    "OperatorHarness",
    "PipelineHarness",
    "PipelineSnapshot",
    "SchemaRegistry",
    "ServiceClient",
    "ServiceError",
    "SinkUnderTest",
    "TestingSink",
    "TestingSource",
    "check_sink_contract",
    "check_source_contract",
    "failpoints",
]
