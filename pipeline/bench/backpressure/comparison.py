"""Runs of a group beside the one without a gate, round by round. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.bench.backpressure.full_speed import Return
from pipeline.bench.backpressure.results import Run
from pipeline.bench.percentiles import percentile


@dataclass(frozen=True)
class Compared:
    """One variant over all its rounds; figures are medians unless named otherwise. A ratio is that of a run to the one
    without a gate of the same round, since machines differ from hour to hour."""

    name: str
    rounds: int
    records_per_s: float | None
    ratio: float | None
    """Records/s, divided by those of the run without a gate; `None` if the group has no such run."""
    ratio_least: float | None
    ratio_most: float | None
    duration: float | None
    """Seconds, the p50 of checkpoints."""
    shorter: float | None
    """How many times shorter than without a gate that is."""
    slowest: Return | None
    """The return to full speed that took longest; `None` if there was none."""


def compare(runs: Sequence[Run]) -> tuple[Compared, ...]:
    """A row for each variant that belongs to a group, in the order of their first runs."""
    grouped = [run for run in runs if run.variant.group]
    without = {(run.variant.group, run.round): run for run in grouped if not run.variant.gate}
    names = dict.fromkeys(run.variant.name for run in grouped)
    return tuple(_compared(name, [run for run in grouped if run.variant.name == name], without) for name in names)


def _compared(name: str, runs: list[Run], without: dict[tuple[str, int], Run]) -> Compared:
    pairs = [(run, without.get((run.variant.group, run.round))) for run in runs]
    ratios = _known(
        _ratio(run.summary.records_per_s, beside.summary.records_per_s) for run, beside in pairs if beside is not None
    )
    shorter = _known(
        _ratio(beside.summary.duration.p50, run.summary.duration.p50) for run, beside in pairs if beside is not None
    )
    return Compared(
        name,
        len(runs),
        percentile(_known(run.summary.records_per_s for run in runs), 0.5),
        percentile(ratios, 0.5),
        min(ratios, default=None),
        max(ratios, default=None),
        percentile(_known(run.summary.duration.p50 for run in runs), 0.5),
        percentile(shorter, 0.5),
        max((back for run in runs for back in run.returns), key=_took, default=None),
    )


def _took(back: Return) -> tuple[bool, float]:
    """By which of two returns took longer; those that were not there in time did."""
    return back.after is None, back.until - back.at if back.after is None else back.after


def _ratio(value: float | None, other: float | None) -> float | None:
    return None if value is None or not other else value / other


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
