"""The REST interface, version 1: what programs and the page ask."""

from __future__ import annotations

from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pipeline.http.long_requests import LongRequests
from pipeline.http.openapi import description
from pipeline.http.responses import as_json
from pipeline.http.rest_changes import PREFIX, change_routes
from pipeline.http.watched_job import WatchedJob

_CHECKPOINTS: Final = 100
"""Checkpoints of an answer that asks for no other number."""
_MOST: Final = 10_000
_DIGITS: Final = 18


def rest_routes(job: WatchedJob, requests: LongRequests) -> list[Route]:
    described = description(PREFIX)

    def known(request: Request) -> None:
        name = request.path_params["job"]
        if name != job.name:
            raise HTTPException(404, f"This server knows the job {job.name!r} only, not {name!r}")

    async def jobs(_: Request) -> Response:
        status = job.status()
        return as_json({"jobs": [{"name": job.name, "status": status["status"], "started": status["started"]}]})

    async def one_job(request: Request) -> Response:
        known(request)
        return as_json(job.status())

    async def checkpoints(request: Request) -> Response:
        known(request)
        return as_json({"checkpoints": job.checkpoints(_whole(request, "limit", _CHECKPOINTS, _MOST))})

    async def one_checkpoint(request: Request) -> Response:
        known(request)
        id = request.path_params["id"]
        is_one = id.isascii() and id.isdigit() and len(id) <= _DIGITS
        found: dict[str, Any] | None = job.checkpoint(int(id)) if is_one else None
        if found is None:
            raise HTTPException(404, f"Checkpoint {id[:100]} is not known, or not any more")
        return as_json(found)

    async def metrics(request: Request) -> Response:
        known(request)
        return as_json(job.handle.metrics())

    async def subtasks(request: Request) -> Response:
        known(request)
        return as_json({"subtasks": job.subtasks()})

    async def openapi(_: Request) -> Response:
        return as_json(described)

    async def diagnosis(request: Request) -> Response:
        known(request)
        return as_json({"sentences": job.diagnosis()})

    found = {
        "/jobs": jobs,
        "/jobs/{job}": one_job,
        "/jobs/{job}/diagnosis": diagnosis,
        "/jobs/{job}/metrics": metrics,
        "/jobs/{job}/subtasks": subtasks,
        "/jobs/{job}/checkpoints": checkpoints,
        "/jobs/{job}/checkpoints/{id}": one_checkpoint,
        "/openapi.json": openapi,
    }
    # No `Mount`, for which a path ends at a newline: a job's name may have one.
    return [*(Route(PREFIX + path, answer) for path, answer in found.items()), *change_routes(job, requests, known)]


def _whole(request: Request, name: str, default: int, most: int) -> int:
    text = request.query_params.get(name, str(default))
    # Python reads no number of thousands of digits.
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and 1 <= int(text) <= most):
        raise HTTPException(400, f"{name}={text!r} must be a whole number from 1 to {most}")
    return int(text)
