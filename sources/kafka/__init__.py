"""Kafka as a source."""

from .errors import BadRecord, DataLoss, KafkaUnavailable
from .source import KafkaSource

__all__ = ["BadRecord", "DataLoss", "KafkaSource", "KafkaUnavailable"]
