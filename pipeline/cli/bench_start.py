"""`weir bench start`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.cli.bench_options import bootstrap_option, json_option, kafka, parallelism_option, report, wide_console

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.bench.start import Kind, StartReport


@click.command()
@click.option(
    "--interval",
    "intervals",
    multiple=True,
    default=(1.0, 5.0),
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Seconds between checkpoints; may be given several times.",
)
@click.option("--runs", default=3, show_default=True, type=click.IntRange(min=1), help="Of each; medians count.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    default=("fresh", "in a running session", "after a kill"),
    show_default=True,
    type=click.Choice(["fresh", "in a running session", "after a kill"]),
    help="May be given several times.",
)
@parallelism_option
@bootstrap_option
@json_option
def start(
    intervals: tuple[float, ...],
    runs: int,
    kinds: tuple[Kind, ...],
    parallelism: int,
    bootstrap: str | None,
    json_file: Path | None,
) -> None:
    """How long a start takes until a consumer has the first committed output, and where the time goes.

    fresh: from the start of the process, Spark's included. in a running session: from Pipeline.start. after a kill: the
    job with all its processes was killed by SIGKILL; from the start of the process to the first new output. The job is
    the keyed running sum, exactly once, with 1,000 records/s coming in.
    """
    from pipeline.bench.environment import EnvironmentProbe
    from pipeline.bench.start import StartOptions, measure

    console, probe = wide_console(), EnvironmentProbe()
    with kafka(bootstrap) as servers:
        options = StartOptions(intervals, runs, parallelism, kinds)
        result = measure(servers, options, lambda text: console.print(text, highlight=False))
    console.print(_table(result))
    report(json_file, "start", result, probe, bootstrap)


def _table(result: StartReport) -> Table:
    from rich.table import Table

    phases = list(dict.fromkeys(name for one in result.starts for name in one.phases))
    table = Table(title=f"Seconds to the first output, median of {result.options.runs}", title_justify="left")
    table.add_column("")
    for column in ("interval", "all", "least – most", *phases):
        table.add_column(column, justify="right", no_wrap=True)
    for one in result.starts:
        every = [run.first_output for run in one.runs]
        table.add_row(
            one.kind,
            f"{one.interval_s:g} s",
            f"{one.first_output:.1f}",
            f"{min(every):.1f} – {max(every):.1f}",
            *(f"{one.phases[name]:.1f}" if name in one.phases else "" for name in phases),
        )
    return table
