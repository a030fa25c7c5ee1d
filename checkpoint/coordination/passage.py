"""Which barriers have passed (pure; part of the coordinator)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping


class Passage:
    """How far the barrier of one checkpoint has come.

    It has passed a source subtask's part of the job when every subtask that the source *reaches*, through channels, has
    taken its snapshot. Sources of jobs in one, or of forward chains, so don't answer for one another.
    """

    def __init__(self, reach: Mapping[int, frozenset[int]]) -> None:
        """`reach`: for each source subtask those that it reaches, itself or not; never none."""
        groups: dict[frozenset[int], list[int]] = defaultdict(list)
        for source, reached in reach.items():
            groups[reached].append(source)
        self._missing = {reached: set(reached) for reached in groups}
        self._groups = dict(groups)
        self._passed: dict[int, float] = {}

    def snapshot_taken(self, subtask: int, delay: float) -> tuple[int, ...]:
        """The source subtasks whose part it has passed with that, ascending. `delay`: seconds since the trigger."""
        found: list[int] = []
        for reached, missing in list(self._missing.items()):
            missing.discard(subtask)
            if not missing:
                del self._missing[reached]
                found += self._groups[reached]
        self._passed.update(dict.fromkeys(found, delay))
        return tuple(sorted(found))

    def start_delay(self, source: int) -> float | None:
        """Seconds from the trigger until it had passed; `None` if it has not."""
        return self._passed.get(source)
