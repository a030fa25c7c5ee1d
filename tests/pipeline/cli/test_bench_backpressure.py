"""`weir bench backpressure`: what it makes of what it sees, and short runs of it."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import orjson
import psutil
import pytest
from bench_results import checkpoint, run_of, sample
from click.testing import CliRunner, Result

from checkpoint.coordination.coordinator import JOB_ENDING
from pipeline.bench.backpressure.counters import Counters
from pipeline.bench.backpressure.job import record
from pipeline.bench.backpressure.plot import plot
from pipeline.bench.backpressure.rates import rates
from pipeline.bench.backpressure.results import Result as Measured
from pipeline.bench.backpressure.results import Run, Spread, Summary, summarise
from pipeline.bench.backpressure.run import measure
from pipeline.bench.backpressure.scenarios import scenarios
from pipeline.bench.backpressure.tables import tables, to_markdown
from pipeline.bench.backpressure.variants import Experiment, Settings, Variant, original, standard
from pipeline.bench.errors import BenchFailed
from pipeline.bench.memory import MemoryMeter
from pipeline.cli import main
from pipeline.runtime.driver.status.checkpoint_stats import ATTEMPT_ENDED

WEIR = [sys.executable, "-c", "from pipeline.cli import main; main(prog_name='weir')", "bench", "backpressure"]


# -- figures ----------------------------------------------------------------------------------------------------------


def test_checkpoints_of_the_warm_up_are_counted_but_in_no_spread() -> None:
    summary = summarise([checkpoint(1.9, 9.0), checkpoint(2.0, 1.0), checkpoint(4.0, 3.0)], [], warm_up=2.0)
    assert summary.completed == 3
    assert summary.duration == Spread(2.0, pytest.approx(2.9), 3.0)


def test_a_failed_checkpoint_has_a_span_but_no_duration() -> None:
    rows = [checkpoint(2.0, 60.0, "failed", failure="expired", span_records=500), checkpoint(4.0, 1.0, span_records=9)]
    summary = summarise(rows, [], warm_up=0.0)
    assert (summary.completed, summary.failed, summary.in_progress) == (1, 1, 0)
    assert summary.duration.max == 1.0
    assert summary.span_records.max == 500


def test_checkpoints_that_the_end_cut_short_are_in_progress() -> None:
    cut = [checkpoint(3.0, 6.5, "failed", failure=reason) for reason in (JOB_ENDING, ATTEMPT_ENDED)]
    rows = [checkpoint(2.0, 7.5, "in_progress"), *cut]
    summary = summarise(rows, [], warm_up=0.0)
    assert (summary.completed, summary.failed, summary.in_progress) == (0, 0, 3)
    assert summary.oldest_in_progress == 7.5
    assert summary.duration == Spread(None, None, None)


def test_unaligned_checkpoints_are_counted_once_they_are_complete() -> None:
    rows = [
        checkpoint(2.0, 1.0, unaligned=True),
        checkpoint(4.0, 1.0),
        checkpoint(6.0, 1.0, "in_progress", unaligned=True),
    ]
    assert summarise(rows, [], warm_up=0.0).unaligned == 1


def test_throughput_leaves_out_the_warm_up_and_queues_and_the_gate_do_not() -> None:
    samples = [sample(0.0), sample(2.0, 8_000, 1_000, 600), sample(4.0, 9_000, 3_000, 400, closed_ms=1_000)]
    summary = summarise([], samples, warm_up=2.0)
    assert summary.records_per_s == 1_000
    assert summary.fetched_per_s_max == 4_000
    assert summary.queued_bytes_max == 600
    assert summary.gate_closed == 0.25


def test_nothing_seen_gives_no_figures() -> None:
    nothing = Spread(None, None, None)
    assert summarise([], [], 2.0) == Summary(
        0, 0, 0, None, 0, nothing, nothing, nothing, nothing, nothing, nothing, nothing, None, None, 0, 0.0, None, None
    )


def test_the_window_is_told_as_it_ends_and_at_its_largest() -> None:
    samples = [sample(0.0), sample(0.5, window=1_000), sample(1.0, window=8_000), sample(1.5, window=2_000)]
    summary = summarise([], samples, 0.0)
    assert (summary.window_end, summary.window_max) == (2_000, 8_000)


def test_rates_are_taken_over_about_a_second() -> None:
    counts = [(0.0, 0), (0.5, 100), (0.98, 300), (1.5, 300), (2.0, 300)]
    assert rates(counts) == [(0.98, 300 / 0.98), (1.5, 200.0), (2.0, 0.0)]


def test_counters_grow_evenly_between_reports() -> None:
    counters = Counters()
    assert (counters.total(1.0), counters.known_until) == (0, 0.0)
    counters.report("a", 1.0, 100)
    counters.report("a", 2.0, 300)
    counters.report("b", 1.5, 30)
    assert [counters.total(at) for at in (0.0, 0.5, 1.0, 1.5, 9.0)] == [0, 60, 120, 230, 330]
    assert counters.known_until == 1.5


def test_counters_of_a_restarted_job_go_on_from_what_was_counted() -> None:
    counters = Counters()
    counters.report("a", 1.0, 100)
    counters.report("b", 2.0, 50)
    counters.begin_again(4.0)
    assert counters.known_until == 4.0
    counters.report("a", 5.0, 10)
    counters.report("c", 6.0, 20)  # there was none of that name before, and "b" is gone
    assert counters.known_until == 5.0
    assert [counters.total(at) for at in (1.0, 3.0, 4.0, 5.0, 6.0)] == [125, 150, 150, 170, 180]


def test_memory_is_each_groups_largest_process_and_the_most_of_all() -> None:
    meter = MemoryMeter()
    total = meter.sample({"driver": [os.getpid()], "workers": [os.getpid(), 2**22 + 1]})
    assert total == meter.peak_total == meter.peaks["driver"] + meter.peaks["workers"]
    assert meter.sample({"workers": []}) == 0
    assert meter.peak_total == total


# -- what is run ------------------------------------------------------------------------------------------------------


def test_records_have_110_bytes_and_all_users_come_equally_often() -> None:
    made = [record(id) for id in range(20_000)]
    assert {len(orjson.dumps(one)) for one in made} == {110}
    assert set(Counter(one["user"] for one in made).values()) == {2}


def test_settings_warm_up_is_two_intervals() -> None:
    assert Settings(0.5, 60.0, 1, 0, 10.0).warm_up == 1.0


@pytest.mark.parametrize("experiment", [standard(), original(), scenarios()])
def test_runs_differ_in_name_and_settings(experiment: Experiment) -> None:
    variants = experiment.variants
    assert len({v.name for v in variants}) == len(variants)
    assert len({repr(replace(v, name="")) for v in variants}) == len(variants)
    for variant in variants:
        assert variant.buffer_config.debloat == (not variant.buffers)


def test_the_original_experiment_has_its_settings() -> None:
    settings = original().settings
    assert (settings.interval, settings.timeout, settings.max_concurrent) == (10, 300, 2)
    assert (settings.tolerable_failures, settings.enough, settings.least) == (0, 10, 300)
    gates = [(variant.gate, variant.window, variant.max_span_records) for variant in original().variants]
    assert gates[1:] == [(True, False, None), (True, False, 5_000), (True, True, None)]
    assert gates[0][0] is False


def test_a_run_that_cannot_be_is_refused_before_any_starts() -> None:
    said: list[str] = []
    experiment = Experiment(standard().settings, (Variant("fine"), Variant("odd", alignment="sideways")))
    with pytest.raises(BenchFailed, match="odd can't run: alignment"):
        measure(experiment, said.append, lambda _: None)
    assert said == []


# -- tables and plot --------------------------------------------------------------------------------------------------


def cells(runs: list[Run], title: str) -> list[dict[str, str]]:
    found = [table for table in tables(Measured(standard().settings, tuple(runs))) if table.title.startswith(title)]
    assert len(found) == 1
    return [dict(zip(found[0].columns, row, strict=True)) for row in found[0].rows]


def test_tables_say_what_each_run_is() -> None:
    aligned, timeout = (
        Variant("a", gate=False, buffers={"debloat": False}),
        Variant("t", 0.5, window=False, max_span_records=1_000, delay=0.0, rate=10_000.0),
    )
    assert cells([run_of([], [], aligned), run_of([], [], timeout)], "Runs: a checkpoint every 2 s, 1 at a time") == [
        {
            "run": "a",
            "barriers": "aligned",
            "gate": "off",
            "buffers": "fixed, 8.0 MiB a subtask",
            "operators": "2 ms a record",
            "source could do": "100,000 records/s",
        },
        {
            "run": "t",
            "barriers": "aligned, unaligned after 0.5 s",
            "gate": "by time, ≤ 1,000 records",
            "buffers": "debloated",
            "operators": "fast",
            "source could do": "10,000 records/s",
        },
    ]


def test_a_checkpoint_still_in_progress_bounds_the_longest_from_below() -> None:
    younger, older = checkpoint(6.0, 0.5, "in_progress"), checkpoint(4.0, 8.0, "in_progress")
    rows = cells([run_of([checkpoint(3.0, 0.7), last], []) for last in (younger, older)], "Checkpoints: duration")
    assert [row["max"] for row in rows] == ["700 ms", "> 8.0 s"]
    assert [row["in progress"] for row in rows] == ["1", "1"]


def test_a_failed_job_shows() -> None:
    expired = checkpoint(3.0, 300.0, "failed", failure="expired")
    (row,) = cells([run_of([expired], [], failure="checkpoint 1 failed")], "Checkpoints: duration")
    assert (row["p50"], row["failed"]) == ("–", "1 (job failed)")


def test_figures_have_units() -> None:
    done = checkpoint(
        3.0, 1.234, span_records=2_000, span_bytes=220_000, in_flight_bytes=900, in_flight_records=7, size=3 << 20
    )
    run = run_of([done], [sample(2.0, window=12_000), sample(4.0, 3_000, 2_000, 50_000, window=9_000)])
    (held,) = cells([run], "Checkpoints: span")
    assert list(held.values()) == [
        "one",
        "2,000",
        "2,000",
        "215 KiB",
        "7",
        "900 B",
        "900 B",
        "3.0 MiB",
        "9,000",
        "12,000",
    ]
    (job,) = cells([run], "The job")
    assert list(job.values())[1:5] == ["1,000", "1,500", "49 KiB", "0 %"]
    assert list(job.values())[5:] == ["150 MiB", "280 MiB", "100 MiB", "800 MiB", "3 ms", "2 ms", "72 ms"]


def test_markdown_has_a_line_for_each_run_in_each_table() -> None:
    lines = to_markdown(Measured(standard().settings, (run_of([], []),))).splitlines()
    assert sum(line.startswith("| one |") for line in lines) == 4
    heads = [i for i, line in enumerate(lines) if line.startswith("| run |")]
    assert all(lines[i].count("|") == lines[i + 1].count("|") == lines[i + 2].count("|") for i in heads)


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_a_plot_is_written_in_the_format_of_its_suffix(tmp_path: Path, suffix: str, magic: bytes) -> None:
    rows = [
        checkpoint(2.0, 1.0),
        checkpoint(4.0, 60.0, "failed", failure="expired"),
        checkpoint(5.0, 1.0, "in_progress"),
    ]
    target = tmp_path / f"plot{suffix}"
    runs = (run_of(rows, [sample(0.0), sample(1.0, 50, window=1_000)]), run_of([], []))
    plot(Measured(standard().settings, runs), target)
    assert target.read_bytes().startswith(magic)


# -- the command ------------------------------------------------------------------------------------------------------


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", "backpressure", *arguments])


def test_an_unknown_run_is_refused_with_those_there_are() -> None:
    result = invoke("--only", "nonsense")
    assert result.exit_code == 2
    assert all(name in result.output for name in ("nonsense", "healthy", "unaligned-gate"))
    assert "original-gate" in invoke("--original", "--only", "healthy").output
    assert "slow-storage" in invoke("--scenarios", "--only", "healthy").output


def test_files_that_cannot_be_written_are_refused_before_anything_runs(tmp_path: Path) -> None:
    for arguments, reason in (
        (["--plot", str(tmp_path / "plot.pdf")], ".png or .svg"),
        (["--plot", str(tmp_path / "none" / "plot.png")], "there is no folder"),
        (["--json", str(tmp_path / "none" / "result.json")], "there is no folder"),
    ):
        result = invoke("--only", "healthy", *arguments)
        assert result.exit_code == 2
        assert reason in " ".join(result.output.split())


def test_without_matplotlib_a_plot_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else found(name))
    result = invoke("--only", "healthy", "--plot", str(tmp_path / "plot.png"))
    assert result.exit_code == 1
    assert "pip install 'weir-streams[plot]'" in result.output


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
@pytest.mark.parametrize(("sign", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_that_is_ended_leaves_nothing_behind(tmp_path: Path, sign: signal.Signals, status: int) -> None:
    command = subprocess.Popen(
        [*WEIR, "--only", "aligned-gate", "--json", str(tmp_path / "result.json")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    try:
        assert command.stderr is not None
        assert "starting" in command.stderr.readline()
        while not any(tmp_path.glob("weir-bench-*/*/owner-*")):  # the job has begun
            assert command.poll() is None
            time.sleep(0.05)
        if sign is signal.SIGINT:
            os.killpg(command.pid, sign)  # as a terminal does
        else:
            command.send_signal(sign)
        assert command.wait(300) == status
        assert command.stderr.read().count("interrupted") == (sign is signal.SIGINT)
    finally:
        command.kill()
        command.wait()
        command.stderr.close()
    assert list(tmp_path.glob("weir-bench-*")) == []


def test_a_run_whose_process_dies_is_no_result() -> None:
    command = subprocess.Popen(
        [*WEIR, "--only", "aligned-gate"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not (
            runs := [one for one in psutil.Process(command.pid).children() if "spawn_main" in str(one.cmdline())]
        ):
            assert command.poll() is None
            time.sleep(0.01)
        runs[0].kill()
        _, said = command.communicate(timeout=300)
    finally:
        command.kill()
        command.wait()
    assert command.returncode == 1
    assert "aligned-gate: the run's process ended with -9" in said
