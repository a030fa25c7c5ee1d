"""Clients that ask too slowly hold no connection for long."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from deadlines import eventually
from idle_handle import idle_handle, run

from pipeline.http.address import Address
from pipeline.http.server import HttpServer

HEAD = "POST /api/v1/jobs/orders/checkpoints HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    monkeypatch.setattr("pipeline.http.connections.PATIENCE", 0.5)
    monkeypatch.setattr("pipeline.http.rest_changes._PATIENCE", 0.5)
    handle = idle_handle()
    run(handle)
    one = HttpServer(Address("127.0.0.1", 0))
    one.start("orders", handle)
    yield one
    one.close()
    one.await_close()


def connect(server: HttpServer, sent: str) -> socket.socket:
    url = httpx.URL(server.url)
    assert url.port is not None
    sock = socket.create_connection((url.host, url.port))
    sock.sendall(sent.encode())
    sock.settimeout(20)
    return sock


def probe(server: HttpServer) -> int:
    return httpx.get(f"{server.url}/healthz", trust_env=False, timeout=20).status_code


def drip(sock: socket.socket) -> None:
    for _ in range(400):
        sock.sendall(b"a")
        time.sleep(0.05)


@pytest.mark.parametrize("sent", ["", "GET / HT", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET"])
def test_connections_without_a_request_make_room_for_others(server: HttpServer, sent: str) -> None:
    silent = [connect(server, sent) for _ in range(80)]
    eventually(lambda: probe(server) == 200)
    for sock in silent:
        with sock:
            while sock.recv(4096):
                pass  # until the server has ended it


def test_a_head_that_comes_byte_by_byte_does_not_hold_its_connection(server: HttpServer) -> None:
    with connect(server, "GET / HTTP/1.1\r\nX: ") as sock, pytest.raises(ConnectionError):
        drip(sock)


def test_an_answer_that_takes_long_is_given(server: HttpServer) -> None:
    headers = {"authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=f"{server.url}/api/v1/jobs/orders", headers=headers, trust_env=False) as http:
        begun = http.post("/checkpoints", json={"timeout": 2}).json()
        ended = http.get(f"/operations/{begun['id']}?wait=20").json()
    assert ended["error_type"] == "TimeoutError"
    assert ended["ended"] - ended["started"] >= 2


def test_a_body_that_does_not_come_is_not_waited_for(server: HttpServer) -> None:
    with connect(server, f"{HEAD}Authorization: Bearer {server.token}\r\nContent-Length: 9\r\n\r\n{{") as sock:
        assert sock.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_strangers_write_nothing_into_the_jobs_log(server: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
    upgrade = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
    for sent in ("nonsense\r\n\r\n", upgrade):
        with connect(server, sent) as sock:
            assert sock.recv(4096)
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == []
