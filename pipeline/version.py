"""The version of Weir, and the name that it has on package indexes, where `weir` is another project."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
DISTRIBUTION: Final = "weir-streams"
