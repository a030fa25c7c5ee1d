"""`weir bench growth`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.bench.growth_axes import AXES, COSTS, Axis, Shape
from pipeline.cli.bench_options import bootstrap_option, interval_option, json_option, kafka, report, wide_console

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.bench.growth import Grown

_BAR = 12


@click.command()
@click.option(
    "--axis",
    "axes",
    multiple=True,
    default=tuple(AXES),
    show_default=True,
    type=click.Choice(tuple(AXES)),
    help="What grows; may be given several times.",
)
@click.option(
    "--point",
    "points",
    multiple=True,
    type=click.IntRange(min=1),
    help="A size to measure instead of the axis's own; may be given several times, with one axis.",
)
@click.option(
    "--records", default=200_000, show_default=True, type=click.IntRange(min=1000), help="Of each job, at least."
)
@interval_option
@bootstrap_option
@json_option
def growth(
    axes: tuple[Axis, ...],
    points: tuple[int, ...],
    records: int,
    interval: float,
    bootstrap: str | None,
    json_file: Path | None,
) -> None:
    """What a job costs as it grows: subtasks, keys, bytes of a record, partitions or steps, one at a time.

    The keyed running sum, Kafka to Kafka, exactly once; every size has a topic and processes of its own. Bars are
    relative to the largest of their column. "n^1.0" is a cost that is proportional to the size, "n^0.0" one that does
    not depend on it; what grows faster is named. A record of more bytes, or with more steps, costs more by itself.
    """
    from pipeline.bench.environment import EnvironmentProbe
    from pipeline.bench.growth import measure

    if points and len(axes) != 1:
        raise click.UsageError("--point is a size on one axis: give one --axis, too")
    for axis in axes:
        for size in points or AXES[axis].points:
            if axis == "subtasks" and size % 2:
                raise click.BadParameter(f"the job has two vertices, so {size} must be even", param_hint="--point")
    console, probe = wide_console(), EnvironmentProbe()
    with kafka(bootstrap) as servers:
        shape = Shape(records=records)
        result = measure(servers, axes, points, shape, interval, lambda text: console.print(text, highlight=False))
    for grown in result.axes:
        console.print(_table(grown))
    for axis, name, one in result.superlinear():
        console.print(f"Superlinear: {name} grows with {axis} as {one}.", highlight=False)
    report(json_file, "growth", result, probe, bootstrap)


def _table(grown: Grown) -> Table:
    from rich.table import Table

    from pipeline.bench.growth import shown

    fits = grown.fits()
    table = Table(title=grown.axis, title_justify="left", show_footer=True)
    table.add_column("", "grows as", justify="right")
    for name in COSTS:
        table.add_column(name, str(fits[name]) if name in fits else "", justify="right", no_wrap=True)
    most = {name: max((cost(point) or 0.0 for point in grown.points), default=0.0) for name, cost in COSTS.items()}
    for point in grown.points:
        cells = [f"{shown(name, cost(point))} {_bar(cost(point) or 0.0, most[name])}" for name, cost in COSTS.items()]
        table.add_row(f"{point.size:,}", *cells)
    return table


def _bar(value: float, most: float) -> str:
    length = round(_BAR * value / most) if most else 0
    return ("█" * length).ljust(_BAR)
