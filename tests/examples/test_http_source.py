"""The HTTP source of the examples, against a local server that answers every fifth request with an error."""

from __future__ import annotations

import itertools
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit

import pytest
from example_run import weir_run

from pipeline.testing import check_source_contract
from pipeline.testing.contracts.common import NoMetrics
from sources import SourceContext

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from http_source import HttpSource

PAGE = 4
FEEDS = ("north", "south", "east")
RECORDS = [{"id": id, "feed": feed} for feed in FEEDS for id in range(10)]


class Feeds(BaseHTTPRequestHandler):
    requests = itertools.count(1)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path[1:] not in FEEDS:
            self.answer(404, [])
        elif next(self.requests) % 5 == 0:
            self.answer(503, [])
        else:
            after = int(parse_qs(url.query).get("after", ["-1"])[0])
            left = [each for each in RECORDS if each["feed"] == url.path[1:] and each["id"] > after]
            self.answer(200, left[:PAGE])

    def answer(self, status: int, records: list[Any]) -> None:
        body = json.dumps(records).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Tests don't print requests."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Feeds)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("interval", [None, 0.02])
def test_it_keeps_the_source_contract(server: str, interval: float | None) -> None:
    feeds = [f"{server}/{feed}" for feed in FEEDS]
    check_source_contract(lambda: HttpSource(feeds, interval), RECORDS, split_of=lambda each: each["feed"])


def test_an_error_that_stays_fails_the_attempt(server: str) -> None:
    reader = HttpSource([f"{server}/west"]).create_reader(SourceContext("p", "s", 0, 1, NoMetrics()))
    try:
        with pytest.raises(HTTPError, match="404"):
            reader.poll(10, 60.0)
    finally:
        reader.close()


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_a_job_reads_all_feeds(server: str) -> None:
    output = weir_run("http_source.py", WEIR_EXAMPLE_FEEDS=" ".join(f"{server}/{feed}" for feed in FEEDS))
    found = [line for line in output.splitlines() if line.startswith("order ")]
    assert sorted(found) == sorted(f"order {record['id']} from {record['feed']}" for record in RECORDS)
