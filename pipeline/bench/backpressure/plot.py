"""A result as a picture: for each run the source's rate and the checkpoints over time. Needs matplotlib."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.bench.backpressure.rates import rates
from pipeline.bench.backpressure.results import Result, Run
from pipeline.bench.backpressure.tables import described
from pipeline.bench.errors import BenchFailed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES: Final = (".png", ".svg")
_RATE, _COMPLETED, _FAILED, _OPEN, _WINDOW = "#4c78a8", "#54a24b", "#d62728", "#888888", "#f58518"
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
    shown: dict[str, Any] = {}
    for axes, run in zip(panels[:, 0], result.runs, strict=True):
        shown |= _panel(axes, run)
    if shown:
        figure.legend(shown.values(), shown, loc="outside upper right", ncols=len(shown), fontsize="x-small")
    panels[-1, 0].set_xlabel("seconds since all subtasks run")
    figure.savefig(target, format=target.suffix.removeprefix(".").lower(), dpi=120)


def _panel(axes: Axes, run: Run) -> dict[str, Any]:
    """Draws the run; returns the marks of checkpoints that there are, by name."""
    _, barriers, gate, buffers, *_ = described(run.variant)
    axes.set_title(f"{run.name}: {barriers}; gate {gate}; buffers {buffers}", loc="left", fontsize="small")
    points = rates([(sample.at, sample.fetched) for sample in run.samples])
    axes.plot([at for at, _ in points], [rate for _, rate in points], color=_RATE, linewidth=1)
    axes.set_ylabel("fetched\nrecords/s", color=_RATE)
    axes.set_ylim(bottom=0)
    beside = axes.twinx()
    marks: dict[str, Any] = {}
    for outcome, colour, mark in (
        ("completed", _COMPLETED, "o"),
        ("failed", _FAILED, "x"),
        ("in_progress", _OPEN, "^"),
    ):
        shown = [one for one in run.checkpoints if one.outcome == outcome]
        if shown:
            at, ages = [one.at for one in shown], [one.age for one in shown]
            beside.vlines(at, 0, ages, color=colour, linewidth=1)
            (marks[outcome.replace("_", " ")],) = beside.plot(at, ages, mark, color=colour, markersize=4)
    beside.set_ylabel("checkpoint\nseconds", color=_COMPLETED)
    beside.set_ylim(bottom=0)
    _draw_window(axes, run)
    return marks


def _draw_window(axes: Axes, run: Run) -> None:
    """On a scale of its own, since it is a number of records and not of records/s: the title says from where to where
    it goes."""
    seen = [(sample.at, sample.window) for sample in run.samples if sample.window is not None]
    if not seen:
        return
    at, records = [moment for moment, _ in seen], [window for _, window in seen]
    scale = axes.twinx()
    scale.plot(at, records, color=_WINDOW, linewidth=0.7)
    scale.set_ylim(bottom=0, top=1.05 * max(records))
    scale.yaxis.set_visible(False)
    said = f"window {min(records):,} to {max(records):,} records"
    axes.set_title(said, loc="right", color=_WINDOW, fontsize="x-small")
