"""Files as a source: Parquet and JSON lines."""

from .source import FileSource

__all__ = ["FileSource"]
