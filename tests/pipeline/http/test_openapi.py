from __future__ import annotations

from typing import Any

import pytest
from idle_handle import completed, idle_handle, run
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate
from starlette.testclient import TestClient

from pipeline.http.access import Access
from pipeline.http.app import make_app
from pipeline.http.long_requests import LongRequests
from pipeline.http.rest import rest_routes
from pipeline.http.rest_changes import PREFIX
from pipeline.http.watched_job import WatchedJob

TOKEN = "t" * 16


@pytest.fixture
def client() -> TestClient:
    handle = idle_handle()
    run(handle, in_0={"barriers": {3: [1]}, "recordsLag": 3})
    completed(handle, 1)
    app = make_app(WatchedJob("orders", handle, None), Access(TOKEN, True), 80, LongRequests())
    return TestClient(app, "http://127.0.0.1", headers={"authorization": f"Bearer {TOKEN}"})


def routes() -> set[tuple[str, str]]:
    found = rest_routes(WatchedJob("orders", idle_handle(), None), LongRequests())
    return {(method.lower(), route.path) for route in found for method in (route.methods or set()) - {"HEAD"}}


def test_it_is_valid_and_covers_exactly_the_routes(client: TestClient) -> None:
    found = client.get(f"{PREFIX}/openapi.json").json()
    validate(found)
    described = {(method, path) for path, methods in found["paths"].items() for method in methods}
    assert described == routes()
    ids = [one["operationId"] for methods in found["paths"].values() for one in methods.values()]
    assert len(set(ids)) == len(ids)


def test_answers_are_as_described(client: TestClient) -> None:
    found = client.get(f"{PREFIX}/openapi.json").json()
    seen = 0
    for path, methods in found["paths"].items():
        if "get" not in methods or "operations/{id}" in path:
            continue
        answer = client.get(path.replace("{job}", "orders").replace("{id}", "1"))
        assert answer.status_code == 200, answer.text
        schema: Any = methods["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        OAS31Validator({**schema, "components": found["components"]}).validate(answer.json())
        seen += 1
    assert seen == 9


def test_a_refusal_is_a_problem_as_described(client: TestClient) -> None:
    found = client.get(f"{PREFIX}/openapi.json").json()
    for path in ("/jobs/another", "/jobs/orders/checkpoints/99", "/jobs/orders/operations/nowhere", "/nowhere"):
        answer = client.get(PREFIX + path)
        assert answer.status_code == 404
        OAS31Validator(found["components"]["schemas"]["Problem"]).validate(answer.json())
