"""How fast a job's sources read once it is under way."""

from __future__ import annotations

from pipeline.handle import JobHandle


class Reading:
    """Look now and then. A job tells twice a second what its sources have read."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None
        """When a checkpoint was complete for the first time, and what had been read."""
        self._last = (0.0, 0.0)

    def look(self, handle: JobHandle, now: float) -> None:
        """`now` in seconds, of any clock."""
        if (count := _read(handle)) > self._last[1]:
            self._last = (now, count)
            if self._first is None and any(row.status == "completed" for row in handle.checkpoints()):
                self._first = self._last

    @property
    def steady(self) -> float | None:
        """Records/s from the first completed checkpoint until all is read; `None` if all was read before."""
        if self._first is None or self._last[1] <= self._first[1]:
            return None
        return (self._last[1] - self._first[1]) / (self._last[0] - self._first[0])


def _read(handle: JobHandle) -> float:
    subtasks = handle.metrics()["subtasks"].items()
    return float(sum(values.get("recordsIn") or 0 for name, values in subtasks if name.startswith("records")))
