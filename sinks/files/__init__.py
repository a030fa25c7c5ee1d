"""Files as a sink: Parquet and JSON lines."""

from sinks.files.sink import FileSink

__all__ = ["FileSink"]
