"""A result as a picture: for each run the source's rate and the checkpoints over time. Needs matplotlib."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.bench.backpressure.results import Result, Run, rates
from pipeline.bench.backpressure.tables import described
from pipeline.bench.errors import BenchFailed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES: Final = (".png", ".svg")
_RATE, _COMPLETED, _FAILED, _OPEN = "#4c78a8", "#54a24b", "#d62728", "#888888"
_PANEL_INCHES: Final = (9.0, 1.9)


def check_plottable() -> None:
    """
    Raises:
        BenchFailed: matplotlib is missing.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise BenchFailed("a plot needs matplotlib, which is not installed; run pip install 'weir-streams[plot]'")


def plot(result: Result, target: Path) -> None:
    """Write one panel a run, all on one time axis; the file's suffix says in which format."""
    from matplotlib.figure import Figure

    width, height = _PANEL_INCHES
    figure = Figure(figsize=(width, height * len(result.runs) + 0.8), layout="constrained")
    panels: Any = figure.subplots(len(result.runs), 1, sharex=True, squeeze=False)
    for axes, run in zip(panels[:, 0], result.runs, strict=True):
        _panel(axes, run)
    panels[-1, 0].set_xlabel("seconds since all subtasks run")
    figure.savefig(target, format=target.suffix.removeprefix(".").lower(), dpi=120)


def _panel(axes: Axes, run: Run) -> None:
    name, barriers, gate, buffers, *_ = described(run.variant)
    axes.set_title(f"{name}: {barriers}; gate {gate}; buffers {buffers}", loc="left", fontsize="medium")
    points = rates([(sample.at, sample.fetched) for sample in run.samples])
    axes.plot([at for at, _ in points], [rate for _, rate in points], color=_RATE, linewidth=1)
    axes.set_ylabel("fetched\nrecords/s", color=_RATE)
    axes.set_ylim(bottom=0)
    beside = axes.twinx()
    for outcome, colour, mark in (
        ("completed", _COMPLETED, "o"),
        ("failed", _FAILED, "x"),
        ("in_progress", _OPEN, "^"),
    ):
        shown = [one for one in run.checkpoints if one.outcome == outcome]
        if shown:
            at, ages = [one.at for one in shown], [one.age for one in shown]
            beside.vlines(at, 0, ages, color=colour, linewidth=1)
            beside.plot(at, ages, mark, color=colour, markersize=4, label=outcome.replace("_", " "))
    beside.set_ylabel("checkpoint\nseconds", color=_COMPLETED)
    beside.set_ylim(bottom=0)
    if run.checkpoints:
        beside.legend(loc="upper right", fontsize="x-small")
