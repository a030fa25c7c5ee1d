"""A real Kafka broker on the JVM that PySpark needs anyway: for the demo, for `weir kafka` and for tests."""

from pipeline.broker.jars import KAFKA_VERSION
from pipeline.broker.native import BrokerFailed, NativeBroker

__all__ = ["KAFKA_VERSION", "BrokerFailed", "NativeBroker"]
