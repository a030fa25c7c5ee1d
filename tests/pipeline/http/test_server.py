"""The server beside a job: who is answered what, and when it ends."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest
from deadlines import eventually
from extras import imported_and_missing
from idle_handle import idle_handle, run

from pipeline import JobHandle, PipelineError
from pipeline.http.address import Address
from pipeline.http.server import HttpServer

HERE = Address("127.0.0.1", 0)


@pytest.fixture
def handle() -> JobHandle:
    return idle_handle()


@pytest.fixture
def server(handle: JobHandle) -> Iterator[HttpServer]:
    one = HttpServer(HERE)
    one.start("orders", handle)
    yield one
    one.close()
    one.await_close()
    assert not [thread for thread in threading.enumerate() if thread.name == "weir-http-orders"]


def client(server: HttpServer, token: bool = True) -> httpx.Client:
    headers = {"authorization": f"Bearer {server.token}"} if token else {}
    return httpx.Client(base_url=server.url, headers=headers, trust_env=False)


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/jobs", "/login/", "/nowhere", "//healthz", "/HEALTHZ"])
def test_nothing_is_answered_without_the_token(server: HttpServer, path: str) -> None:
    with client(server, token=False) as http:
        for method in ("GET", "POST", "PUT", "OPTIONS"):
            answer = http.request(method, path)
            assert answer.status_code == 401, (method, path)
        assert answer.headers["www-authenticate"] == 'Bearer realm="weir"'
        assert answer.headers["content-type"] == "application/problem+json"
        assert "Authorization: Bearer TOKEN" in answer.json()["detail"]


def test_a_host_header_cannot_stand_for_a_path(server: HttpServer) -> None:
    with client(server, token=False) as http:
        for host in ("127.0.0.1/healthz?", "127.0.0.1/login?code=", "localhost#/healthz"):
            assert http.get("/", headers={"host": host}).status_code in (400, 401, 421)


def test_probes_say_yes_or_no_to_anybody_and_why_to_whom_knows(server: HttpServer, handle: JobHandle) -> None:
    with client(server, token=False) as stranger, client(server) as known:
        assert stranger.get("/healthz").text == "up\n"
        not_yet = stranger.get("/readyz")
        assert (not_yet.status_code, not_yet.text) == (503, "not ready\n")
        assert known.get("/readyz").text == "not ready: the job is starting\n"
        assert stranger.post("/readyz").status_code == 401
    run(handle)
    with client(server) as known:
        eventually(lambda: known.get("/readyz").text == "ready: the job runs and moves\n")


def test_a_link_logs_a_browser_in_once(server: HttpServer) -> None:
    link = server.new_link()
    with client(server, token=False) as browser:
        answer = browser.get(link)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert browser.get("/").status_code == 200
        assert browser.post("/").status_code == 403
    with client(server, token=False) as other:
        again = other.get(link)
        assert again.status_code == 403
        assert "weir open JOB" in again.json()["detail"]
        assert other.get("/").status_code == 401


def test_answers_may_not_be_kept_framed_or_guessed(server: HttpServer) -> None:
    with client(server) as http:
        headers = http.get("/").headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "server" not in headers


def test_what_is_not_there_is_a_problem(server: HttpServer) -> None:
    with client(server) as http:
        assert http.get("/nowhere").json()["status"] == 404
        assert http.post("/readyz").json()["status"] == 405
        assert http.get("/", headers={"host": "evil.example"}).json()["status"] == 421


def test_a_job_that_cannot_be_looked_at_still_has_a_server(
    server: HttpServer, handle: JobHandle, caplog: pytest.LogCaptureFixture
) -> None:
    said = "the web server of job orders can't tell how the job is doing"
    run(handle, totals_0={"recordsIn": "none"})
    eventually(lambda: said in caplog.text)
    with client(server) as http:
        assert http.get("/healthz").text == "up\n"
    with client(server) as http:
        assert http.get("/api/v1/jobs/orders").json()["status"] == 500
    run(handle)
    with client(server) as http:
        eventually(lambda: http.get("/api/v1/jobs/orders").status_code == 200)
    assert caplog.text.count(said) == 1


def test_the_token_and_links_are_in_no_log(server: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with client(server, token=False) as browser:
        link = server.new_link()
        browser.get(link)
        browser.get(link)
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert not [line for line in ours if "code=" in line or server.token in line]


def test_a_port_that_is_taken_and_a_host_of_others_are_errors_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PipelineError, match=rf"http='127.0.0.1:{port}' can't be listened at: .*another port"):
            HttpServer(Address("127.0.0.1", port))
    monkeypatch.setenv("WEIR_HTTP_TOKEN", "t" * 16)
    with pytest.raises(PipelineError, match="can't be listened at"):
        HttpServer(Address("no-such-host.invalid", 0))
    monkeypatch.delenv("WEIR_HTTP_TOKEN")
    with pytest.raises(PipelineError, match="WEIR_HTTP_TOKEN"):
        HttpServer(Address("0.0.0.0", 0))


def test_its_libraries_are_needed_by_those_who_use_it_only() -> None:
    libraries = {"starlette", "uvicorn", "prometheus_client"}
    imported, missing = imported_and_missing(libraries, "uvicorn", "_web_server", "None", "'127.0.0.1:0'")
    assert imported == "[]"
    assert "pip install 'weir-streams[http]'" in missing
