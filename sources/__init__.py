"""Sources: where records come from."""

from .kafka import KafkaSource
from .sequence import SequenceSource
from .source import END, Source, SourceBatch, SourceContext, SourceReader

__all__ = ["END", "KafkaSource", "SequenceSource", "Source", "SourceBatch", "SourceContext", "SourceReader"]
