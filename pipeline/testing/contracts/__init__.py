"""What connectors must keep, as suites that a test calls: one rule after the other, without Spark."""

from pipeline.testing.contracts.common import ContractBroken
from pipeline.testing.contracts.sink.contract import check_sink_contract
from pipeline.testing.contracts.sink.stage import SinkUnderTest
from pipeline.testing.contracts.source.contract import check_source_contract

__all__ = ["ContractBroken", "SinkUnderTest", "check_sink_contract", "check_source_contract"]
