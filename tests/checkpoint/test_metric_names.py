from __future__ import annotations

import re

import pytest

from checkpoint.job_metrics import JOB_METRICS
from checkpoint.metric_names import prometheus_name, prometheus_value
from checkpoint.metrics import METRICS

NAMES = {metric: name for metric in METRICS if (name := prometheus_name(metric)) is not None}
NOT_BASE = {"ms", "milliseconds", "minutes", "hours", "kb", "mb", "kilobytes", "percent", "gauge", "counter", "metric"}


def all_names() -> list[tuple[str, str]]:
    """With their kinds."""
    return [(name, metric.kind) for metric, name in NAMES.items()] + [(one.name, one.kind) for one in JOB_METRICS]


def test_names_keep_the_rules_that_promtool_checks() -> None:
    for name, kind in all_names():
        assert re.fullmatch(r"weir(_[a-z0-9]+)+", name), name
        assert name.endswith("_total") == (kind == "counter"), name
        assert not name.endswith(("_count", "_sum", "_bucket")), name
        assert not NOT_BASE & set(name.split("_")), name
        assert name.count("seconds") + name.count("bytes") <= 1, name


def test_each_name_is_one_metrics() -> None:
    names = [name for name, _ in all_names()]
    assert len(set(names)) == len(names)


def test_units_are_at_the_end_and_values_in_them() -> None:
    by_name = {metric.name: metric for metric in METRICS}
    for name, known, value, there in (
        ("recordsIn", "weir_records_in_total", 3, 3),
        ("bytesIn", "weir_in_bytes_total", 3, 3),
        ("gcMs", "weir_gc_seconds_total", 1500, 1.5),
        ("busyMsPerSecond", "weir_busy_ratio", 250, 0.25),
        ("requestMsP95", "weir_request_p95_seconds", 20, 0.02),
        ("watermark", "weir_watermark_timestamp_seconds", 1_700_000_000_000, 1.7e9),
        ("sourceGateReason", "weir_source_gate_reason_info", 1, 1),
        ("recordsLagByPartition", "weir_partition_records_lag", 4, 4),
    ):
        assert prometheus_name(by_name[name]) == known
        assert prometheus_value(by_name[name], value) == pytest.approx(there)


def test_what_is_left_out_are_rates_and_words() -> None:
    left_out = {metric.name for metric in METRICS} - {metric.name for metric in NAMES}
    assert left_out == {"recordsInPerSecond", "recordsOutPerSecond", "gateWindowChange", "lastFailure"}
