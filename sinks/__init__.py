"""Where streams end: the sink contract and the sinks that come with Weir."""

from formats import Avro, JsonSchema, Protobuf
from sinks.files import FileSink
from sinks.kafka import KafkaSink
from sinks.print import PrintSink
from sinks.sink import (
    Committable,
    CommittableName,
    Committer,
    CommitterContext,
    Lineage,
    PermanentFailure,
    RecordContext,
    Sink,
    SinkBatch,
    SinkWriter,
    StagedFile,
    Staging,
    WriterContext,
    WriterRestore,
)

__all__ = [
    "Avro",
    "Committable",
    "CommittableName",
    "Committer",
    "CommitterContext",
    "FileSink",
    "JsonSchema",
    "KafkaSink",
    "Lineage",
    "PermanentFailure",
    "PrintSink",
    "Protobuf",
    "RecordContext",
    "Sink",
    "SinkBatch",
    "SinkWriter",
    "StagedFile",
    "Staging",
    "WriterContext",
    "WriterRestore",
]
