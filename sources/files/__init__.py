"""Files as a source: Parquet and JSON lines."""

from sources.files.source import FileSource

__all__ = ["FileSource"]
