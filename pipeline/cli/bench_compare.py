"""`weir bench compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.cli.bench_options import wide_console

if TYPE_CHECKING:
    from rich.console import Console

    from pipeline.bench.compare import Comparison, Difference
    from pipeline.bench.report import Figure

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("before", type=_FILE, metavar="A.json")
@click.argument("after", type=_FILE, metavar="B.json")
@click.option(
    "--within",
    default=5.0,
    show_default=True,
    type=click.FloatRange(min=0.0),
    help="Percent by which a figure may differ and still count as the same.",
)
@click.option(
    "--fail-over",
    type=click.FloatRange(min=0.0),
    metavar="PERCENT",
    help="End with status 1 if a figure of B is worse than that of A by more.",
)
def compare(before: Path, after: Path, within: float, fail_over: float | None) -> None:
    """Two files that a measurement has written with --json, figure by figure, with the ratio of B to A.

    Settings, versions and machines that differ are named: figures of different settings say little about each other.
    Files of different measurements are refused. Repeat both before you believe a small difference.
    """
    from pipeline.bench.compare import compare as compared
    from pipeline.bench.errors import BenchFailed
    from pipeline.bench.report import read_report

    try:
        result = compared(read_report(before), read_report(after))
    except BenchFailed as error:
        raise click.ClickException(str(error)) from error
    _show(result, within, wide_console())
    worst = result.worst
    if fail_over is not None and worst is not None and worst.worse_by > fail_over:
        raise click.ClickException(
            f"{worst.before.name} is worse by {worst.worse_by:.1f} %, and {fail_over:g} % are allowed"
        )


def _show(result: Comparison, within: float, console: Console) -> None:
    from rich.table import Table

    table = Table(title=f"weir bench {result.bench}", title_justify="left")
    table.add_column("")
    for column in ("A", "B", "B / A"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("B is")
    for one in result.figures:
        verdict = one.verdict(within)
        color = {"better": "green", "worse": "red", "same": "default"}[verdict]
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
        table.add_row(one.before.name, _value(one.before), _value(one.after), ratio, f"[{color}]{verdict}[/]")
    console.print(table)
    for where, names in (("A", result.only_before), ("B", result.only_after)):
        if names:
            console.print(f"Only in {where}: {', '.join(names)}.", highlight=False)
    for what, differences in (("settings", result.settings), ("versions or machines", result.environment)):
        if differences:
            console.print(
                f"Different {what}: {'; '.join(map(_difference, differences))}.", highlight=False, markup=False
            )


def _value(figure: Figure) -> str:
    if figure.unit == "bytes":
        return f"{figure.value / 2**20:,.1f} MiB"
    if abs(figure.value) >= 1000:
        return f"{figure.value:,.0f} {figure.unit}".rstrip()
    return f"{figure.value:.4g} {figure.unit}".rstrip()


def _difference(one: Difference) -> str:
    return f"{one.name} {_shown(one.before)} → {_shown(one.after)}"


def _shown(value: object) -> str:
    return "(none)" if value is None else str(value)
