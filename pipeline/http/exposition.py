"""A job's metrics as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from pipeline.http.families import Family

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def exposition(families: Iterable[Family]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected([_collected(family) for family in families]))
    text: bytes = generate_latest(registry)
    return text


class _Collected:
    """A collector of what was collected already."""

    def __init__(self, families: list[Any]) -> None:
        self._families = families

    def collect(self) -> list[Any]:
        return self._families


def _collected(family: Family) -> Any:
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    collected = kind(family.name, family.help, labels=family.labels)
    for labels, value in family.samples:
        collected.add_metric(labels, value)
    return collected
