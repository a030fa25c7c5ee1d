"""Kafka as a source."""

from .arrow_json import ArrowJson
from .bad_records import DeadLetter
from .errors import BadRecord, DataLoss, KafkaUnavailable, MissingPermission
from .source import KafkaSource

__all__ = ["ArrowJson", "BadRecord", "DataLoss", "DeadLetter", "KafkaSource", "KafkaUnavailable", "MissingPermission"]
