"""The application: which path is answered by what. All answers are made by one thread, from what is known already."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pipeline.http.access import Access
from pipeline.http.exposition import CONTENT_TYPE, exposition
from pipeline.http.guard import KNOWN, Guard
from pipeline.http.long_requests import LongRequests
from pipeline.http.responses import problem
from pipeline.http.rest import rest_routes
from pipeline.http.rest_changes import PREFIX
from pipeline.http.watched_job import WatchedJob
from pipeline.http.web_page import page_routes


def make_app(job: WatchedJob, access: Access, port: int, requests: LongRequests) -> Starlette:
    routes = [*page_routes(), *_probes(job), _metrics(job), *rest_routes(job, requests)]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, access=access, port=port)],
        exception_handlers={HTTPException: _refused, Exception: _failed},
    )


def _probes(job: WatchedJob) -> Sequence[Route]:
    async def up(_: Request) -> Response:
        return PlainTextResponse("up\n")

    async def ready(request: Request) -> Response:
        found = job.readiness()
        brief = "ready" if found.ready else "not ready"
        text = f"{brief}: {found.why}" if request.scope[KNOWN] else brief
        return PlainTextResponse(f"{text}\n", 200 if found.ready else 503)

    return [Route("/healthz", up), Route("/readyz", ready)]


def _metrics(job: WatchedJob) -> Route:
    async def metrics(_: Request) -> Response:
        return Response(exposition(job.families()), media_type=CONTENT_TYPE)

    return Route("/metrics", metrics)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    title = HTTPStatus(error.status_code).phrase
    detail = error.detail if error.detail != title else f"{PREFIX}/openapi.json describes what there is"
    return problem(error.status_code, title, detail, dict(error.headers or {}))


async def _failed(_: Request, error: Exception) -> Response:
    return problem(500, "The server has failed on this request", f"{type(error).__name__}; the job's log has more")
