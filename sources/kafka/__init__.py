"""Kafka as a source."""

from .arrow_json import ArrowJson
from .errors import BadRecord, DataLoss, KafkaUnavailable, MissingPermission
from .on_bad_record import DeadLetter
from .source import KafkaSource

__all__ = ["ArrowJson", "BadRecord", "DataLoss", "DeadLetter", "KafkaSource", "KafkaUnavailable", "MissingPermission"]
