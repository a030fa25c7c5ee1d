"""Operators of Weir's own that keep something of a key's records: which came before, the newest, the largest."""

from pipeline.by_key.distinct import distinct
from pipeline.by_key.latest import latest_by_key
from pipeline.by_key.top_n import top_n

__all__ = ["distinct", "latest_by_key", "top_n"]
