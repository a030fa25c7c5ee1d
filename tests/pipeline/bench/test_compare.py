"""`weir bench compare`, and the report that all measurements share."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pipeline.bench.compare import Compared, compare
from pipeline.bench.environment import Environment, Machine
from pipeline.bench.errors import BenchFailed
from pipeline.bench.report import Better, Figure, Report, figure, read_report, to_json
from pipeline.cli.bench import bench

_VALUES = st.floats(0.001, 1e12)


class _Measured:
    def __init__(self, rate: float, delay: float | None = 2.0) -> None:
        self.rate, self.delay = rate, delay

    def settings(self) -> dict[str, Any]:
        return {"records": 1000}

    def figures(self) -> list[Figure | None]:
        return [figure("rate", self.rate, "records/s", "higher"), figure("delay", self.delay, "s", "lower")]

    def fields(self) -> dict[str, Any]:
        return {"runs": [self.rate]}


def _environment(python: str = "3.11.7") -> Environment:
    return Environment("2026-01-02T03:04:05+00:00", 12.5, {"python": python}, Machine("Linux", 2, 1 << 34, 0.1, 1.9))


def _write(folder: Path, name: str, measured: _Measured, bench: str = "throughput") -> Path:
    file = folder / name
    file.write_text(to_json(bench, _environment(), measured))
    return file


def test_a_report_is_read_as_it_was_written_and_keeps_the_measurements_own_fields(tmp_path: Path) -> None:
    file = _write(tmp_path, "a.json", _Measured(5.0, None))
    report = read_report(file)
    assert report.bench == "throughput"
    assert report.settings == {"records": 1000}
    assert report.figures == [Figure("rate", 5.0, "records/s", "higher")]
    assert report.machine["load_after"] == 1.9
    assert json.loads(file.read_text())["runs"] == [5.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not JSON", "was not written by"),
        ("{}", "missing required field"),
        ('{"bench": "throughput", "format": 1}', "missing required field"),
    ],
)
def test_other_files_are_refused_with_their_path(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(BenchFailed, match=message) as refused:
        read_report(file)
    assert str(file) in str(refused.value)


def test_a_report_of_another_format_is_refused(tmp_path: Path) -> None:
    file = _write(tmp_path, "a.json", _Measured(5.0))
    file.write_text(file.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(BenchFailed, match="format 2"):
        read_report(file)


@given(_VALUES, _VALUES, st.sampled_from(["higher", "lower"]), st.floats(0, 50))
def test_worse_one_way_is_better_the_other_way(a: float, b: float, better: Better, within: float) -> None:
    there = Compared(Figure("x", a, "s", better), Figure("x", b, "s", better))
    mirrored = Compared(
        *(replace(one, better="lower" if better == "higher" else "higher") for one in (there.before, there.after))
    )
    opposite = {"better": "worse", "worse": "better", "same": "same"}
    assert mirrored.worse_by == -there.worse_by
    assert mirrored.verdict(within) == opposite[there.verdict(within)]
    assert (there.verdict(0) == "same") == (a == b)
    assert there.ratio == b / a


def test_a_figure_that_was_zero_has_no_ratio_and_is_infinitely_worse() -> None:
    failed = Compared(Figure("failed", 0.0, "", "lower"), Figure("failed", 1.0, "", "lower"))
    assert failed.ratio is None
    assert failed.worse_by == float("inf")
    assert failed.verdict(5) == "worse"
    none = Compared(failed.before, failed.before)
    assert none.worse_by == 0
    assert none.verdict(5) == "same"


def _report(bench: str = "start", settings: dict[str, Any] | None = None, *figures: Figure) -> Report:
    machine = {"system": "Linux", "cores": 2, "memory": 1, "load_before": 0.0}
    return Report(bench, 1, "", 1.0, {"python": "3.11"}, machine, settings or {}, list(figures))


def test_what_differs_besides_the_figures_is_named() -> None:
    a, b, c = (Figure(name, 1.0, "s", "lower") for name in "abc")
    before = _report("start", {"runs": 3, "interval": 1}, a, b)
    after = replace(_report("start", {"runs": 5, "rate": 7}, b, c), versions={"python": "3.12"})
    after.machine["cores"] = 8
    found = compare(before, after)
    assert [one.before.name for one in found.figures] == ["b"]
    assert (found.only_before, found.only_after) == (["a"], ["c"])
    assert [(one.name, one.before, one.after) for one in found.settings] == [
        ("runs", 3, 5),
        ("interval", 1, None),
        ("rate", None, 7),
    ]
    assert [one.name for one in found.environment] == ["python", "cores"]
    assert found.worst is None


def test_different_measurements_and_those_without_common_figures_are_refused() -> None:
    a, b = (Figure(name, 1.0, "s", "lower") for name in "ab")
    with pytest.raises(BenchFailed, match="`weir bench start` and the second of `weir bench growth`"):
        compare(_report("start", {}, a), _report("growth", {}, a))
    with pytest.raises(BenchFailed, match="no figure in common"):
        compare(_report("start", {}, a), _report("start", {}, b))


def test_the_command_shows_figures_and_fails_over_a_limit(tmp_path: Path) -> None:
    before = _write(tmp_path, "a.json", _Measured(100_000.0))
    after = _write(tmp_path, "b.json", _Measured(80_000.0, 1.0))
    run = CliRunner().invoke
    shown = run(bench, ["compare", str(before), str(after)])
    assert shown.exit_code == 0, shown.output
    rate, delay = (line for line in shown.output.splitlines() if "records/s" in line or " s " in line)
    assert "100,000 records/s" in rate
    assert "0.80" in rate
    assert "worse" in rate
    assert "better" in delay
    assert run(bench, ["compare", str(before), str(after), "--fail-over", "20.5"]).exit_code == 0
    failed = run(bench, ["compare", str(before), str(after), "--fail-over", "10"])
    assert failed.exit_code == 1
    assert "rate is worse by 20.0 %, and 10 % are allowed" in failed.output
    other = _write(tmp_path, "c.json", _Measured(1.0), "start")
    assert "only two" in run(bench, ["compare", str(before), str(other)]).output
