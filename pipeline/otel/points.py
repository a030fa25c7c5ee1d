"""A job's metrics as OpenTelemetry has them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from pipeline.http.families import Family
from pipeline.version import VERSION

JOB: Final = "pipeline"
"""What the label `job` is called as an attribute. A collector that hands metrics on to Prometheus makes a label `job`
of the resource's `service.name`, and drops what has such an attribute already."""


def metrics_data(
    families: Iterable[Family], resource: Resource, job_began: float, attempt_began: float, now: float
) -> MetricsData:
    """Those that have a value now, by Prometheus' names and labels, but for `JOB`.

    Args:
        resource: whose metrics they are.
        job_began: in seconds since 1970, as are the others.
    """
    metrics = [
        _metric(family, attempt_began if family.of_attempt else job_began, now) for family in families if family.samples
    ]
    scope = ScopeMetrics(InstrumentationScope("weir", VERSION), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(family: Family, began: float, now: float) -> Metric:
    # A clock may be set back, and no counter ends before it begins.
    start, at = _nanoseconds(began), _nanoseconds(max(began, now))
    names = [JOB if label == "job" else label for label in family.labels]
    points = [
        NumberDataPoint(dict(zip(names, labels, strict=True)), start, at, value) for labels, value in family.samples
    ]
    data = Sum(points, AggregationTemporality.CUMULATIVE, True) if family.kind == "counter" else Gauge(points)
    return Metric(family.name, family.help, family.unit, data)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
