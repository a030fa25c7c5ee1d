"""What may be asked of a job over REST: checkpoints, savepoints, another parallelism, its end. Each is answered at once
by an operation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlparse

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pipeline.graph import MOST_SUBTASKS
from pipeline.handle import JobHandle
from pipeline.http.long_requests import LongRequests, OperationKind, TooMany
from pipeline.http.responses import as_json
from pipeline.http.watched_job import WatchedJob

PREFIX: Final = "/api/v1"
Asked = TypeVar("Asked")
_LONGEST_BODY: Final = 64 * 1024
_LONGEST_WAIT: Final = 30.0
_LONGEST: Final = 1e9
"""Seconds; far more, and Python can't wait so long, which it says once the job has been asked."""
_PATIENCE: Final = 10.0
"""Seconds that a body may take to come."""
_LOOK: Final = 0.05

Timeout = Annotated[float, msgspec.Meta(gt=0, le=_LONGEST, description="Seconds that it may take; none: any time.")]
Folder = Annotated[str, msgspec.Meta(description="A URI or an absolute path that is empty or doesn't exist.")]


class CheckpointAsked(msgspec.Struct, forbid_unknown_fields=True):
    """As `JobHandle.checkpoint`."""

    timeout: Timeout | None = None


class SavepointAsked(msgspec.Struct, forbid_unknown_fields=True):
    """As `JobHandle.savepoint`."""

    uri: Folder
    timeout: Timeout | None = None


class RescaleAsked(msgspec.Struct, forbid_unknown_fields=True):
    """As `JobHandle.rescale`."""

    parallelism: Annotated[int, msgspec.Meta(ge=1, le=MOST_SUBTASKS)]
    step: Annotated[str, msgspec.Meta(description="Id of a step that alone is to have it.")] | None = None
    timeout: Timeout | None = None


class StopAsked(msgspec.Struct, forbid_unknown_fields=True):
    """As `JobHandle.stop`."""

    savepoint: Folder | None = None
    drain: bool = False
    """End all input first, so that every event timer fires."""
    timeout: Timeout | None = None


class CancelAsked(msgspec.Struct, forbid_unknown_fields=True):
    """As `JobHandle.cancel`."""


def change_routes(job: WatchedJob, requests: LongRequests, known: Callable[[Request], None]) -> list[Route]:
    """
    Args:
        known: refuses a request for another job.
    """

    def route(path: str, change: _Change) -> Route:
        async def answer(request: Request) -> Response:
            known(request)
            asked = _decoded(await _body(request), change.form)
            try:
                operation = requests.begin(change.kind, lambda: change.perform(job.handle, asked))
            except TooMany as error:
                raise HTTPException(429, str(error)) from error
            where = f"{PREFIX}/jobs/{quote(job.name, safe='')}/operations/{operation.id}"
            return as_json(asdict(operation), 202, {"location": where})

        return Route(path, answer, methods=["POST"])

    async def operations(request: Request) -> Response:
        known(request)
        return as_json({"operations": [asdict(one) for one in requests.all()]})

    async def operation(request: Request) -> Response:
        known(request)
        deadline = time.monotonic() + _seconds(request)
        while (found := requests.look(request.path_params["id"])) is not None:
            if found.status != "running" or requests.over or time.monotonic() >= deadline:
                return as_json(asdict(found))
            await asyncio.sleep(_LOOK)
        raise HTTPException(404, f"Operation {request.path_params['id']!r} is not known, or not any more")

    return [
        *(route(PREFIX + path, change) for path, change in _CHANGES.items()),
        Route(PREFIX + "/jobs/{job}/operations", operations),
        Route(PREFIX + "/jobs/{job}/operations/{id}", operation),
    ]


def _savepoint(handle: JobHandle, asked: SavepointAsked) -> str:
    return handle.savepoint(_absolute(asked.uri), asked.timeout)


def _rescale(handle: JobHandle, asked: RescaleAsked) -> str:
    return handle.rescale(asked.parallelism, asked.step, asked.timeout)[-1].what


def _stop(handle: JobHandle, asked: StopAsked) -> str | None:
    folder = None if asked.savepoint is None else _absolute(asked.savepoint)
    return handle.stop(folder, asked.drain, asked.timeout)


def _cancel(handle: JobHandle, _: CancelAsked) -> str:
    handle.cancel()
    return handle.status


def _absolute(uri: str) -> str:
    """
    Raises:
        ValueError: where it would be depends on the job's working directory.
    """
    if not (urlparse(uri).scheme or uri.startswith("/")):
        raise ValueError(f"the folder must be a URI such as file:///backups/a or an absolute path, not {uri!r}")
    return uri


async def _body(request: Request) -> bytes:
    """
    Raises:
        HTTPException: it is too long, or no JSON, or does not come.
    """
    body = b""
    try:
        async with asyncio.timeout(_PATIENCE):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _LONGEST_BODY:
                    raise HTTPException(413, f"A body may have {_LONGEST_BODY:,} bytes")
    except TimeoutError as error:
        raise HTTPException(408, f"The body must come within {_PATIENCE:g} s") from error
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and content_type != "application/json":
        raise HTTPException(415, "Send JSON, with the header Content-Type: application/json")
    return body


def _decoded(body: bytes, form: type[Asked]) -> Asked:
    """
    Raises:
        HTTPException: it isn't what is asked for here; says why.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HTTPException(400, f"The body is not as expected: {error}") from error


def _seconds(request: Request) -> float:
    text = request.query_params.get("wait", "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST_WAIT:
        raise HTTPException(400, f"wait={text!r} must be seconds from 0 to {_LONGEST_WAIT:g}")
    return seconds


class _Change(NamedTuple):
    kind: OperationKind
    form: type[Any]
    """Of the body."""
    perform: Callable[[JobHandle, Any], int | str | None]


_CHANGES: Final[dict[str, _Change]] = {
    "/jobs/{job}/checkpoints": _Change("checkpoint", CheckpointAsked, lambda handle, a: handle.checkpoint(a.timeout)),
    "/jobs/{job}/savepoints": _Change("savepoint", SavepointAsked, _savepoint),
    "/jobs/{job}/rescale": _Change("rescale", RescaleAsked, _rescale),
    "/jobs/{job}/stop": _Change("stop", StopAsked, _stop),
    "/jobs/{job}/cancel": _Change("cancel", CancelAsked, _cancel),
}
"""By path."""
BODIES: Final[dict[str, Any]] = {path: change.form for path, change in _CHANGES.items()}
"""By path, for the description of the interface."""
