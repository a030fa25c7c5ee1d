"""`weir bench throughput` and `weir bench delivery`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.cli.bench_options import (
    bootstrap_option,
    interval_option,
    json_option,
    kafka,
    parallelism_option,
    report,
    wide_console,
)

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.bench.delivery import Delivery
    from pipeline.bench.jobs import Alignment, JobKind
    from pipeline.bench.throughput import Throughput


@click.command()
@click.option(
    "--job",
    default="sum",
    show_default=True,
    type=click.Choice(["sum", "map", "window"]),
    help="sum: a running sum and count by key. map: no key, no state. window: a count by key and minute of event time.",
)
@click.option("--records", default=1_000_000, show_default=True, type=click.IntRange(min=1))
@parallelism_option
@interval_option
@click.option(
    "--alignment",
    default="unaligned",
    show_default=True,
    type=click.Choice(["unaligned", "aligned"]),
    help="Of the checkpoints' barriers.",
)
@bootstrap_option
@json_option
def throughput(
    job: JobKind,
    records: int,
    parallelism: int,
    interval: float,
    alignment: Alignment,
    bootstrap: str | None,
    json_file: Path | None,
) -> None:
    """A job, Kafka to Kafka, beside a bare consume → produce loop in one process.

    JSON of 110 bytes, 10,000 keys, 4 partitions; exactly once, then at least once. "records/s" and "ratio" count from
    the moment that all subtasks run until the last output is visible, "steady" is what the sources read after the first
    checkpoint, "whole run" begins with the start, Spark's included. Each job has a process of its own, so that memory
    is that of the job alone.
    """
    from pipeline.bench.environment import EnvironmentProbe
    from pipeline.bench.throughput import ThroughputOptions, measure

    console, probe = wide_console(), EnvironmentProbe()
    with kafka(bootstrap) as servers:
        options = ThroughputOptions(job, records, parallelism, interval, alignment)
        result = measure(servers, options, lambda text: console.print(text, highlight=False))
    console.print(_table(result))
    report(json_file, "throughput", result, probe, bootstrap)


@click.command()
@click.option(
    "--interval",
    "intervals",
    multiple=True,
    default=(0.1, 0.5, 1.0, 2.0, 5.0, 10.0),
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Seconds between checkpoints; may be given several times.",
)
@click.option("--records", default=3_000_000, show_default=True, type=click.IntRange(min=1), help="In each run.")
@parallelism_option
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(min=1), help="Runs of each; medians count.")
@bootstrap_option
@json_option
def delivery(
    intervals: tuple[float, ...],
    records: int,
    parallelism: int,
    rounds: int,
    bootstrap: str | None,
    json_file: Path | None,
) -> None:
    """What exactly once costs against at least once, by the interval between checkpoints.

    The keyed running sum of `weir bench throughput`. "Steady" is what the sources read between the first checkpoint and
    the end of the input, "whole" goes from the start to the last visible record and has the last commit in it.
    """
    from pipeline.bench.delivery import DeliveryOptions, measure
    from pipeline.bench.environment import EnvironmentProbe

    console, probe = wide_console(), EnvironmentProbe()
    with kafka(bootstrap) as servers:
        options = DeliveryOptions(intervals, records, parallelism, rounds)
        result = measure(servers, options, lambda text: console.print(text, highlight=False))
    console.print(_delivery_table(result))
    report(json_file, "delivery", result, probe, bootstrap)


def _delivery_table(result: Delivery) -> Table:
    from rich.table import Table

    table = Table(title=f"{result.records:,} records a run, parallelism {result.parallelism}", title_justify="left")
    for column in ("interval", "at least once, records/s", "exactly once", "ratio", "whole", "exactly once", "ratio"):
        table.add_column(column, justify="right")
    for point in result.points:
        table.add_row(
            f"{point.interval_s:g} s",
            f"{point.at_least_once.steady:,.0f}",
            f"{point.exactly_once.steady:,.0f}",
            f"{point.steady_ratio:.2f}",
            f"{point.at_least_once.whole:,.0f}",
            f"{point.exactly_once.whole:,.0f}",
            f"{point.whole_ratio:.2f}",
        )
    return table


def _table(result: Throughput) -> Table:
    from rich.table import Table

    from pipeline.bench.jobs import TITLES

    title = f"{TITLES[result.job]}: {result.records:,} records, parallelism {result.parallelism}"
    table = Table(title=title)
    for column in (
        "",
        "records/s",
        "ratio",
        "steady",
        "whole run",
        "CPU s/M",
        "memory",
        "first out",
        "chk p50",
        "chk p95",
    ):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    loop = result.bare_loop
    table.add_row("bare loop", f"{loop.rate:,.0f}", "1.00", "", "", f"{loop.cpu_s_per_million:.1f}", "", "", "", "")
    for job in result.jobs:
        p50, p95 = (
            f"{value:.2f} s" if value is not None else "–" for value in (job.checkpoint_p50_s, job.checkpoint_p95_s)
        )
        table.add_row(
            job.delivery.replace("_", " "),
            f"{job.rate:,.0f}",
            f"{job.ratio:.2f}",
            "–" if job.steady_rate is None else f"{job.steady_rate:,.0f}",
            f"{job.whole_rate:,.0f}",
            f"{job.cpu_s_per_million:.1f}",
            f"{job.pss_peak / 2**20:,.0f} MiB",
            f"{job.first_output_s:.1f} s",
            p50,
            p95,
        )
    return table
