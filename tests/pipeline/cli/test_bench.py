"""`weir bench`: its input, and a small run of each measurement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.bench.cpu import CpuMeter
from pipeline.bench.input import records
from pipeline.bench.percentiles import percentile
from pipeline.testing import KafkaBroker


def test_input_is_json_of_110_bytes_and_the_same_in_every_run() -> None:
    made = list(records(2_000))
    assert {len(value) for _, value in made} == {110}
    assert [json.loads(value)["user"].encode() for _, value in made] == [key for key, _ in made]
    assert made == list(records(2_000))


@pytest.mark.parametrize(
    ("values", "part", "expected"),
    [([], 0.5, None), ([3.0], 0.95, 3.0), ([4.0, 1.0, 2.0, 3.0], 0.5, 2.5), (list(range(101)), 0.95, 95)],
)
def test_percentiles_lie_between_neighbours(values: list[float], part: float, expected: float | None) -> None:
    assert percentile(values, part) == expected


def test_cpu_time_counts_from_the_first_look_and_survives_the_end_of_a_process() -> None:
    meter = CpuMeter()
    meter.sample([os.getpid(), 2**22 + 1])
    assert meter.seconds == 0
    sum(range(3_000_000))
    meter.sample([])
    assert 0 < meter.seconds < 60


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
@pytest.mark.parametrize("job", ["sum", "window"])
def test_throughput_is_measured_for_both_guarantees(job: str, kafka: KafkaBroker, tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    command = [sys.executable, "-c", "from pipeline.cli import main; main(prog_name='weir')", "bench", "throughput"]
    arguments = ["--job", job, "--records", "20000", "--bootstrap", kafka.bootstrap_servers, "--json", str(target)]
    done = subprocess.run([*command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    result = json.loads(target.read_text())
    assert result["bench"] == "throughput"
    assert result["settings"]["job"] == job
    assert {"weir", "pyspark", "java", "kafka"} - result["versions"].keys() == {"kafka"}  # it was the test's
    assert result["machine"]["cores"] >= 1
    assert "exactly once, memory" in {figure["name"] for figure in result["figures"]}
    assert result["bare_loop"]["rate"] > 0
    assert [job["delivery"] for job in result["jobs"]] == ["exactly_once", "at_least_once"]
    for job in result["jobs"]:
        assert job["ratio"] == pytest.approx(job["rate"] / result["bare_loop"]["rate"])
        assert job["whole_rate"] < job["rate"]
        assert job["checkpoints"] >= 1
        assert job["pss_peak"] > 100 * 2**20  # a JVM and four Pythons
        assert sum(job["pss_parts"].values()) == job["pss_peak"]
        assert min(job["pss_parts"][part] for part in ("driver", "JVM", "subtasks")) > 10 * 2**20


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_the_cost_of_exactly_once_is_measured_by_interval(kafka: KafkaBroker, tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    command = [sys.executable, "-c", "from pipeline.cli import main; main(prog_name='weir')", "bench", "delivery"]
    arguments = ["--interval", "0.2", "--records", "150000", "--bootstrap", kafka.bootstrap_servers]
    done = subprocess.run(
        [*command, *arguments, "--json", str(target)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (point,) = json.loads(target.read_text())["points"]
    assert point["interval_s"] == 0.2
    for guarantee in ("at_least_once", "exactly_once"):
        assert point[guarantee]["steady"] > 0
        assert point[guarantee]["checkpoints"] >= 2
    assert point["steady_ratio"] == pytest.approx(point["exactly_once"]["steady"] / point["at_least_once"]["steady"])


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_latency_is_measured_from_when_records_were_due(kafka: KafkaBroker, tmp_path: Path) -> None:
    job = ("--job", "async", "--service", "0.05", "--capacity", "200", "--delivery", "at_least_once")
    result = _bench(tmp_path, "latency", kafka, "--rate", "500", "--seconds", "2", "--warm-up", "1", *job)
    (stage,) = result["stages"]
    assert stage["delays"]["records"] == 1000
    assert 0 < stage["checkpoints"][0] <= stage["checkpoints"][1] < 30
    assert 0.05 < stage["delays"]["p50"] <= stage["delays"]["p99"] <= stage["delays"]["max"] < 30
    assert 0 <= stage["sent"]["late_p50"] <= stage["sent"]["late_max"]


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_a_start_and_one_after_a_kill_are_measured_by_phase(kafka: KafkaBroker, tmp_path: Path) -> None:
    arguments = ("--runs", "1", "--interval", "0.5", "--kind", "fresh", "--kind", "after a kill")
    result = _bench(tmp_path, "start", kafka, *arguments)
    assert [start["kind"] for start in result["starts"]] == ["fresh", "after a kill"]
    for start in result["starts"]:
        assert {"Python", "deploy", "read"} <= start["phases"].keys()
        assert 0 < max(start["phases"].values()) < start["first_output_s"] < 120


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_growth_is_measured_and_fitted(kafka: KafkaBroker, tmp_path: Path) -> None:
    arguments = ("--axis", "steps", "--point", "1", "--point", "3", "--records", "5000")
    (grown,) = _bench(tmp_path, "growth", kafka, *arguments)["growth"]
    assert [point["size"] for point in grown["points"]] == [1, 3]
    assert {"start", "memory", "time a record"} <= grown["fits"].keys()
    assert all(point["memory"] > 100 * 2**20 for point in grown["points"])


def _bench(folder: Path, name: str, kafka: KafkaBroker, *arguments: str) -> dict[str, Any]:
    """What a measurement has written."""
    target = folder / "result.json"
    command = [sys.executable, "-c", "from pipeline.cli import main; main(prog_name='weir')", "bench", name]
    done = subprocess.run(
        [*command, *arguments, "--bootstrap", kafka.bootstrap_servers, "--json", str(target)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(target.read_text())
    assert result["bench"] == name
    return result
