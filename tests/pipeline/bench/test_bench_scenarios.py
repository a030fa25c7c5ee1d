"""`weir bench backpressure --scenarios`: groups and rounds, what is shown of them, and short runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_results import checkpoint, run_of, sample
from click.testing import CliRunner

from checkpoint.config import CheckpointConfig
from pipeline.bench.backpressure.comparison import Compared, compare
from pipeline.bench.backpressure.full_speed import Return
from pipeline.bench.backpressure.load import Change
from pipeline.bench.backpressure.results import Result, Run
from pipeline.bench.backpressure.scenarios import BURST_RATE, scenarios
from pipeline.bench.backpressure.tables import described, tables
from pipeline.bench.backpressure.variants import Experiment, Interruption, Settings, Variant, original, standard
from pipeline.cli import main

WEIR = [sys.executable, "-c", "from pipeline.cli import main; main(prog_name='weir')", "bench", "backpressure"]


# -- groups and rounds ------------------------------------------------------------------------------------------------


def test_every_scenario_is_there_and_its_runs_differ_in_their_gates_only() -> None:
    variants = scenarios().variants
    groups: dict[str, list[Variant]] = {}
    for variant in variants:
        groups.setdefault(variant.group, []).append(variant)
    assert list(groups) == [
        *("too-fast-100", "too-fast-3", "healthy-backlog", "bursts", "slow-down", "flutter", "slow-storage"),
        *("too-fast-3-slow-storage", "skewed", "pause", "restart", "rescale"),
    ]
    for name, group in groups.items():
        gates = {"name": "", "gate": True, "window": True, "slow_storage_span": None}
        assert len({repr(replace(variant, **gates)) for variant in group}) == 1
        assert [variant.name for variant in group][:: len(group) - 1] == [f"{name}-off", f"{name}-window"]
        assert [variant.gate for variant in group] == [False, *[True] * (len(group) - 1)]
        assert group[-1].window
        assert all(variant.buffers == {"debloat": False} and variant.alignment == "aligned" for variant in group)


def test_scenarios_have_the_settings_of_the_original_experiment_but_tolerate_failures() -> None:
    settings = scenarios().settings
    assert (settings.interval, settings.max_concurrent, settings.timeout) == (10.0, 2, 300.0)
    assert (settings.enough, settings.tolerable_failures) == (None, 1_000)
    assert scenarios(interval=2.0).settings.interval == 2.0


def of(name: str, **options: Any) -> Variant:
    return next(variant for variant in scenarios(**options).variants if variant.name == name)


def test_what_happens_on_the_way_keeps_its_place_in_runs_of_other_lengths() -> None:
    assert of("slow-down-off").change == Change(120.0, 240.0, delay=pytest.approx(0.008))  # type: ignore[arg-type]
    shorter = of("slow-down-off", seconds=30.0)
    assert (shorter.change and shorter.change.begin, shorter.change and shorter.change.end) == (10.0, 20.0)
    assert of("bursts-off").change == Change(50.0, 60.0, 60.0, rate=BURST_RATE)
    assert of("bursts-off", seconds=24.0).change == Change(10.0, 12.0, 12.0, rate=BURST_RATE)
    assert of("restart-off", seconds=30.0).interruption == Interruption("restart", 15.0)


def test_the_pause_comes_on_top_of_the_run() -> None:
    for options, seconds, begin, end in (
        ({}, 3_780.0, 90.0, 3_690.0),
        ({"seconds": 10.0, "pause": 4.0}, 14.0, 5.0, 9.0),
    ):
        pause = of("pause-window", **options)
        assert pause.seconds == seconds
        assert pause.change == Change(begin, end, rate=0.0)


def test_a_group_is_run_round_after_round() -> None:
    a, b, c = Variant("a", group="x"), Variant("b", group="x"), Variant("c", group="y")
    plan = [(variant.name, n) for variant, n in Experiment(standard().settings, (a, b, c), 2).plan()]
    assert plan == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("c", 1), ("c", 2)]
    assert [variant.name for variant, _ in standard().plan()] == [v.name for v in standard().variants]


def test_only_takes_names_of_runs_and_of_scenarios() -> None:
    def names(*only: str) -> list[str]:
        return [variant.name for variant in scenarios().only(only).variants]

    assert names("too-fast-3") == ["too-fast-3-off", "too-fast-3-gate", "too-fast-3-window"]
    assert names("pause", "skewed-window") == ["skewed-window", "pause-off", "pause-window"]
    assert names() == [variant.name for variant in scenarios().variants]
    # The original experiment is called like its first run, and that is meant.
    assert [variant.name for variant in original().only(("original",)).variants] == ["original"]
    with pytest.raises(ValueError, match=r"no run 'storage'; there are too-fast-100-off.* of several each: too-fast"):
        names("storage")


def test_a_gate_has_the_options_that_its_run_says() -> None:
    default = CheckpointConfig("/").slow_storage_span
    spans = [
        variant.checkpoint_config("/", scenarios().settings).slow_storage_span
        for variant in scenarios().only(("slow-storage",)).variants
    ]
    assert spans == [default, default, 0.0, default]


# -- what is shown ----------------------------------------------------------------------------------------------------


def test_runs_say_what_is_special_about_them() -> None:
    shown = {variant.name: described(variant) for variant in scenarios().variants}
    assert shown["too-fast-3-off"][2:] == (
        *("off", "fixed, 8.0 MiB a subtask", "2 ms a record", "3,000 records/s"),
        "",
    )
    assert [shown[f"slow-storage-{gate}"][2] for gate in ("gate", "window-0", "window")] == [
        "by time",
        "window, slow storage 0 s",
        "window",
    ]
    assert shown["too-fast-3-slow-storage-off"][-1] == "storage takes 30 s"
    assert shown["skewed-off"][-1] == "source subtasks get 10 : 1 : 1 : 1"
    assert shown["restart-off"][-1] == "a worker killed after 90 s"
    assert shown["rescale-off"][-1] == "rescaled to 3 after 90 s"
    assert shown["slow-down-off"][4] == "0.2 ms a record; 8 ms a record from 120 to 240 s"
    assert shown["bursts-off"][5] == "100 records/s; 60,000 for 10 s of each 60 s"
    assert shown["pause-off"][5] == "60,000 records/s; 0 from 90 to 3690 s"


def run(gate: str, rate: float, duration: float, number: int = 1, *back: Return, group: str = "g") -> Run:
    variant = Variant(f"{group}-{gate}", gate=gate != "off", group=group)
    samples = [sample(2.0), sample(4.0, 0, int(2 * rate))]
    return run_of([checkpoint(3.0, duration)], samples, variant, round=number, returns=back)


def test_a_ratio_is_that_to_the_run_without_a_gate_of_the_same_round() -> None:
    off, window = compare(
        [
            *(run("off", 1_000, 40.0), run("window", 990, 4.0, 1)),
            *(run("off", 500, 60.0, 2), run("window", 510, 4.0, 2)),
            *(run("off", 100, 50.0, 3), run("window", 100, 10.0, 3)),
        ]
    )
    assert off == Compared("g-off", 3, 500.0, 1.0, 1.0, 1.0, 50.0, 1.0, None)
    assert window == Compared("g-window", 3, 510.0, 1.0, 0.99, 1.02, 4.0, 10.0, None)


def test_without_a_run_to_compare_with_there_is_no_ratio() -> None:
    (alone,) = compare([run("window", 990, 4.0)])
    assert (alone.records_per_s, alone.ratio, alone.shorter) == (990.0, None, None)
    other = compare([run("window", 990, 4.0), run("off", 990, 4.0, group="other")])
    assert [row.ratio for row in other] == [None, 1.0]
    assert compare([run("off", 1.0, 1.0, group="")]) == ()
    nothing = run_of([], [], Variant("g-off", gate=False, group="g"))
    assert [row.ratio for row in compare([nothing, run("window", 990, 4.0)])] == [None, None]


def test_the_slowest_return_counts_and_one_that_never_came_most() -> None:
    quick, slow, never = Return(10.0, 90.0, 0.5), Return(10.0, 90.0, 20.0), Return(10.0, 15.0, None)
    slowest = [
        compare([run("window", 9, 4.0, 1, *first), run("window", 9, 4.0, 2, *second)])[0].slowest
        for first, second in (([quick], [slow]), ([slow, quick], [quick]), ([never], [slow]), ([], []))
    ]
    assert slowest == [slow, slow, never, None]


def test_the_comparison_is_a_table_where_there_are_groups() -> None:
    back, never = Return(10.0, 90.0, 0.5), Return(10.0, 15.0, None)
    runs = (run("off", 1_000, 40.0, 1, never), run("window", 990, 4.0, 1, back), run("window", 980, 4.0, 2))
    settings = scenarios().settings
    *_, compared = tables(Result(settings, runs))
    assert compared.title == "Beside the run without a gate"
    assert [dict(zip(compared.columns, row, strict=True)) for row in compared.rows] == [
        {
            "run": "g-off",
            "records/s": "1,000",
            "ratio": "1.000",
            "ratio least": "1.000",
            "ratio most": "1.000",
            "p50": "40.0 s",
            "× shorter": "1.0",
            "to full speed": "> 5.0 s",
            "rounds": "1",
        },
        {
            "run": "g-window",
            "records/s": "985",
            "ratio": "0.990",
            "ratio least": "0.990",
            "ratio most": "0.990",
            "p50": "4.0 s",
            "× shorter": "10.0",
            "to full speed": "0.5 s",
            "rounds": "2",
        },
    ]
    described_runs, durations, *_ = tables(Result(settings, runs))
    assert [row[0] for row in described_runs.rows] == ["g-off", "g-window"]
    assert [row[0] for row in durations.rows] == ["g-off", "g-window", "g-window #2"]
    assert len(tables(Result(settings, (run("off", 1, 1.0, group=""),)))) == 4


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--original", "--scenarios"], "different experiments"),
        (["--pause", "10"], "give --scenarios, too"),
        (["--rounds", "0"], "--rounds"),
        (["--scenarios", "--pause", "0"], "--pause"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], reason: str) -> None:
    result = CliRunner().invoke(main, ["bench", "backpressure", *arguments])
    assert result.exit_code == 2
    assert reason in result.output


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_a_short_scenario_gives_tables_json_and_a_plot(tmp_path: Path) -> None:
    written, drawn = tmp_path / "result.json", tmp_path / "plot.svg"
    arguments = ["--scenarios", "--only", "restart-window", "--seconds", "8", "--interval", "0.5", "--markdown"]
    done = subprocess.run(
        [*WEIR, *arguments, "--json", str(written), "--plot", str(drawn)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("**Runs: a checkpoint every 0.5 s, 2 at a time")
    assert done.stdout.count("\n| restart-window |") == 5
    assert drawn.stat().st_size > 0

    result = json.loads(written.read_text())
    assert result["settings"]["interval"] == 0.5
    (run,) = result["runs"]
    assert (run["variant"]["name"], run["failure"], run["round"]) == ("restart-window", None, 1)
    summary, checkpoints, samples = run["summary"], run["checkpoints"], run["samples"]
    assert summary["completed"] == sum(one["stats"]["status"] == "completed" for one in checkpoints) >= 2
    assert {subtask["name"] for subtask in checkpoints[0]["stats"]["subtasks"]} == {
        *("records[0]", "records[1]"),
        *("slow → dropped[0]", "slow → dropped[1]"),
    }
    for counter in ("fetched", "processed"):  # goes on after the restart
        counts = [one[counter] for one in samples]
        assert counts == sorted(counts)
        assert counts[-1] > 0
    (back,) = run["returns"]
    assert run["variant"]["interruption"]["at"] < back["at"] < run["seconds"]
    assert {window["subtask"] for window in run["windows"]} == {"records[0]", "records[1]"}
    assert summary["window_max"] >= summary["window_end"] >= 1
    assert all(run["cost"][f"{group}_bytes"] > 1 << 20 for group in ("driver", "jvm", "worker", "total"))
    assert run["cost"]["workers_gc_ms"] >= 0


_MEASURED = """
import json
from dataclasses import asdict

from pipeline.bench.backpressure.load import Change
from pipeline.bench.backpressure.run import measure
from pipeline.bench.backpressure.variants import Experiment, Interruption, Settings, Variant

kept = []
result = measure(Experiment({settings!r}, ({variant!r},)), lambda said: None, kept.append)
assert kept == [result]
print(json.dumps(asdict(result)))
"""


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_a_rescaled_run_with_slow_storage_and_an_uneven_source() -> None:
    settings = Settings(interval=0.5, timeout=60.0, max_concurrent=2, tolerable_failures=0, seconds=8.0)
    variant = Variant(
        "all",
        gate=False,
        delay=0.0,
        rate=3_000.0,
        shares=(10, 1),
        storage_delay=0.3,
        change=Change(0.5, 1.0, rate=0.0, delay=0.01),
        interruption=Interruption("rescale", 3.0),
    )
    # What spawns processes leaves one behind that knows of them, until it ends itself.
    script = [sys.executable, "-c", _MEASURED.format(settings=settings, variant=variant)]
    done = subprocess.run(script, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert run["failure"] is None
    assert len(run["returns"]) == 2  # behind the pause, and behind the rescaling
    rows = [one["stats"] for one in run["checkpoints"] if one["stats"]["status"] == "completed"]
    assert {row["kind"] for row in rows} == {"checkpoint", "savepoint"}
    assert run["summary"]["failed"] == 0
    ids = [row["id"] for row in rows]
    assert ids == sorted(set(ids))  # the savepoint, or a newer checkpoint, may be complete before one in progress
    assert min(row["async_"] for row in rows) >= 0.3
    subtasks = [{subtask["name"] for subtask in row["subtasks"]} for row in (rows[0], rows[-1])]
    assert subtasks[0] == {"records[0]", "records[1]", "slow → dropped[0]", "slow → dropped[1]"}
    assert subtasks[1] == {*subtasks[0], "slow → dropped[2]"}
    spans = Counter[str]()  # of a single checkpoint they may be empty: the source pauses
    for row in rows:
        spans.update({subtask["name"]: subtask["span_records"] for subtask in row["subtasks"]})
    assert spans["records[0]"] > spans["records[1]"]
    assert run["windows"] == []
