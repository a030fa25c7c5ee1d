from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from idle_handle import completed, idle_handle, run
from prometheus_client.parser import text_string_to_metric_families as parse

from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.job_metrics import JOB_METRICS
from checkpoint.metric_names import prometheus_name
from checkpoint.metrics import METRICS
from checkpoint.waiting import WaitKind
from pipeline import Autoscale
from pipeline.http.exposition import exposition
from pipeline.http.families import families
from pipeline.http.watched_job import WatchedJob
from pipeline.runtime.driver.scaling.autoscaler import Autoscaler
from pipeline.runtime.driver.scaling.autoscaling import Reason
from pipeline.runtime.system import SYSTEM

VALUES: dict[str, Any] = {"text": "3 checkpoints (4, 5) are under way", "by split": {"orders[0]": 7, "orders[1]": 2}}


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """By name and labels, each of which may come once only."""
    found = [
        ((sample.name, tuple(sorted(sample.labels.items()))), sample.value)
        for family in parse(text.decode())
        for sample in family.samples
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def of(**subtasks: dict[str, Any]) -> bytes:
    handle = idle_handle('a "job"\nof ours')
    run(handle, **subtasks)
    completed(handle, 1, in_0={"start_delay": 1.25, "in_flight_bytes": 10})
    handle._master.history.committed(1, 103.0)
    job = WatchedJob(handle._master.name, handle, None)
    return exposition(families(job.status(), True, job.newest_completed(), time.time()))


def test_every_declared_metric_is_there_with_its_help_and_no_series_comes_twice() -> None:
    every = {metric.name: VALUES.get(metric.kind, 1) for metric in METRICS}
    text = of(in_0=every, totals_0=every, totals_1=every)
    found = samples(text)
    names = {name for name, _ in found}
    declared = {prometheus_name(metric) for metric in METRICS} - {None}
    now_and_then = ("weir_waits_", "weir_autoscale_")
    assert names == declared | {one.name for one in JOB_METRICS if not one.name.startswith(now_and_then)}
    families = {family.name: family for family in parse(text.decode())}
    for one in JOB_METRICS:
        family = families[one.name.removesuffix("_total")]
        assert (family.documentation, family.type) == (one.help, one.kind)
    for name, labels in found:
        assert dict(labels)["job"] == 'a "job"\nof ours', name


def test_values_are_in_the_units_of_their_names() -> None:
    found = samples(
        of(
            in_0={"watermark": MAX_WATERMARK, "recordsLag": None, "recordsLagByPartition": VALUES["by split"]},
            totals_1={"busyMsPerSecond": 750.0, "watermark": 1_700_000_000_500, "sourceGateReason": VALUES["text"]},
        )
    )

    def value(name: str, **labels: str) -> float | None:
        all_ = {"job": 'a "job"\nof ours', **labels}
        return found.get((name, tuple(sorted(all_.items()))))

    totals = {"step": "totals → out", "subtask": "1"}
    assert value("weir_busy_ratio", **totals) == 0.75
    assert value("weir_watermark_timestamp_seconds", **totals) == 1_700_000_000.5
    assert value("weir_watermark_timestamp_seconds", step="in", subtask="0") == float("inf")
    assert value("weir_source_gate_reason_info", reason="N checkpoints (N) are under way", **totals) == 1
    assert value("weir_records_lag", step="in", subtask="0") is None
    assert value("weir_partition_records_lag", step="in", subtask="0", topic="orders", partition="1") == 2
    assert value("weir_job_status", status="running") == 1
    assert value("weir_job_status", status="failed") == 0
    assert value("weir_last_checkpoint_start_delay_seconds") == 1.25
    assert value("weir_last_checkpoint_commit_seconds") == 1.0


def test_what_records_say_is_in_no_metric() -> None:
    assert b"hunter2" not in of(totals_0={"lastFailure": "ValueError: hunter2", "gateWindowChange": "hunter2"})


@given(
    st.dictionaries(
        st.sampled_from([metric.name for metric in METRICS if metric.kind in ("counter", "gauge")]),
        st.none() | st.integers(0, 2**63 - 1) | st.floats(0, 1e300),
    )
)
def test_whatever_subtasks_report_can_be_read(values: dict[str, Any]) -> None:
    assert samples(of(in_0=values))


def test_waits_are_told_by_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = idle_handle()
    run(handle)
    waits = handle._master.waits
    waits.report("in[0]", [("what it says", 1.0, "credentials"), ("something else", 5.0, "brokers")])
    waits.report("in[1]", [("something", 9.0, "brokers")])
    waits.instead("the job", "the brokers, in other words", WaitKind.SLOTS)
    job = WatchedJob("orders", handle, None)
    found = samples(exposition(families(job.status(), False, None, time.time())))
    kinds = {dict(labels)["on"]: at for (name, labels), at in found.items() if name.startswith("weir_waits")}
    assert kinds.keys() == {"brokers", "credentials", "slots"}
    assert kinds["brokers"] + 7 < kinds["credentials"] < kinds["slots"] <= time.time()
    (help_,) = [one.help for one in JOB_METRICS if one.name == "weir_waits_since_timestamp_seconds"]
    assert all(f"`{kind}`" in help_ for kind in WaitKind)


def test_what_a_job_does_by_itself_and_does_not_is_counted_by_outcome_and_reason() -> None:
    handle = idle_handle()
    handle._master.autoscaler = Autoscaler(Autoscale(most=8), handle._master, SYSTEM)
    found = samples(exposition(WatchedJob("orders", handle, None).families()))
    counted = {(name, *dict(labels).values()): value for (name, labels), value in found.items() if "autoscale" in name}
    assert counted == {
        **{("weir_autoscale_rescales_total", "orders", one): 0.0 for one in ("rescaled", "failed")},
        **{("weir_autoscale_refusals_total", "orders", reason.value): 0.0 for reason in Reason},
    }
    (help_,) = [one.help for one in JOB_METRICS if one.name == "weir_autoscale_refusals_total"]
    assert all(f"`{reason.value}`" in help_ for reason in Reason)


@pytest.mark.parametrize("status", ["created", "running", "restarting", "rescaling", "finished", "failed", "cancelled"])
def test_a_job_always_is_something(status: str) -> None:
    handle = idle_handle()
    handle._master.status = status
    found = samples(exposition(WatchedJob("orders", handle, None).families()))
    assert [
        dict(labels)["status"] for (name, labels), is_it in found.items() if name == "weir_job_status" and is_it
    ] == [status]
