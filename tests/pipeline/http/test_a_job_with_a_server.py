"""The web server of a job on Spark, from its start to its end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from deadlines import eventually
from small_job import WAIT, assert_exact, records, running, small_job

from pipeline.runtime.driver.operations_client import ask
from pipeline.runtime.running_jobs import running_jobs
from pipeline.testing import TestingSink, TestingSource


def test_a_job_is_seen_from_its_start_to_its_end(
    tmp_path: Path, unique_name: Callable[[str], str], spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_STATE_DIR", str(tmp_path / "state"))
    name, sink = unique_name("job"), TestingSink()
    source = TestingSource([*records(0, 10), TestingSource.PAUSE(), *records(10, 20)])
    job = small_job(name, tmp_path, source, sink)
    with running(job, spark, http="127.0.0.1:0") as handle:
        (told,) = running_jobs()
        assert handle.http == told.http
        assert os.stat(told.file).st_mode & 0o077 == 0
        with httpx.Client(base_url=told.http, trust_env=False) as http:
            assert http.get("/healthz").text == "up\n"
            link = ask(told.address, told.secret, "web_link")
            assert http.get(link, follow_redirects=True).headers["content-type"].startswith("text/html")
            eventually(lambda: http.get("/readyz").text == "ready: the job runs and moves\n", WAIT)
        source.release()
        handle.wait(WAIT)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{told.http}/healthz", trust_env=False)
    assert_exact(sink, records(0, 20))
