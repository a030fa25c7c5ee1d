"""The page for people: files that a browser gets as they are, and that ask the REST interface."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

FILES: Final = Path(__file__).parent / "page"


def page_routes() -> list[BaseRoute]:
    async def index(_: Request) -> Response:
        return FileResponse(FILES / "index.html", media_type="text/html")

    return [Route("/", index), Mount("/page", StaticFiles(directory=FILES))]
