"""How long an outage of a service outside is waited for, and when a refusal counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from checkpoint.waiting import Waiting, WaitKind

REFUSAL_S: Final = 10.0
"""A service that starts may refuse whom it doesn't know yet. What is refused for longer is refused."""
_TOLD_AFTER_S: Final = 2.0
"""What is over sooner is no news."""
FORGOTTEN_S: Final = 60.0
"""A refusal that is older says nothing of now: clients try again within 10 s, and tell of the same again after 30 s."""
_REFUSES: Final = ", which refuse its user, password or certificate"


class Unavailable(Protocol):
    """An error that says why a service can't be asked."""

    refused: bool
    """It has answered, and refused."""
    credentials: bool
    """For its client's user, password or certificate."""


class Refusals:
    """Being refused, as told by connections that come and go beside others that work. Pure but for the clock."""

    def __init__(self, waiting: Waiting, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            waiting, what: as of `Outage`.
        """
        self._waiting = waiting
        self._what = what + _REFUSES
        self._clock = clock
        self._since = self._last = float("-inf")
        self._told = False

    def count(self) -> bool:
        """One more. Returns whether they have gone on for so long that the client is refused for good."""
        now = self._clock()
        if now - self._last > FORGOTTEN_S:
            self._since = now
        self._last = now
        if now - self._since >= _TOLD_AFTER_S:
            self._told = True
            self._waiting.begin(self._what, self._since, WaitKind.CREDENTIALS)
        return now - self._since >= REFUSAL_S

    def look(self) -> None:
        """No longer tell of what has not come again for long."""
        if self._told and self._clock() - self._last > FORGOTTEN_S:
            self._told = False
            self._waiting.end(self._what)


class Outage:
    """One service as one client sees it: up, away, or refusing. Pure but for the clock; for one thread."""

    def __init__(
        self,
        waiting: Waiting,
        what: str,
        timeout: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            waiting: where it is told.
            what: see `Waiting.begin`.
            timeout: seconds after which an outage is a failure; `None` = never.
        """
        self.what = what
        self.timeout = timeout
        self._waiting = waiting
        self._clock = clock
        self._since: float | None = None
        self._refused_since: float | None = None
        self._told: str | None = None

    @property
    def lasts(self) -> bool:
        return self._since is not None

    def away(self, since: float | None = None) -> bool:
        """No answer, at one more try.

        Args:
            since: when that began, if it is known and this is the first try; else now.

        Returns:
            Whether to go on waiting; else the time is up.
        """
        self._refused_since = None
        return self._goes_on(since, self.what, WaitKind.BROKERS)

    def refused(self, credentials: bool = True) -> bool:
        """It has answered that this client may not, at one more try.

        Args:
            credentials: it doesn't let the client in; else it doesn't know what was asked for.

        Returns:
            Whether to try again; else the refusal counts.
        """
        now = self._clock()
        if self._refused_since is None:
            self._refused_since = now
        what, kind = (self.what + _REFUSES, WaitKind.CREDENTIALS) if credentials else (self.what, WaitKind.BROKERS)
        return now - self._refused_since < REFUSAL_S and self._goes_on(None, what, kind)

    def after_look(self, error: Unavailable | None, began: float) -> bool:
        """A look at what the service has did not come out as it should.

        Args:
            error: why it can't be asked; `None` = it has told of something that is wrong.
            began: when the look began.

        Returns:
            Whether to look again; else the error counts, and this is no outage any more.
        """
        if error is None:  # one that has just started may not know of everything yet
            goes_on = self.lasts and self.refused(credentials=False)
        else:
            goes_on = self.refused(error.credentials) if error.refused else self.away(began)
        if not goes_on:
            self.over()
        return goes_on

    def over(self) -> None:
        """It has answered as it should."""
        if self._since is not None or self._refused_since is not None:
            self._since = self._refused_since = None
            self._tell(None, WaitKind.OTHER)

    def _goes_on(self, since: float | None, what: str, kind: WaitKind) -> bool:
        now = self._clock()
        if self._since is None:
            self._since = now if since is None else since
        if now - self._since >= _TOLD_AFTER_S:
            self._tell(what, kind)
        return self.timeout is None or now - self._since < self.timeout

    def _tell(self, what: str | None, kind: WaitKind) -> None:
        if self._told is not None and self._told != what:
            self._waiting.end(self._told)
        if what is not None:
            self._waiting.begin(what, self._since, kind)
        self._told = what
