"""Where streams end: the sink contract and the sinks that come with Weir."""

from sinks.kafka import KafkaSink
from sinks.print import PrintSink
from sinks.sink import (
    Committable,
    Committer,
    CommitterContext,
    Lineage,
    OwnerRestore,
    PermanentFailure,
    RecordContext,
    SegmentName,
    Sink,
    SinkBatch,
    SinkWriter,
    StagedFile,
    Staging,
    WriterContext,
)

__all__ = [
    "Committable",
    "Committer",
    "CommitterContext",
    "KafkaSink",
    "Lineage",
    "OwnerRestore",
    "PermanentFailure",
    "PrintSink",
    "RecordContext",
    "SegmentName",
    "Sink",
    "SinkBatch",
    "SinkWriter",
    "StagedFile",
    "Staging",
    "WriterContext",
]
