"""What a job takes for Spark's session."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pipeline.plan import Plan
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.spark.session import JobSession


class FakeSession(JobSession):
    """Has slots for all."""

    def __init__(self, options: JobOptions) -> None:
        super().__init__(options)
        self.closed = False
        self.checked: list[bool] = []
        """Whether slots of an attempt before were waited for, each time."""
        self.is_lost: str | None = None
        self.error: Exception | None = None
        """What the next checks find."""

    def begin(self) -> None:
        pass

    def open(self, not_needed: Callable[[], bool]) -> bool:
        return True

    @property
    def room(self) -> int | None:
        return None

    def require_room(self, plan: Plan) -> None:
        pass

    def check(self, stop: threading.Event | None) -> None:
        self.checked.append(stop is not None)
        if self.error is not None:
            raise self.error

    @property
    def host(self) -> str:
        return "127.0.0.1"

    def lost(self) -> str | None:
        return self.is_lost

    def close(self) -> None:
        self.closed = True
