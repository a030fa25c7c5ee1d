"""Where Weir keeps what it has fetched or made once for this machine and user."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """`WEIR_CACHE`, by default `~/.cache/weir`."""
    return Path(os.environ.get("WEIR_CACHE") or Path.home() / ".cache" / "weir")
