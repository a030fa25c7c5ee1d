"""The task thread's mailbox: how other threads tell it something, and how it waits."""

from __future__ import annotations

from collections import deque
from typing import Any

from pipeline.runtime.subtask.mail import Failure
from pipeline.runtime.system import SYSTEM, System


class Mailbox:
    """Mail from other threads, and a flag that the record loop looks at between records.

    The task thread alone reads. A wake-up without mail says that input or room has come; it is never lost, since
    the event stays set until the task thread has waited on it, and that thread looks at everything after each wait.
    """

    def __init__(self, system: System = SYSTEM) -> None:
        self.mail: deque[Any] = deque()
        self.interrupt = False
        """Set: leave the record loop and look around. Cleared by the task thread before it looks."""
        self._event = system.event()

    def post(self, mail: Any) -> None:
        """Leave mail; from any thread."""
        self.mail.append(mail)
        self.interrupt = True
        self._event.set()

    def post_failure(self, error: BaseException) -> None:
        """Another thread of the subtask has failed."""
        self.post(Failure(error))

    def wake(self) -> None:
        """Input or room has come; from any thread."""
        self._event.set()

    def tick(self) -> None:
        """Make the record loop look around; from any thread. The driver link does so at a fixed pace, for the clock."""
        self.interrupt = True

    def wait(self, timeout: float) -> None:
        """Wait for mail or a wake-up, `timeout` seconds at most."""
        self._event.wait(timeout)
        self._event.clear()
