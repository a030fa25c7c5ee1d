"""What driver and workers must agree on."""

from __future__ import annotations

import sys

from pipeline.version import VERSION


def versions() -> dict[str, str]:
    """Versions by name, for comparison and for messages."""
    return {"Python": ".".join(map(str, sys.version_info[:2])), "Weir": VERSION}
