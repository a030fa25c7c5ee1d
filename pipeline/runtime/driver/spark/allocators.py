"""Environment variables by which a process gives memory back that it has freed.

A subtask has some ten threads, its own and librdkafka's, which hand buffers of 100 kB to each other. By default glibc
has an arena for each, and keeps what is freed in their middle, and Arrow's own allocators keep it as well: half of what
a subtask took. Allocators look at them when they are first used. Source: mallopt(3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SETTINGS: Final[Mapping[str, str]] = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""For the Python workers of Weir's own sessions; what the user has set stays."""
JVM_SETTINGS: Final[Mapping[str, str]] = {**SETTINGS, "MALLOC_MMAP_THRESHOLD_": "32000"}
"""For the JVM. Its compiler takes pieces of 32 KiB, 8 MB at once while Spark starts, and frees them; what is smaller
than this threshold would lie among them, and keep them."""


def not_set(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Those of the settings that the user's environment doesn't have."""
    return {name: value for name, value in settings.items() if name not in environment}
