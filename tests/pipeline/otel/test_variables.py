from __future__ import annotations

import pytest

from pipeline import PipelineError
from pipeline.otel.variables import check_protocol, endpoint, interval

ALL = "OTEL_EXPORTER_OTLP_ENDPOINT"
METRICS = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"


@pytest.mark.parametrize(
    ("variables", "to"),
    [
        ({}, "http://localhost:4318"),
        ({ALL: ""}, "http://localhost:4318"),
        ({ALL: "https://otlp.example/base"}, "https://otlp.example"),
        ({ALL: "http://a:1", METRICS: "http://[::1]:2/v1/metrics?key=hunter2"}, "http://[::1]:2"),
        ({METRICS: "https://ann:hunter2@otlp.example:443/hunter2#hunter2"}, "https://otlp.example:443"),
    ],
)
def test_an_address_is_told_without_what_may_be_secret(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], to: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert endpoint() == to


@pytest.mark.parametrize(
    "value", ["hunter2:4318", "grpc://hunter2", "http://", "http://a:hunter2", "http://[hunter2", "http://a:0", "/x"]
)
def test_what_is_no_address_is_refused_and_not_quoted(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(METRICS, value)
    with pytest.raises(PipelineError, match=f"^{METRICS} must be a URL, as in http://localhost:4318$"):
        endpoint()


def test_the_interval_is_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert interval() == 60.0
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "2500")
    assert interval() == 2.5


@pytest.mark.parametrize("text", ["0", "99", "-1", "nan", "inf", "1e300", "soon", "5s"])
def test_an_odd_interval_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", text)
    with pytest.raises(PipelineError, match=f"OTEL_METRIC_EXPORT_INTERVAL='{text}' must be a number of milliseconds"):
        interval()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
    ],
)
def test_what_would_not_be_honoured_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    check_protocol()
    monkeypatch.setenv(name, value)
    with pytest.raises(PipelineError, match=f"^{name}='{value}'"):
        check_protocol()


def test_the_protocol_of_metrics_is_what_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "CUMULATIVE")
    check_protocol()
