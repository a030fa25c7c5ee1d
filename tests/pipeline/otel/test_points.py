"""Metrics as they are sent: encoded by OpenTelemetry's library, decoded by its protocol's."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.resources import Resource
from otlp_receiver import OtlpReceiver, points_of

from pipeline.http.families import Family
from pipeline.otel.points import metrics_data
from pipeline.version import VERSION

CUMULATIVE = 2
NAMES = {"job": "pipeline"}
"""A collector that hands on to Prometheus has a label `job` of its own."""
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
VALUES = st.floats(allow_nan=False)


@st.composite
def all_families(draw: st.DrawFn) -> list[Family]:
    found = []
    for number in range(draw(st.integers(0, 4))):
        labels = tuple(draw(st.lists(st.sampled_from(["job", "step", "subtask"]), unique=True)))
        values = draw(st.dictionaries(st.tuples(*(TEXTS for _ in labels)), VALUES, max_size=3))
        kind: Any = draw(st.sampled_from(["counter", "gauge"]))
        of_attempt = draw(st.booleans())
        found.append(Family(f"weir_{number}", kind, draw(TEXTS), "By", of_attempt, labels, tuple(values.items())))
    return found


def sent(families: list[Family], began: float = 100.0, attempt: float = 200.0, now: float = 300.0) -> OtlpReceiver:
    data = metrics_data(families, Resource({"service.name": "orders"}), began, attempt, now)
    receiver = OtlpReceiver()
    receiver.requests.append(ExportMetricsServiceRequest.FromString(encode_metrics(data).SerializeToString()))
    return receiver


@given(all_families())
def test_all_that_has_a_value_is_there_with_its_labels(families: list[Family]) -> None:
    receiver = sent(families)
    assert receiver.series() == {
        (family.name, tuple(sorted(zip(names, labels, strict=True)))): value
        for family in families
        for names in [[NAMES.get(label, label) for label in family.labels]]
        for labels, value in family.samples
    }
    metrics = receiver.metrics()
    assert metrics.keys() == {family.name for family in families if family.samples}
    for family in families:
        if family.samples:
            one = metrics[family.name]
            assert (one.description, one.unit) == (family.help, family.unit)
            assert one.WhichOneof("data") == ("sum" if family.kind == "counter" else "gauge")
    (resource,) = receiver.requests[0].resource_metrics
    assert [(one.scope.name, one.scope.version) for one in resource.scope_metrics] == [("weir", VERSION)]
    assert receiver.resource() == {"service.name": "orders"}


@given(all_families(), st.floats(0, 4e9), st.floats(0, 4e9), st.floats(0, 4e9))
def test_counters_only_grow_from_the_time_that_they_began_at(
    families: list[Family], began: float, attempt: float, now: float
) -> None:
    metrics = sent(families, began, attempt, now).metrics()
    for family in families:
        if family.samples and family.kind == "counter":
            one = metrics[family.name]
            assert (one.sum.aggregation_temporality, one.sum.is_monotonic) == (CUMULATIVE, True)
            for point in points_of(one):
                start = attempt if family.of_attempt else began
                assert math.isclose(point.start_time_unix_nano, start * 1e9, abs_tol=1000)
                assert point.start_time_unix_nano <= point.time_unix_nano
                assert math.isclose(point.time_unix_nano, max(now, start) * 1e9, abs_tol=1000)
