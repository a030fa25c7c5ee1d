"""`weir bench backpressure`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.cli.bench_options import json_option, measuring, report, to_write, wide_console

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.bench.backpressure.results import Result
    from pipeline.bench.backpressure.tables import Table as Columns
    from pipeline.bench.backpressure.variants import Experiment


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=1.0),
    help="How long each run is watched.  [default: 75; with --scenarios 180 to 600, depending on the scenario]",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    help="Seconds between checkpoints.  [default: 2; with --original or --scenarios 10]",
)
@click.option(
    "--only",
    "names",
    multiple=True,
    metavar="NAME",
    help="Only this run, or this scenario's runs; may be given several times.",
)
@click.option(
    "--original",
    is_flag=True,
    help="The experiment that began it: every 10 s, two at once, timeout 5 min, no failure tolerated, large queues; "
    "until 10 checkpoints have completed, 5 min a run at least and 20 at most.",
)
@click.option(
    "--scenarios",
    is_flag=True,
    help="Sources that are too fast, idle, bursting or uneven, operators or storage that are slow, a restart and a "
    "rescaling: each without a gate and with it. Every 10 s, two at once, large queues. Takes hours.",
)
@click.option(
    "--pause",
    type=click.FloatRange(min=1.0),
    help="With --scenarios: for how many seconds the source of the scenario `pause` is idle.  [default: 3600]",
)
@click.option(
    "--rounds",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="How often each scenario is run: its runs in turn, round after round, so that ratios have a spread. Without "
    "--scenarios all runs are one scenario.",
)
@json_option
@click.option(
    "--plot",
    "plot_file",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=to_write,
    help="Draw fetch rates, checkpoints and windows over time here, as PNG or SVG by its suffix (needs "
    "weir-streams[plot]).",
)
@click.option("--markdown", is_flag=True, help="Print the tables as Markdown, and nothing else to standard output.")
def backpressure(
    seconds: float | None,
    interval: float | None,
    names: tuple[str, ...],
    original: bool,
    scenarios: bool,
    pause: float | None,
    rounds: int,
    json_file: Path | None,
    plot_file: Path | None,
    markdown: bool,
) -> None:
    """Checkpoints of a job that does 1 % of what its source could give.

    Two source subtasks, two slow operator subtasks (2 ms a record), keyed; each run with other barriers, gate and
    buffers. docs/backpressure-measured.md explains the tables. The file of --json is written anew after each run.
    """
    from rich.console import Console

    from pipeline.bench.backpressure import plot
    from pipeline.bench.backpressure.results import Reported
    from pipeline.bench.backpressure.run import measure
    from pipeline.bench.backpressure.tables import tables, to_markdown
    from pipeline.bench.environment import EnvironmentProbe

    if plot_file is not None and plot_file.suffix.lower() not in plot.SUFFIXES:
        raise click.BadParameter(f"must end in {' or '.join(plot.SUFFIXES)}, not {plot_file.name}", param_hint="--plot")
    chosen = _experiment(seconds, interval, original, scenarios, pause, rounds)
    try:
        chosen = chosen.only(names)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--only") from error
    progress, probe = Console(stderr=True), EnvironmentProbe()

    def keep(result: Result) -> None:
        report(json_file, "backpressure", Reported(result), probe)

    with measuring():
        if plot_file is not None:
            plot.check_plottable()
        result = measure(chosen, lambda text: progress.print(text, highlight=False, markup=False), keep)
    if plot_file is not None:
        plot.plot(result, plot_file)
    if markdown:
        click.echo(to_markdown(result))
        return
    console = wide_console()
    for table in tables(result):
        console.print(_as_rich(table))


def _experiment(
    seconds: float | None, interval: float | None, original: bool, scenarios: bool, pause: float | None, rounds: int
) -> Experiment:
    from pipeline.bench.backpressure import variants
    from pipeline.bench.backpressure.scenarios import PAUSE_S
    from pipeline.bench.backpressure.scenarios import scenarios as all_scenarios

    if original and scenarios:
        raise click.UsageError("--original and --scenarios are different experiments: give one of them")
    if scenarios:
        return all_scenarios(seconds, interval, PAUSE_S if pause is None else pause, rounds)
    if pause is not None:
        raise click.UsageError("--pause is of a scenario: give --scenarios, too")
    return (variants.original if original else variants.standard)(seconds, interval, rounds)


def _as_rich(table: Columns) -> Table:
    from rich.table import Table

    drawn = Table(title=table.title, title_justify="left")
    for i, column in enumerate(table.columns):
        drawn.add_column(column, justify="right" if i and not table.words else "left", no_wrap=not i)
    for row in table.rows:
        drawn.add_row(*row)
    return drawn
