"""The job that a web server shows, and whose metrics are sent: what its handle says, at most a second old."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pipeline.diagnosis import Sentence
from pipeline.http.families import Family, families
from pipeline.http.health import Movement, Readiness, default_bound
from pipeline.runtime.driver.status.gate_status import sentence
from pipeline.runtime.driver.status.job_status import diagnosis_of, graph_of, row_of, status_of, with_subtasks

if TYPE_CHECKING:
    from pipeline.handle import JobHandle

FRESH: Final = 1.0
"""Seconds that one look at the job serves all who ask."""


class WatchedJob:
    """For one thread, as that of the server."""

    def __init__(self, name: str, handle: JobHandle, ready_within: float | None) -> None:
        """
        Args:
            ready_within: how long neither a record nor a checkpoint may come; `None`: as `default_bound` says.
        """
        self.name = name
        self.handle = handle
        options = handle._master.options
        interval = None if options.checkpoints is None else options.checkpoints.interval_s
        self._movement = Movement(default_bound(interval) if ready_within is None else ready_within)
        self._looked = float("-inf")
        self._status: dict[str, Any] = {}
        self._diagnosed = float("-inf")
        self._sentences: list[Sentence] = []

    def look(self) -> None:
        """Look at the job now; a server does so once a second, so that it knows when the job has moved."""
        metrics = self.handle.metrics()
        status = status_of(self.name, self.handle.address, self.handle, metrics)
        self._status = {
            **status,
            "gates": [{**row, "sentence": sentence(row)} for row in status["gates"]],
            "graph": graph_of(self.handle),
            "subtasks": metrics["subtasks"],
            "processes": self.handle.processes(),
        }
        self._looked = time.monotonic()
        self._movement.note(self._status, self._looked)

    def status(self) -> dict[str, Any]:
        """What `weir status --json` gives, with the graph and the figures of each subtask."""
        if time.monotonic() - self._looked > FRESH:
            self.look()
        return self._status

    def readiness(self) -> Readiness:
        return self._movement.readiness(self.status(), time.monotonic(), time.time())

    def families(self) -> Iterator[Family]:
        """All metrics, as they are now."""
        return families(self.status(), self.readiness().ready, self.newest_completed(), time.time())

    def newest_completed(self) -> dict[str, Any] | None:
        rows = reversed(self.handle.checkpoints())
        return next((row_of(row) for row in rows if row.status == "completed"), None)

    def checkpoints(self, limit: int) -> list[dict[str, Any]]:
        """The newest first."""
        return [row_of(row) for row in reversed(self.handle.checkpoints()[-limit:])]

    def checkpoint(self, id: int) -> dict[str, Any] | None:
        """With the parts of all subtasks; `None`: it is not known, or not any more."""
        row = self.handle._master.history.row(id)
        return None if row is None else with_subtasks(row)

    def subtasks(self) -> list[dict[str, Any]]:
        """All that the job has, also those that have not reported yet."""
        status = self.status()
        return [
            {
                "name": name,
                "vertex": vertex["name"],
                "pid": status["processes"].get(name),
                "metrics": status["subtasks"].get(name, {}),
            }
            for vertex in status["graph"]["vertices"]
            for name in vertex["subtasks"]
        ]

    def diagnosis(self) -> list[Sentence]:
        """At most a second old, too."""
        # With 200 subtasks it takes tens of milliseconds, and each page that is open asks once a second.
        if time.monotonic() - self._diagnosed > FRESH:
            self._sentences = diagnosis_of(self.handle, self.status())
            self._diagnosed = time.monotonic()
        return self._sentences
