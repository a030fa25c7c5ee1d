"""Sources: where records come from."""

from formats import Avro, JsonSchema, Protobuf

from .files import FileSource
from .kafka import ArrowJson, DeadLetter, KafkaSource
from .sequence import SequenceSource
from .source import END, Source, SourceBatch, SourceContext, SourceReader

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
