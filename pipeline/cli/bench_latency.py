"""`weir bench latency`."""

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

    from pipeline.bench.jobs import JobKind
    from pipeline.bench.latency import Latency
    from sinks.kafka.clients import Delivery


@click.command()
@click.option(
    "--rate",
    "rates",
    multiple=True,
    default=(1_000.0, 10_000.0, 50_000.0),
    show_default=True,
    type=click.FloatRange(min=1.0),
    help="Records/s; may be given several times.",
)
@click.option(
    "--seconds", default=20.0, show_default=True, type=click.FloatRange(min=1.0), help="Of each rate that count."
)
@click.option(
    "--warm-up", default=5.0, show_default=True, type=click.FloatRange(min=0.0), help="Seconds before, that don't."
)
@interval_option
@click.option(
    "--job",
    default="sum",
    show_default=True,
    type=click.Choice(["sum", "map", "async"]),
    help="sum: a running sum and count by key. map: no key, no state. async: a map_async that asks a service.",
)
@click.option(
    "--service",
    default=0.01,
    show_default=True,
    type=click.FloatRange(min=0.0),
    help="Seconds that the service of the job async takes.",
)
@click.option(
    "--capacity",
    default=100,
    show_default=True,
    type=click.IntRange(min=1),
    help="Records of a subtask that are with it at once.",
)
@click.option(
    "--delivery",
    "deliveries",
    multiple=True,
    default=("at_least_once", "exactly_once"),
    show_default=True,
    type=click.Choice(["at_least_once", "exactly_once"]),
    help="May be given several times.",
)
@parallelism_option
@bootstrap_option
@json_option
def latency(
    rates: tuple[float, ...],
    seconds: float,
    warm_up: float,
    interval: float,
    job: JobKind,
    service: float,
    capacity: int,
    deliveries: tuple[Delivery, ...],
    parallelism: int,
    bootstrap: str | None,
    json_file: Path | None,
) -> None:
    """How long records take from a producer through a job to a consumer.

    Each record counts from the moment at which it should have been sent, so that a slow job, or a slow producer, hides
    nothing; how late the producer was is in the table. The consumer reads what is committed only. Exactly once, output
    is visible once its checkpoint is complete, so --interval decides.
    """
    from pipeline.bench.environment import EnvironmentProbe
    from pipeline.bench.latency import LatencyOptions, measure

    console, probe = wide_console(), EnvironmentProbe()
    with kafka(bootstrap) as servers:
        options = LatencyOptions(rates, seconds, warm_up, interval, job, parallelism, deliveries, service, capacity)
        result = measure(servers, options, lambda text: console.print(text, highlight=False))
    console.print(_table(result))
    for stage in result.stages:
        if stage.behind:
            console.print(
                f"The producer fell behind at {stage.rate:,g} records/s ({stage.delivery.replace('_', ' ')}), and its "
                "own delay is part of the figures.",
                highlight=False,
            )
    report(json_file, "latency", result, probe, bootstrap)


def _table(result: Latency) -> Table:
    from rich.table import Table

    o = result.options
    table = Table(
        title=f"Producer to consumer, ms: {o.job}, parallelism {o.parallelism}, a checkpoint every {o.interval:g} s",
        title_justify="left",
    )
    table.add_column("")
    for column in (
        "records/s",
        "p50",
        "p90",
        "p95",
        "p99",
        "p99.9",
        "max",
        "exactly once adds: p50",
        "p99",
        "producer late: p99",
        "max",
        "checkpoint: p50",
        "p95",
    ):
        table.add_column(column, justify="right")
    for stage in result.stages:
        other = result.stage("at_least_once", stage.rate) if stage.delivery == "exactly_once" else None
        added = (
            ["", ""]
            if other is None
            else [_ms(stage.delays.p50 - other.delays.p50), _ms(stage.delays.p99 - other.delays.p99)]
        )
        delays = stage.delays
        table.add_row(
            stage.delivery.replace("_", " "),
            f"{stage.rate:,g}",
            *map(_ms, (delays.p50, delays.p90, delays.p95, delays.p99, delays.p999, delays.max)),
            *added,
            _ms(stage.sent.late_p99),
            _ms(stage.sent.late_max),
            *("" if seconds is None else _ms(seconds) for seconds in stage.checkpoints),
        )
    return table


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f}"
