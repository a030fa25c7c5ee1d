"""The export beside a job: what gets to a receiver, what becomes of a job without one, and when it ends."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from deadlines import eventually
from extras import imported_and_missing
from idle_handle import completed, idle_handle, run
from otlp_receiver import OtlpReceiver, Series, otlp_receiver
from prometheus_client.parser import text_string_to_metric_families as parse

from checkpoint.metrics import METRICS
from pipeline import JobHandle, Pipeline, PipelineError
from pipeline.cli.operate_tables import facts
from pipeline.http.exposition import exposition
from pipeline.http.watched_job import WatchedJob
from pipeline.otel.exporter import MetricsExporter, metrics_exporter

VALUES: dict[str, Any] = {"text": "3 checkpoints are under way", "by split": {"orders[0]": 7, "orders[1]": 2}}
DOWN = "its metrics don't get to"


@pytest.fixture
def handle() -> JobHandle:
    handle = idle_handle()
    every = {metric.name: VALUES.get(metric.kind, 1.5) for metric in METRICS}
    run(handle, in_0=every, totals_1={"recordsIn": 2**62})
    completed(handle, 1)
    return handle


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with otlp_receiver() as (receiver, url):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        yield receiver


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, handle: JobHandle) -> Iterator[Callable[..., MetricsExporter]]:
    """An export ten times a second, whose thread is gone at the end."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    made: list[MetricsExporter] = []

    def start(**variables: str) -> MetricsExporter:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        made.append(MetricsExporter())
        handle._otel = made[-1]
        made[-1].start("orders", handle)
        return made[-1]

    yield start
    for one in made:
        one.close()
        one.await_close()
    eventually(lambda: not threads())


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("weir-otel")]


def prometheus(handle: JobHandle) -> Series:
    """As a collector would be told: what is a job's label there is the pipeline's here."""
    text = exposition(WatchedJob("orders", handle, None).families()).decode()
    return {
        (
            one.name,
            tuple(sorted(("pipeline" if name == "job" else name, of) for name, of in one.labels.items())),
        ): one.value
        for family in parse(text)
        for one in family.samples
    }


def moving(series: Series) -> Series:
    """Those that go by the clock."""
    names = ("weir_job_running_seconds", "weir_job_start_phase_seconds")
    return {key: value for key, value in series.items() if key[0] in names}


def test_what_is_sent_is_what_prometheus_gets(
    handle: JobHandle, receiver: OtlpReceiver, start: Callable[..., MetricsExporter]
) -> None:
    start()
    eventually(lambda: receiver.requests)
    sent, there = receiver.series(), prometheus(handle)
    assert sent.keys() == there.keys()
    assert {key: sent[key] for key in sent.keys() - moving(sent)} == {
        key: there[key] for key in sent.keys() - moving(sent)
    }
    assert moving(sent)
    assert all(value <= there[key] < value + 60 for key, value in moving(sent).items())
    assert receiver.paths[0] == "/v1/metrics"
    assert receiver.resource()["service.name"] == "orders"
    families = {
        family.name: family for family in parse(exposition(WatchedJob("orders", handle, None).families()).decode())
    }
    for name, metric in receiver.metrics().items():
        family = families[name.removesuffix("_total")]
        assert metric.description == family.documentation
        assert (metric.WhichOneof("data") == "sum") == (family.type == "counter"), name
    units = {name: metric.unit for name, metric in receiver.metrics().items()}
    assert units["weir_records_in_total"] == "{records}"
    assert units["weir_gc_seconds_total"] == "s"
    assert units["weir_out_bytes_total"] == "By"
    assert units["weir_busy_ratio"] == "1"
    assert units["weir_job_ready"] == ""


def test_each_interval_and_the_end_have_the_values_of_then(
    handle: JobHandle, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, start: Callable[..., MetricsExporter]
) -> None:
    exporter = start()
    eventually(lambda: len(receiver.requests) > 2)
    assert handle._started != handle._master.progress.began
    for name, began in (
        ("weir_records_in_total", handle._master.progress.began),
        ("weir_job_restarts_total", handle._started),
    ):
        starts = {point.start_time_unix_nano for point in receiver.metrics()[name].sum.data_points}
        assert starts == {round(began * 1e9)}
    with_long = start(OTEL_METRIC_EXPORT_INTERVAL="3600000")
    eventually(lambda: with_long.sending.sent == 1)
    exporter.close()
    exporter.await_close()
    handle._master.status = "finished"
    with_long.close()
    with_long.await_close()
    assert with_long.sending.sent == 2
    assert receiver.series()["weir_job_status", (("pipeline", "orders"), ("status", "finished"))] == 1
    assert threads() == []


def test_a_resource_that_cannot_be_read_is_said_once(
    receiver: OtlpReceiver, start: Callable[..., MetricsExporter], caplog: pytest.LogCaptureFixture
) -> None:
    exporter = start(OTEL_RESOURCE_ATTRIBUTES="no-pair,deployment.environment=test")
    eventually(lambda: exporter.sending.sent > 2)
    assert receiver.resource()["deployment.environment"] == "test"
    assert caplog.text.count("Invalid key value resource attribute pair") == 1


def test_variables_of_opentelemetry_are_honoured(receiver: OtlpReceiver, start: Callable[..., MetricsExporter]) -> None:
    start(
        OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20hunter2,x-scope=a",
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
        OTEL_SERVICE_NAME="shop",
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment=test",
    )
    eventually(lambda: receiver.requests)
    headers = receiver.headers[0]
    assert (headers["authorization"], headers["x-scope"]) == ("Bearer hunter2", "a")
    assert headers["content-encoding"] == "gzip"
    resource = receiver.resource()
    assert (resource["service.name"], resource["deployment.environment"]) == ("shop", "test")


def test_a_receiver_that_is_down_is_said_once_and_holds_nobody(
    handle: JobHandle,
    start: Callable[..., MetricsExporter],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("pipeline.otel.exporter._LAST_VALUES", 60.0)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    exporter = start(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_TIMEOUT="0.5")
    eventually(lambda: exporter.sending.failing_since is not None)
    time.sleep(1.0)
    assert caplog.text.count(DOWN) == 1
    assert "Connection refused" in caplog.text
    job = WatchedJob("orders", handle, None)
    assert job.status()["otel"]["to"] == url
    assert "Connection refused" in job.status()["otel"]["why"]
    told = dict(facts({**job.status(), "address": "here"}))["metrics"]
    assert f"don't get to {url} since" in told
    assert any(f"Its metrics don't get to {url}" in one.text for one in job.diagnosis())
    exporter.close()
    begun = time.monotonic()
    exporter.await_close()
    assert time.monotonic() - begun < 55
    ours = {record.name for record in caplog.records}
    assert ours == {"weir.pipeline.otel.exporter"}


def test_a_receiver_that_is_back_is_said(
    receiver: OtlpReceiver, start: Callable[..., MetricsExporter], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    receiver.status = 503
    exporter = start(OTEL_EXPORTER_OTLP_TIMEOUT="0.5")
    eventually(lambda: exporter.sending.failing_since is not None)
    assert exporter.sending.why == "it answers 503 Service Unavailable"
    receiver.status = 200
    eventually(lambda: exporter.sending.failing_since is None)
    assert (caplog.text.count(DOWN), caplog.text.count("its metrics get to")) == (1, 1)
    assert exporter.sending.sent


@pytest.mark.parametrize(
    ("status", "rejected", "why"),
    [
        (401, 0, "it answers 401 Unauthorized"),
        (302, 0, "it answers 302 Found"),
        (200, 3, "it refuses 3 values: too many"),
    ],
)
def test_what_is_refused_has_not_got_there(
    receiver: OtlpReceiver, start: Callable[..., MetricsExporter], status: int, rejected: int, why: str
) -> None:
    receiver.status = status
    receiver.answer.partial_success.rejected_data_points = rejected
    receiver.answer.partial_success.error_message = "too many"
    exporter = start()
    eventually(lambda: exporter.sending.failing_since is not None)
    assert (exporter.sending.why, exporter.sending.sent) == (why, 0)
    assert set(receiver.paths) == {"/v1/metrics"}


def test_a_receiver_that_does_not_answer_holds_the_end_for_a_moment_only(
    receiver: OtlpReceiver, start: Callable[..., MetricsExporter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.otel.exporter._LAST_VALUES", 0.1)
    exporter = start(OTEL_EXPORTER_OTLP_TIMEOUT="60")
    eventually(lambda: exporter.sending.sent)
    receiver.go_on.clear()
    exporter.close()
    begun = time.monotonic()
    exporter.await_close()
    assert time.monotonic() - begun < 55
    receiver.go_on.set()
    eventually(lambda: not threads())


def test_last_values_that_are_refused_are_said(
    receiver: OtlpReceiver, start: Callable[..., MetricsExporter], caplog: pytest.LogCaptureFixture
) -> None:
    exporter = start(OTEL_METRIC_EXPORT_INTERVAL="3600000")
    eventually(lambda: exporter.sending.sent)
    receiver.status = 401
    exporter.close()
    exporter.await_close()
    eventually(lambda: not threads())
    assert "job orders: its last metrics did not get to" in caplog.text
    assert "it answers 401 Unauthorized" in caplog.text


def test_no_secret_is_in_log_or_status(
    handle: JobHandle, receiver: OtlpReceiver, start: Callable[..., MetricsExporter], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    address = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"].removeprefix("http://")
    receiver.status = 503
    exporter = start(
        OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=f"http://ann:hunter2@{address}/hunter2?key=hunter2",
        OTEL_EXPORTER_OTLP_HEADERS="api-key=hunter2",
        OTEL_EXPORTER_OTLP_TIMEOUT="0.5",
    )
    eventually(lambda: exporter.sending.failing_since is not None)
    receiver.status = 200
    eventually(lambda: exporter.sending.sent)
    assert receiver.paths[-1] == "/hunter2?key=hunter2"
    assert receiver.headers[-1]["api-key"] == "hunter2"
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    away = start(OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=f"http://ann:hunter2@127.0.0.1:{port}/hunter2?key=hunter2")
    eventually(lambda: away.sending.failing_since is not None)
    assert "hunter2" not in caplog.text
    assert "hunter2" not in str(WatchedJob("orders", handle, None).status())
    with pytest.raises(PipelineError, match="OTEL_EXPORTER_OTLP_HEADERS must be of the form name=value"):
        start(OTEL_EXPORTER_OTLP_HEADERS="hunter2")
    assert "hunter2" not in caplog.text


def test_a_job_that_cannot_be_looked_at_goes_on_and_is_sent_later(
    handle: JobHandle, receiver: OtlpReceiver, start: Callable[..., MetricsExporter], caplog: pytest.LogCaptureFixture
) -> None:
    run(handle, totals_0={"recordsIn": "none"})
    exporter = start()
    eventually(lambda: exporter.sending.failing_since is not None)
    assert exporter.sending.why == "they can't be made: TypeError"
    assert "Traceback" in caplog.text
    run(handle)
    eventually(lambda: exporter.sending.sent)
    assert caplog.text.count(DOWN) == 1


def test_one_that_never_begins_leaves_no_thread(receiver: OtlpReceiver) -> None:
    exporter = MetricsExporter()
    exporter.close()
    exporter.await_close()
    assert (threads(), receiver.requests) == ([], [])


def test_opentelemetrys_own_switch_wins(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert metrics_exporter(None) is None
    assert "OTEL_SDK_DISABLED is true, so that no metrics are sent" in caplog.text


def test_an_option_from_outside_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Pipeline("job")._metrics_exporter(False) is None
    assert Pipeline("job")._metrics_exporter(True) is not None
    monkeypatch.setenv("WEIR_OTEL", "true")
    assert Pipeline("job")._metrics_exporter(False) is not None
    monkeypatch.setenv("WEIR_OTEL", "false")
    assert Pipeline("job")._metrics_exporter(True) is None
    monkeypatch.setenv("WEIR_OTEL", "http://localhost:4318")
    with pytest.raises(
        PipelineError, match=r"otel must be true or false, not 'http://localhost:4318' \(from WEIR_OTEL"
    ):
        Pipeline("job")._metrics_exporter(True)


def test_its_libraries_are_needed_by_those_who_use_it_only() -> None:
    libraries = {"opentelemetry", "requests", "google.protobuf"}
    imported, missing = imported_and_missing(libraries, "opentelemetry", "_metrics_exporter", "False", "True")
    assert imported == "[]"
    assert "pip install 'weir-streams[otel]'" in missing
