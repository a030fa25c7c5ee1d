"""What `JobHandle.status` may be."""

from __future__ import annotations

from typing import Final

ENDED: Final = ("finished", "failed", "cancelled")
"""Once a job is one of these it stays so."""
STATUSES: Final = ("created", "running", "restarting", "rescaling", *ENDED)
