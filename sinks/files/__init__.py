"""Files as a sink: Parquet and JSON lines."""

from .sink import FileSink

__all__ = ["FileSink"]
