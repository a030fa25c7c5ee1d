"""What Prometheus calls a subtask's metrics: snake case, the unit at the end, `_total` for counters; and what
OpenTelemetry calls their units."""

from __future__ import annotations

import re
from typing import Final

from checkpoint.metrics import Metric

_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]\d+|\d+")
_PER_PARTITION: Final = ["by", "partition"]
_UNITS: Final = {"seconds": "s", "bytes": "By", "ratio": "1"}


def prometheus_name(metric: Metric) -> str | None:
    """`None`: it isn't shown there. Prometheus makes rates from counters by itself, and most words have no end of
    different ones, or come from records."""
    if metric.unit == "records/s" or (metric.kind == "text" and metric.name != "sourceGateReason"):
        return None
    words = [word.lower() for word in _WORDS.findall(metric.name)]
    if metric.kind == "text":
        return f"weir_{'_'.join(words)}_info"
    if words[-2:] == _PER_PARTITION:
        words = ["partition", *words[:-2]]
    unit: list[str] = []
    if metric.unit == "ms/s":
        words, unit = words[:-3], ["ratio"]  # …MsPerSecond
    elif metric.name == "watermark":
        unit = ["timestamp", "seconds"]
    elif metric.unit == "ms":
        words, unit = [word for word in words if word != "ms"], ["seconds"]
    elif metric.unit == "bytes":
        words, unit = [word for word in words if word != "bytes"], ["bytes"]
    total = ["total"] if metric.kind == "counter" else []
    return "_".join(["weir", *words, *unit, *total])


def prometheus_value(metric: Metric, value: float) -> float:
    """In the unit of its name there."""
    return value / 1000 if metric.unit in ("ms", "ms/s") else value


def otel_unit(name: str, counted: str) -> str:
    """As UCUM has it; empty where there is none. (With "1" a collector would add `_ratio` to the name.)

    Args:
        name: Prometheus'.
        counted: what it counts, where the name doesn't end with a unit.
    """
    last = name.removesuffix("_total").rpartition("_")[2]
    return _UNITS.get(last) or (f"{{{counted}}}" if counted else "")
