"""Two reports of one measurement side by side. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pipeline.bench.errors import BenchFailed
from pipeline.bench.report import Figure, Report

Verdict = Literal["better", "worse", "same"]


@dataclass(frozen=True)
class Compared:
    """One figure in both reports."""

    before: Figure
    after: Figure

    @property
    def ratio(self) -> float | None:
        """Of the second to the first; `None` if the first is 0."""
        return self.after.value / self.before.value if self.before.value else None

    @property
    def worse_by(self) -> float:
        """Percent of the first; below 0 if the second is better. From 0 to something it is infinite."""
        change = self.after.value - self.before.value
        if change == 0:
            return 0.0
        percent = 100 * change / abs(self.before.value) if self.before.value else float("inf") * change
        return percent if self.before.better == "lower" else -percent

    def verdict(self, within: float) -> Verdict:
        """`within`: percent by which figures may differ and still count as the same."""
        if abs(self.worse_by) <= within:
            return "same"
        return "worse" if self.worse_by > 0 else "better"


@dataclass(frozen=True)
class Difference:
    """A setting, a version or a property of the machine that isn't the same; `None` where it is missing."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Comparison:
    bench: str
    figures: list[Compared]
    """Those in both, in the order of the first."""
    only_before: list[str]
    only_after: list[str]
    settings: list[Difference]
    environment: list[Difference]
    """Versions, and what machine it was."""

    @property
    def worst(self) -> Compared | None:
        """The figure that has become worse by most percent; `None` if none has."""
        worse = [one for one in self.figures if one.worse_by > 0]
        return max(worse, key=lambda one: one.worse_by, default=None)


def compare(before: Report, after: Report) -> Comparison:
    """
    Raises:
        BenchFailed: they are of different measurements, or have no figure in common.
    """
    if before.bench != after.bench:
        raise BenchFailed(
            f"the first file is of `weir bench {before.bench}` and the second of `weir bench {after.bench}`: only two "
            "of one measurement can be compared"
        )
    new = {figure.name: figure for figure in after.figures}
    both = [Compared(figure, new[figure.name]) for figure in before.figures if figure.name in new]
    if not both:
        raise BenchFailed("the two files have no figure in common; what was measured must be the same")
    old = {figure.name for figure in before.figures}
    machine = ("system", "cores", "memory")
    return Comparison(
        bench=before.bench,
        figures=both,
        only_before=[figure.name for figure in before.figures if figure.name not in new],
        only_after=[figure.name for figure in after.figures if figure.name not in old],
        settings=_differences(before.settings, after.settings),
        environment=_differences(before.versions, after.versions)
        + _differences(
            {name: before.machine.get(name) for name in machine}, {name: after.machine.get(name) for name in machine}
        ),
    )


def _differences(before: dict[str, Any], after: dict[str, Any]) -> list[Difference]:
    names = [*before, *(name for name in after if name not in before)]
    return [
        Difference(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    ]
