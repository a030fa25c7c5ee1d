"""The ends of event time."""

from __future__ import annotations

from typing import Final

MAX_WATERMARK: Final = 2**63 - 1
"""The end of event time: every timer is due."""
NO_RECORD: Final = -(2**63)
"""The largest timestamp of a split without records; below every timestamp."""
