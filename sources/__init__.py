"""Sources: where records come from."""

from formats import Avro, JsonSchema, Protobuf
from sources.files import FileSource
from sources.kafka import ArrowJson, DeadLetter, KafkaSource
from sources.sequence import SequenceSource
from sources.source import END, Source, SourceBatch, SourceContext, SourceReader

__all__ = [
    "END",
    "ArrowJson",
    "Avro",
    "DeadLetter",
    "FileSource",
    "JsonSchema",
    "KafkaSource",
    "Protobuf",
    "SequenceSource",
    "Source",
    "SourceBatch",
    "SourceContext",
    "SourceReader",
]
