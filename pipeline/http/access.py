"""Who may ask: the token in a header, or a browser's session that a link with a one-time code has begun.

Pure but for the clock and random numbers. For the thread of the server, but for `new_code`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from pipeline.http.address import TOKEN_VARIABLE, is_loopback

CODE_LIFE: Final = 120.0
"""Seconds that a link can be used for, once."""
SESSION_LIFE: Final = 12 * 3600.0
_MOST_CODES: Final = 16
_MOST_SESSIONS: Final = 64
_HOW: Final = (
    "Send the header `Authorization: Bearer TOKEN`. The token is that of the variable "
    f"{TOKEN_VARIABLE} of the job's process, else `http_token` in the job's file in the state folder of its user. For "
    "a browser, `weir open JOB` prints a link that can be used once"
)
_SAFE: Final = ("GET", "HEAD")


@dataclass(frozen=True)
class Asked:
    """What of a request counts."""

    method: str
    host: str
    """The header."""
    authorization: str | None = None
    session: str | None = None
    """The cookie."""
    origin: str | None = None


@dataclass(frozen=True)
class Refusal:
    status: int
    title: str
    detail: str
    """What to do."""


class Access:
    """Of one server."""

    def __init__(self, token: str, loopback: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            loopback: it listens on loopback only.
        """
        self._token = token.encode()
        self._loopback = loopback
        self._clock = clock
        self._lock = threading.Lock()
        self._codes: OrderedDict[bytes, float] = OrderedDict()
        """When each one ends, by its digest: looking a digest up tells nothing of the secret by its time."""
        self._sessions: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        """When each one ends, and the host that its browser has called the server by."""

    def new_code(self) -> str:
        """For one login within two minutes. The oldest of too many is forgotten."""
        code = secrets.token_urlsafe(32)
        with self._lock:
            self._codes[_digest(code)] = self._clock() + CODE_LIFE
            while len(self._codes) > _MOST_CODES:
                self._codes.popitem(last=False)
        return code

    def log_in(self, code: str, host: str) -> str | None:
        """A new session for a code, which is used up; `None`: it isn't known, or not any more."""
        with self._lock:
            until = self._codes.pop(_digest(code), None)
        if until is None or self._clock() >= until:
            return None
        session = secrets.token_urlsafe(32)
        self._sessions[_digest(session)] = (self._clock() + SESSION_LIFE, host)
        while len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def misdirected(self, asked: Asked) -> Refusal | None:
        """A page elsewhere can have its own name lead to loopback (DNS rebinding), and then ask as if it were ours."""
        if not self._loopback or is_loopback(host_of(asked.host)):
            return None
        return Refusal(
            421,
            "This name is not the server's",
            f"The server listens on loopback, and answers to localhost and loopback addresses only, not to the host "
            f"{asked.host[:100]!r}",
        )

    def refused(self, asked: Asked) -> Refusal | None:
        """`None`: the request may go on."""
        if asked.origin is not None and asked.method not in _SAFE and not _is_own(asked):
            return Refusal(
                403, "Another site's page has sent this", f"Its origin is {asked.origin[:100]!r}, not this server"
            )
        if self._has_token(asked):
            return None
        if self._has_session(asked):
            if asked.method in _SAFE or asked.origin is not None:
                return None
            return Refusal(403, "Not told who sends this", "With a browser's session, changes need the header Origin")
        return Refusal(401, "The job's token is needed", _HOW)

    def _has_token(self, asked: Asked) -> bool:
        scheme, _, token = (asked.authorization or "").partition(" ")
        given = token.strip().encode("utf-8", "surrogateescape")
        return scheme.lower() == "bearer" and hmac.compare_digest(given, self._token)

    def _has_session(self, asked: Asked) -> bool:
        until, host = self._sessions.get(_digest(asked.session or ""), (0.0, ""))
        return self._clock() < until and host == asked.host


def host_of(header: str) -> str:
    """Without the port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _is_own(asked: Asked) -> bool:
    return asked.origin in (f"http://{asked.host}", f"https://{asked.host}")


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
