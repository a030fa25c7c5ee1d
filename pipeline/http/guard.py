"""Nothing is answered before the request is known to come from somebody who may ask."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.http.access import SESSION_LIFE, Access, Asked
from pipeline.http.responses import HEADERS, problem, problem_of

LOGIN: Final = "/login"
PROBES: Final = ("/healthz", "/readyz")
"""A kubelet can send a header with its probes, but only one that stands in the pod's manifest, where no secret may be.
So these two say yes or no to anybody, and why only to those who have the token."""
KNOWN: Final = "weir_known"
"""In a request's scope: whether who asks has the token, or a session."""


class Guard:
    """Around the application."""

    def __init__(self, app: ASGIApp, access: Access, port: int) -> None:
        self._app = app
        self._access = access
        self._cookie = cookie_of(port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        await (self._refusal(request) or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        asked = Asked(
            method=request.method,
            host=request.headers.get("host", ""),
            authorization=request.headers.get("authorization"),
            session=request.cookies.get(self._cookie),
            origin=request.headers.get("origin"),
        )
        refusal = self._access.misdirected(asked)
        if refusal is not None:
            return problem_of(refusal)
        path = request.scope["path"]  # a URL is made from the header Host, too
        if path == LOGIN:
            return self._log_in(request, asked.host)
        refusal = self._access.refused(asked)
        request.scope[KNOWN] = refusal is None
        if refusal is None or (path in PROBES and asked.method in ("GET", "HEAD")):
            return None
        return problem_of(refusal)

    def _log_in(self, request: Request, host: str) -> Response:
        session = self._access.log_in(request.query_params.get("code", ""), host)
        if session is None:
            return problem(403, "The link is used up", "It holds for two minutes, and once: `weir open JOB` makes one")
        response = RedirectResponse("/", 303)
        life = int(SESSION_LIFE)
        secure = request.scope["scheme"] == "https"
        response.set_cookie(
            self._cookie, session, max_age=life, path="/", secure=secure, httponly=True, samesite="strict"
        )
        return response


def cookie_of(port: int) -> str:
    """Browsers send a host's cookies to all of its ports, so each server has a name of its own."""
    return f"weir_{port}"
