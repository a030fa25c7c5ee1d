"""Changes over REST: each is an operation that can be looked at until it is over."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from deadlines import eventually
from idle_handle import idle_handle, run
from starlette.testclient import TestClient

from pipeline import JobHandle, PipelineError
from pipeline.http.access import Access
from pipeline.http.address import Address
from pipeline.http.app import make_app
from pipeline.http.long_requests import LongRequests
from pipeline.http.rest_changes import PREFIX
from pipeline.http.server import HttpServer
from pipeline.http.watched_job import WatchedJob
from pipeline.runtime.driver.scaling.rescaling import Rescaled

TOKEN = "t" * 16
JOB = f"{PREFIX}/jobs/orders"


class Handle(JobHandle):
    """What it is asked for takes until a test says so."""

    def prepare(self) -> None:
        self.asked: list[Any] = []
        self.go_on = threading.Event()

    def checkpoint(self, timeout: float | timedelta | None = None) -> int:
        self.asked.append(("checkpoint", timeout))
        self.go_on.wait(30)
        return 7

    def savepoint(self, uri: str | Path, timeout: float | timedelta | None = None) -> str:
        self.asked.append(("savepoint", uri, timeout))
        raise PipelineError(f"{uri} is not empty")

    def stop(
        self, savepoint: str | Path | None = None, drain: bool = False, timeout: float | timedelta | None = None
    ) -> str | None:
        self.asked.append(("stop", savepoint, drain, timeout))
        return None if savepoint is None else str(savepoint)

    def rescale(
        self, parallelism: int, step: str | None = None, timeout: float | timedelta | None = None
    ) -> list[Rescaled]:
        self.asked.append(("rescale", parallelism, step, timeout))
        return [Rescaled(100.0, "in 1 → 2", 1.5), Rescaled(200.0, f"in 2 → {parallelism}", 1.5)]

    def cancel(self, wait: bool = True) -> None:
        self.asked.append(("cancel",))


@pytest.fixture
def handle() -> Handle:
    made = idle_handle(kind=Handle)
    assert isinstance(made, Handle)
    made.prepare()
    run(made)
    return made


@pytest.fixture
def requests() -> LongRequests:
    return LongRequests()


@pytest.fixture
def client(handle: Handle, requests: LongRequests) -> TestClient:
    app = make_app(WatchedJob("orders", handle, None), Access(TOKEN, True), 80, requests)
    return TestClient(app, "http://127.0.0.1", headers={"authorization": f"Bearer {TOKEN}"})


def outcome(client: TestClient, path: str, body: Any = None) -> dict[str, Any]:
    begun = client.post(JOB + path, json=body) if body is not None else client.post(JOB + path)
    assert begun.status_code == 202, begun.text
    found: dict[str, Any] = client.get(begun.headers["location"], params={"wait": 20}).json()
    assert found["id"] == begun.json()["id"]
    return found


def test_a_checkpoint_is_under_way_until_it_is_complete(client: TestClient, handle: Handle) -> None:
    begun = client.post(f"{JOB}/checkpoints", json={"timeout": 5})
    assert (begun.status_code, begun.json()["status"], begun.json()["result"]) == (202, "running", None)
    assert client.get(begun.headers["location"], params={"wait": 0.1}).json()["status"] == "running"
    handle.go_on.set()
    ended = client.get(begun.headers["location"], params={"wait": 20}).json()
    assert (ended["status"], ended["result"], ended["error"]) == ("succeeded", 7, None)
    assert ended["ended"] >= ended["started"]
    assert handle.asked == [("checkpoint", 5)]
    assert [one["kind"] for one in client.get(f"{JOB}/operations").json()["operations"]] == ["checkpoint"]


def test_each_request_is_the_handles(client: TestClient, handle: Handle) -> None:
    assert outcome(client, "/stop")["result"] is None
    stopped = outcome(client, "/stop", {"savepoint": "file:///a", "drain": True, "timeout": 9})
    assert stopped["result"] == "file:///a"
    assert outcome(client, "/rescale", {"parallelism": 4})["result"] == "in 2 → 4"
    assert outcome(client, "/rescale", {"parallelism": 3, "step": "in", "timeout": 9})["result"] == "in 2 → 3"
    assert outcome(client, "/cancel")["result"] == "running"
    assert handle.asked == [
        ("stop", None, False, None),
        ("stop", "file:///a", True, 9),
        ("rescale", 4, None, None),
        ("rescale", 3, "in", 9),
        ("cancel",),
    ]


def test_errors_are_the_handles_own(client: TestClient, handle: Handle) -> None:
    failed = outcome(client, "/savepoints", {"uri": "file:///full"})
    assert (failed["status"], failed["error_type"], failed["error"]) == (
        "failed",
        "PipelineError",
        "file:///full is not empty",
    )
    relative = outcome(client, "/savepoints", {"uri": "here"})
    assert "an absolute path, not 'here'" in relative["error"]
    assert handle.asked == [("savepoint", "file:///full", None)]


@pytest.mark.parametrize(
    ("path", "content", "kind", "status", "why"),
    [
        ("/savepoints", b"", "application/json", 400, "missing required field `uri`"),
        ("/savepoints", b'{"uri": 3}', "application/json", 400, "$.uri"),
        ("/rescale", b"", "application/json", 400, "missing required field `parallelism`"),
        ("/rescale", b'{"parallelism": 0}', "application/json", 400, "$.parallelism"),
        ("/rescale", b'{"parallelism": 32768}', "application/json", 400, "$.parallelism"),
        ("/rescale", b'{"parallelism": true}', "application/json", 400, "$.parallelism"),
        ("/rescale", b'{"parallelism": 2.5}', "application/json", 400, "$.parallelism"),
        ("/rescale", b'{"parallelism": 2, "step": 1}', "application/json", 400, "$.step"),
        ("/stop", b'{"drian": true}', "application/json", 400, "drian"),
        ("/stop", b'{"timeout": 0}', "application/json", 400, "$.timeout"),
        ("/stop", b'{"timeout": 1e300}', "application/json", 400, "$.timeout"),
        ("/stop", b"{", "application/json", 400, "not as expected"),
        ("/stop", b"\xff", "application/json", 400, "not as expected"),
        ("/stop", b"{}", "text/plain", 415, "Content-Type: application/json"),
        ("/stop", b" " * 70_000, "application/json", 413, "65,536 bytes"),
    ],
)
def test_a_body_that_is_not_as_expected_changes_nothing(
    client: TestClient, handle: Handle, path: str, content: bytes, kind: str, status: int, why: str
) -> None:
    answer = client.post(JOB + path, content=content, headers={"content-type": kind})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert why in answer.text
    assert handle.asked == []


@pytest.mark.parametrize("digits", ["9" * 5000, "٣", "0" * 19, "-1", "1_0", "x"])
def test_odd_numbers_are_refused(client: TestClient, digits: str) -> None:
    assert client.get(f"{JOB}/checkpoints", params={"limit": digits}).status_code == 400
    assert client.get(f"{JOB}/operations/x", params={"wait": digits}).status_code in (400, 404)
    assert client.get(f"{JOB}/checkpoints/{digits}").status_code == 404


def test_another_jobs_name_and_a_strangers_page_change_nothing(client: TestClient, handle: Handle) -> None:
    assert client.post(f"{PREFIX}/jobs/others/cancel").status_code == 404
    assert client.post(f"{JOB}/cancel", headers={"origin": "http://evil.example"}).status_code == 403
    assert client.post(f"{JOB}/cancel", headers={"authorization": ""}).status_code == 401
    assert client.get(f"{JOB}/operations/x", params={"wait": "31"}).status_code == 400
    assert handle.asked == []


def test_names_may_have_a_newline_and_are_not_found_cleanly_where_there_is_no_such_job(client: TestClient) -> None:
    for name in ("orders%0A", "%0Aorders", "a%0Ab"):
        for answer in (client.get(f"{PREFIX}/jobs/{name}"), client.post(f"{PREFIX}/jobs/{name}/cancel")):
            assert answer.status_code == 404
            assert "This server knows the job 'orders' only" in answer.json()["detail"]
    assert client.get(f"{JOB}/operations/a%0Ab").status_code == 404
    assert client.get(f"{JOB}/checkpoints/1%0A").status_code == 404
    made = idle_handle("a\nb")
    run(made)
    app = make_app(WatchedJob("a\nb", made, None), Access(TOKEN, True), 80, LongRequests())
    odd = TestClient(app, "http://127.0.0.1", headers={"authorization": f"Bearer {TOKEN}"})
    assert odd.get(f"{PREFIX}/jobs/a%0Ab").json()["name"] == "a\nb"
    where = odd.post(f"{PREFIX}/jobs/a%0Ab/checkpoints", json={"timeout": 0.01}).headers["location"]
    assert odd.get(where, params={"wait": 20}).json()["error_type"] == "TimeoutError"


def test_more_than_eight_at_once_are_refused(client: TestClient, handle: Handle) -> None:
    for _ in range(8):
        assert client.post(f"{JOB}/checkpoints").status_code == 202
    refused = client.post(f"{JOB}/checkpoints")
    assert (refused.status_code, "8 requests are under way" in refused.text) == (429, True)
    handle.go_on.set()
    eventually(lambda: client.post(f"{JOB}/checkpoints").status_code == 202)


def test_those_that_have_ended_are_forgotten_some_time() -> None:
    requests = LongRequests()
    first = requests.begin("cancel", lambda: "cancelled")
    for _ in range(120):
        one = requests.begin("cancel", lambda: "cancelled")
        eventually(lambda one=one: one.status == "succeeded")  # type: ignore[misc]
    assert requests.look(first.id) is None
    assert requests.look(one.id) is one
    assert len(requests.all()) <= 102


def test_whoever_waits_for_an_operation_does_not_hold_the_servers_end(
    handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.http.server._LAST_ANSWERS", 1)
    server = HttpServer(Address("127.0.0.1", 0))
    server.start("orders", handle)
    headers = {"authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=60) as http:
        where = http.post(f"{JOB}/checkpoints").headers["location"]
        told: list[Any] = []
        waiting = threading.Thread(target=lambda: told.append(http.get(where, params={"wait": 30}).json()["status"]))
        waiting.start()
        eventually(lambda: handle.asked)
        server.close()
        waiting.join(60)
        assert told == ["running"]
    handle.go_on.set()
    eventually(lambda: "weir-http-orders" not in [thread.name for thread in threading.enumerate()])


def test_the_server_of_a_job_that_has_ended_stays_until_the_outcome_was_seen(handle: Handle) -> None:
    server = HttpServer(Address("127.0.0.1", 0))
    server.start("orders", handle)
    headers = {"authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=server.url, headers=headers, trust_env=False) as http:
        where = http.post(f"{JOB}/cancel").headers["location"]
        eventually(lambda: handle.asked == [("cancel",)])
        server.close()
        assert http.get(where, params={"wait": 5}).json()["status"] == "succeeded"
    server.await_close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url, trust_env=False)
