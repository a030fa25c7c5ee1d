"""What built-in steps that go by event time share: windows, joins, distinct records, tables."""

from __future__ import annotations

from typing import Final

from checkpoint.errors import Explained

LATE: Final = "late"
"""The side output with records that come too late."""


class NoTimestamp(Explained, ValueError):
    """A record without the time that a step goes by."""
