"""`weir bench`: measurements."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.cli.common import ending_cleanly, log_to_stderr

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.bench.throughput import Throughput


@click.group()
def bench() -> None:
    """Measurements, in ratios within one run."""


@bench.command()
@click.option("--records", default=1_000_000, show_default=True, type=click.IntRange(min=1))
@click.option("--parallelism", default=2, show_default=True, type=click.IntRange(1, 128))
@click.option(
    "--interval", default=1.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds between checkpoints."
)
@click.option("--bootstrap", metavar="SERVERS", help="Use the Kafka there instead of starting one.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the result here."
)
def throughput(records: int, parallelism: int, interval: float, bootstrap: str | None, json_file: Path | None) -> None:
    """Keyed running sum, Kafka to Kafka, beside a bare consume → produce loop in one process.

    JSON of 110 bytes, 10,000 keys, 4 partitions; exactly once and at least once.
    """
    from rich.console import Console

    from pipeline.bench.throughput import BenchFailed, ThroughputOptions, measure
    from pipeline.broker import BrokerFailed, NativeBroker
    from pipeline.broker.jars import FetchFailed
    from pipeline.broker.java import JavaMissing
    from pipeline.broker.topics import TopicTrouble

    log_to_stderr("WARNING")
    console = Console()
    with ending_cleanly(), contextlib.ExitStack() as stack:
        try:
            servers = bootstrap or stack.enter_context(NativeBroker.start()).bootstrap_servers
            options = ThroughputOptions(records, parallelism, interval)
            result = measure(servers, options, lambda text: console.print(text, highlight=False))
        except (BenchFailed, BrokerFailed, FetchFailed, JavaMissing, TopicTrouble) as error:
            raise click.ClickException(str(error)) from error
    console.print(_table(result))
    if json_file is not None:
        json_file.write_text(result.to_json() + "\n")


def _table(result: Throughput) -> Table:
    from rich.table import Table

    table = Table(title=f"{result.records:,} records, parallelism {result.parallelism}")
    for column in ("", "records/s", "ratio", "CPU s/M", "first out", "chk p50", "chk p95"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    loop = result.bare_loop
    table.add_row("bare loop", f"{loop.rate:,.0f}", "1.00", f"{loop.cpu_s_per_million:.1f}", "", "", "")
    for job in result.jobs:
        p50, p95 = (
            f"{value:.2f} s" if value is not None else "–" for value in (job.checkpoint_p50_s, job.checkpoint_p95_s)
        )
        table.add_row(
            job.delivery.replace("_", " "),
            f"{job.rate:,.0f}",
            f"{job.ratio:.2f}",
            f"{job.cpu_s_per_million:.1f}",
            f"{job.first_output_s:.1f} s",
            p50,
            p95,
        )
    return table
