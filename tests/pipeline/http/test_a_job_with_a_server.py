"""The web server of a job on Spark, from its start to its end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from deadlines import PATIENCE, eventually
from otlp_receiver import OtlpReceiver, otlp_receiver
from prometheus_client.parser import text_string_to_metric_families
from small_job import assert_exact, records, running, small_job

from checkpoint.job_metrics import JOB_METRICS
from checkpoint.metric_names import prometheus_name
from checkpoint.metrics import METRICS
from pipeline.runtime.driver.operations_client import ask
from pipeline.runtime.running_jobs import running_jobs
from pipeline.testing import TestingSink, TestingSource


def read_by(text: str, job: str) -> float:
    """How many records the source has read. All that is declared is there, with the kind that it is declared with, and
    no series comes twice."""
    families = {family.name: family for family in text_string_to_metric_families(text)}
    declared = {name: metric.kind for metric in METRICS if (name := prometheus_name(metric)) is not None}
    for name, kind in {**declared, **{one.name: one.kind for one in JOB_METRICS}}.items():
        assert families[name.removesuffix("_total")].type == ("counter" if kind == "counter" else "gauge"), name
    series = [
        (sample.name, tuple(sorted(sample.labels.items()))) for family in families.values() for sample in family.samples
    ]
    assert len(set(series)) == len(series)
    read = families["weir_records_in"].samples
    assert {one.labels["job"] for one in read} == {job}
    return sum(one.value for one in read if one.labels["step"].startswith("in"))


def subtasks_of(job: dict[str, Any], vertex: int) -> list[str]:
    found: list[str] = job["graph"]["vertices"][vertex]["subtasks"]
    return found


@pytest.fixture
def otlp() -> Iterator[tuple[OtlpReceiver, str]]:
    with otlp_receiver() as both:
        yield both


def assert_sent(receiver: OtlpReceiver, job: str) -> None:
    """The job's metrics, up to its end, by two attempts, the second of which has read ten records."""
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("weir-otel")]
    assert receiver.series()["weir_job_status", (("pipeline", job), ("status", "finished"))] == 1
    declared = {*(prometheus_name(metric) for metric in METRICS), *(one.name for one in JOB_METRICS)}
    read = [
        metrics["weir_records_in_total"]
        for n in range(len(receiver.requests))
        if "weir_records_in_total" in (metrics := receiver.metrics(n)) and metrics.keys() <= declared
    ]
    assert len({point.start_time_unix_nano for metric in read for point in metric.sum.data_points}) == 2
    of_source = ("weir_records_in_total", (("pipeline", job), ("step", "in"), ("subtask", "0")))
    assert receiver.series()[of_source] == 10


def test_a_job_is_seen_from_its_start_to_its_end(
    tmp_path: Path,
    unique_name: Callable[[str], str],
    spark: Any,
    otlp: tuple[OtlpReceiver, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEIR_STATE_DIR", str(tmp_path / "state"))
    name, sink = unique_name("job"), TestingSink()
    source = TestingSource([*records(0, 10), TestingSource.PAUSE(), *records(10, 20)])
    job = small_job(name, tmp_path, source, sink)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp[1])
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "250")
    with running(job, spark, http="127.0.0.1:0", otel=True) as handle:
        (told,) = running_jobs()
        assert handle.http == told.http
        assert os.stat(told.file).st_mode & 0o077 == 0
        with httpx.Client(base_url=told.http, trust_env=False) as http:
            assert http.get("/healthz").text == "up\n"
            link = ask(told.address, told.secret, "web_link")
            assert http.get(link, follow_redirects=True).headers["content-type"].startswith("text/html")
            eventually(lambda: http.get("/readyz").text == "ready: the job runs and moves\n")
            headers = {"authorization": f"Bearer {told.http_token}"}
            begun = http.post(f"/api/v1/jobs/{name}/checkpoints", headers=headers)
            ended = http.get(begun.headers["location"], headers=headers, params={"wait": 30}).json()
            assert (ended["status"], ended["result"]) in [("succeeded", row.id) for row in handle.checkpoints()]
            assert "sentences" in http.get(f"/api/v1/jobs/{name}/diagnosis", headers=headers).json()
            # Subtasks report twice a second.
            eventually(lambda: "\nweir_records_in_total{" in http.get("/metrics", headers=headers).text)
            eventually(lambda: read_by(http.get("/metrics", headers=headers).text, name) == 10)
            begun = http.post(f"/api/v1/jobs/{name}/rescale", headers=headers, json={"parallelism": 2, "step": "count"})
            ended = http.get(begun.headers["location"], headers=headers, params={"wait": 30}, timeout=PATIENCE).json()
            assert (ended["status"], ended["result"]) == ("succeeded", "count, out 1 → 2"), ended
            # What the server shows may be a second old, and a rescale may take less.
            eventually(
                lambda: len(subtasks_of(http.get(f"/api/v1/jobs/{name}", headers=headers).json(), 1)) == 2, PATIENCE
            )
        source.release()
        handle.wait(PATIENCE)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{told.http}/healthz", trust_env=False)
    assert_sent(otlp[0], name)
    assert_exact(sink, records(0, 20))
