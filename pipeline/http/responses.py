"""Answers: JSON, and errors as problems (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from starlette.responses import Response

from pipeline.http.access import Refusal

HEADERS: Final = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
}
"""Of every answer."""


def as_json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Numbers that JSON doesn't have become null."""
    try:
        body = _dumped(content)
    except orjson.JSONEncodeError:
        body = _dumped(_writable(content))
    return Response(body, status, headers, "application/json")


def _dumped(content: Any) -> bytes:
    # What subtasks tell of checkpoints is by their ids.
    return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)


def _writable(content: Any) -> Any:
    """A failure can name a file whose name is no UTF-8; Python then has half a surrogate pair for each such byte, which
    JSON has not. It is written as its escape."""
    if isinstance(content, str):
        return content.encode("utf-8", "backslashreplace").decode()
    if isinstance(content, Mapping):
        return {_writable(key): _writable(value) for key, value in content.items()}
    return [_writable(one) for one in content] if isinstance(content, list | tuple) else content


def problem(status: int, title: str, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """
    Args:
        detail: says what to do.
    """
    content = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return Response(orjson.dumps(content), status, headers, "application/problem+json")


def problem_of(refusal: Refusal) -> Response:
    headers = {"www-authenticate": 'Bearer realm="weir"'} if refusal.status == 401 else None
    return problem(refusal.status, refusal.title, refusal.detail, headers)
