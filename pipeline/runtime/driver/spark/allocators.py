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
"""For the JVM and the Python workers of Weir's own sessions; what the user has set stays."""
