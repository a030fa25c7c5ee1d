"""Kafka as a source."""

from formats.errors import BadRecord
from sources.kafka.arrow_json import ArrowJson
from sources.kafka.errors import DataLoss, KafkaUnavailable, MissingPermission
from sources.kafka.on_bad_record import DeadLetter
from sources.kafka.source import KafkaSource

__all__ = ["ArrowJson", "BadRecord", "DataLoss", "DeadLetter", "KafkaSource", "KafkaUnavailable", "MissingPermission"]
