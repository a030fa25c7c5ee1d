"""`weir bench`: measurements."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.cli.bench_backpressure import backpressure
from pipeline.cli.bench_options import FILE_WIDTH, json_option
from pipeline.cli.common import ending_cleanly, log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.table import Table

    from pipeline.bench.delivery import Delivery
    from pipeline.bench.growth import GrowthReport, GrowthResult
    from pipeline.bench.jobs import Alignment, JobKind
    from pipeline.bench.state import StateReport, StateResult
    from pipeline.bench.state_phases import Compression, Loop
    from pipeline.bench.throughput import Throughput


_bootstrap_option = click.option("--bootstrap", metavar="SERVERS", help="Use the Kafka there instead of starting one.")


@contextlib.contextmanager
def _kafka(bootstrap: str | None) -> Iterator[str]:
    """The addresses of the Kafka to measure with, one of our own unless there is `bootstrap`; what goes wrong inside is
    said in a line."""
    from pipeline.bench.errors import BenchFailed
    from pipeline.broker import BrokerFailed, NativeBroker
    from pipeline.broker.jars import FetchFailed
    from pipeline.broker.java import JavaMissing
    from pipeline.broker.topics import TopicTrouble

    log_to_stderr("WARNING")
    with ending_cleanly(), contextlib.ExitStack() as stack:
        try:
            yield bootstrap or stack.enter_context(NativeBroker.start()).bootstrap_servers
        except (BenchFailed, BrokerFailed, FetchFailed, JavaMissing, TopicTrouble) as error:
            raise click.ClickException(str(error)) from error


@click.group()
def bench() -> None:
    """Measurements, in ratios within one run."""


bench.add_command(backpressure)


@bench.command()
@click.option(
    "--job",
    default="sum",
    show_default=True,
    type=click.Choice(["sum", "map", "window"]),
    help="sum: a running sum and count by key. map: no key, no state. window: a count by key and minute of event time.",
)
@click.option("--records", default=1_000_000, show_default=True, type=click.IntRange(min=1))
@click.option("--parallelism", default=2, show_default=True, type=click.IntRange(1, 128))
@click.option(
    "--interval", default=1.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds between checkpoints."
)
@click.option(
    "--alignment",
    default="unaligned",
    show_default=True,
    type=click.Choice(["unaligned", "aligned"]),
    help="Of the checkpoints' barriers.",
)
@_bootstrap_option
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

    JSON of 110 bytes, 10,000 keys, 4 partitions; exactly once and at least once.
    """
    from rich.console import Console

    from pipeline.bench.throughput import ThroughputOptions, measure

    console = Console()
    with _kafka(bootstrap) as servers:
        options = ThroughputOptions(job, records, parallelism, interval, alignment)
        result = measure(servers, options, lambda text: console.print(text, highlight=False))
    console.print(_table(result))
    if json_file is not None:
        json_file.write_text(result.to_json() + "\n")


@bench.command()
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
@click.option("--parallelism", default=2, show_default=True, type=click.IntRange(1, 128))
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(min=1), help="Runs of each; medians count.")
@_bootstrap_option
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
    from rich.console import Console

    from pipeline.bench.delivery import DeliveryOptions, measure

    console = Console()
    with _kafka(bootstrap) as servers:
        options = DeliveryOptions(intervals, records, parallelism, rounds)
        result = measure(servers, options, lambda text: console.print(text, highlight=False))
    console.print(_delivery_table(result))
    if json_file is not None:
        json_file.write_text(result.to_json() + "\n")


@bench.command()
@click.option(
    "--mib",
    "sizes",
    multiple=True,
    default=(100,),
    show_default=True,
    type=click.IntRange(min=1),
    help="Encoded keys and values together; may be given several times.",
)
@click.option(
    "--value-bytes",
    default=256,
    show_default=True,
    type=click.IntRange(128, 65_536),
    help="Of each key's value, a dict, encoded.",
)
@click.option("--compression", default="lz4", show_default=True, type=click.Choice(["lz4", "zstd", "none"]))
@click.option(
    "--folder",
    type=click.Path(file_okay=False, exists=True),
    help="Where the checkpoints go for the while.  [default: the temporary directory]",
)
@json_option
def state(
    sizes: tuple[int, ...], value_bytes: int, compression: Compression, folder: str | None, json_file: Path | None
) -> None:
    """Checkpoint and restore of one subtask's keyed state on the heap, beside a busy task thread.

    Each phase has a process of its own. A stop is the time from one update of a key to the next, without waiting for a
    CPU that other processes have (in brackets: with it); "alone": with no snapshot under way.
    """
    from rich.console import Console

    from pipeline.bench.errors import BenchFailed
    from pipeline.bench.state import StateOptions, measure

    log_to_stderr("WARNING")
    progress = Console(stderr=True)
    with ending_cleanly():
        try:
            options = StateOptions(sizes, value_bytes, compression, folder)
            result = measure(options, lambda text: progress.print(text, highlight=False))
        except BenchFailed as error:
            raise click.ClickException(str(error)) from error
    console = Console() if sys.stdout.isatty() else Console(width=FILE_WIDTH)
    console.print(_state_table(result))
    if json_file is not None:
        json_file.write_text(result.to_json() + "\n")


@bench.command("state-growth")
@click.option(
    "--keys",
    multiple=True,
    default=(10_000, 100_000, 1_000_000),
    show_default=True,
    type=click.IntRange(min=1000),
    help="How many keys there are; may be given several times.",
)
@click.option(
    "--backend",
    "backends",
    multiple=True,
    default=("heap", "rocksdb"),
    show_default=True,
    type=click.Choice(["heap", "rocksdb"]),
    help="May be given several times.",
)
@click.option(
    "--value-bytes",
    default=100,
    show_default=True,
    type=click.IntRange(20, 65_536),
    help="Of each key's value, a string, encoded.",
)
@click.option(
    "--touched",
    default=0.01,
    show_default=True,
    type=click.FloatRange(0.0, 1.0, min_open=True),
    help="The share of the keys that change between the two checkpoints.",
)
@click.option("--memory", default=256, show_default=True, type=click.IntRange(min=16), help="Of RocksDB, in MiB.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, exists=True),
    help="Where the checkpoints go for the while.  [default: the temporary directory]",
)
@json_option
def state_growth(
    keys: tuple[int, ...],
    backends: tuple[str, ...],
    value_bytes: int,
    touched: float,
    memory: int,
    folder: str | None,
    json_file: Path | None,
) -> None:
    """Keyed state of one subtask as it grows: what keys, incremental checkpoints and a restore cost, with each backend.

    Each number of keys has processes of its own. A stop is the time from one update of a key to the next, without
    waiting for a CPU that other processes have.
    """
    from rich.console import Console

    from pipeline.bench.errors import BenchFailed
    from pipeline.bench.growth import measure

    log_to_stderr("WARNING")
    progress = Console(stderr=True)
    with ending_cleanly():
        try:
            result = measure(
                backends, keys, value_bytes, touched, memory << 20, folder, lambda text: progress.print(text)
            )
        except BenchFailed as error:
            raise click.ClickException(str(error)) from error
    console = Console() if sys.stdout.isatty() else Console(width=FILE_WIDTH)
    console.print(_growth_table(result))
    if json_file is not None:
        json_file.write_text(result.to_json() + "\n")


def _growth_table(report: GrowthReport) -> Table:
    from rich.table import Table

    table = Table(
        title=f"Keyed state of one subtask, values of {report.value_bytes} bytes, incremental checkpoints",
        title_justify="left",
    )
    table.add_column("")
    for result in report.results:
        table.add_column(f"{result.backend}, {result.keys:,}", justify="right", no_wrap=True)
    rows: list[tuple[str, Callable[[GrowthResult], str]]] = [
        ("keys and values, encoded", lambda r: _mib(r.encoded_bytes)),
        ("resident memory for them", lambda r: _mib(r.resident)),
        ("new keys/s", lambda r: f"{r.new_keys_per_s:,.0f}"),
        ("read-modify-writes/s, new keys", lambda r: f"{r.rmw_new:,.0f}"),
        ("read-modify-writes/s, the same keys", lambda r: f"{r.rmw_repeated:,.0f}"),
        ("the loop of that alone, rounds/s", lambda r: f"{r.loop:,.0f}"),
        ("first checkpoint: task held", lambda r: f"{r.first['held_s'] * 1e3:.1f} ms"),
        ("first checkpoint: writing", lambda r: f"{r.first['write_s']:.2f} s"),
        ("first checkpoint: size", lambda r: _mib(r.first["written"])),
        (f"after {report.touched:.1%} changed: task held", lambda r: f"{r.second['held_s'] * 1e3:.1f} ms"),
        ("… writing", lambda r: f"{r.second['write_s']:.2f} s"),
        ("… written, of the first one's size", lambda r: f"{r.second['written'] / r.first['written']:.1%}"),
        ("whole snapshot, as of a savepoint", lambda r: f"{r.whole_s:.1f} s"),
        ("updates/s beside it, of those alone", lambda r: f"{_per_s(r.beside) / _per_s(r.alone):.0%}"),
        ("longest stop beside it", lambda r: f"{r.beside.longest_held * 1e3:.1f} ms"),
        ("restore", lambda r: f"{r.restore_s:.2f} s"),
        ("peak memory of a process", lambda r: _mib(r.peak)),
    ]
    for name, shown in rows:
        table.add_row(name, *map(shown, report.results))
    return table


def _per_s(loop: Loop) -> float:
    return loop.updates / loop.seconds


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


def _state_table(report: StateReport) -> Table:
    from rich.table import Table

    table = Table(title="Keyed state on the heap of one subtask", title_justify="left")
    table.add_column("")
    for result in report.results:
        table.add_column(f"{result.mib:,} MiB", justify="right", no_wrap=True)
    long = f"{report.long_stop_s * 1e3:.0f} ms"
    rows: list[tuple[str, Callable[[StateResult], str]]] = [
        ("keys", lambda r: f"{r.keys:,}"),
        ("build", lambda r: f"{r.build_s:.1f} s"),
        ("snapshot, synchronous part", lambda r: f"{r.freeze_s * 1e3:.1f} ms"),
        ("snapshot, asynchronous part", lambda r: f"{r.write_s:.1f} s"),
        ("size on disk", lambda r: _mib(r.file_bytes)),
        ("longest stop beside it", lambda r: _stop(r.beside)),
        ("longest stop alone", lambda r: _stop(r.alone)),
        (f"stops of more than {long}, beside / alone", lambda r: f"{r.beside.long_stops} / {r.alone.long_stops}"),
        ("updates/s beside it", lambda r: f"{r.beside.updates / r.beside.seconds:,.0f}"),
        ("updates/s alone", lambda r: f"{r.alone.updates / r.alone.seconds:,.0f}"),
        ("restore", lambda r: f"{r.restore_s:.1f} s"),
        ("peak memory: build", lambda r: _mib(r.peak_build)),
        ("peak memory: snapshot", lambda r: _mib(r.peak_snapshot)),
        ("peak memory: restore", lambda r: _mib(r.peak_restore)),
    ]
    for name, shown in rows:
        table.add_row(name, *map(shown, report.results))
    return table


def _stop(loop: Loop) -> str:
    return f"{loop.longest_held * 1e3:.1f} ms ({loop.longest_stop * 1e3:.1f} ms)"


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"


def _table(result: Throughput) -> Table:
    from rich.table import Table

    from pipeline.bench.jobs import TITLES

    title = f"{TITLES[result.job]}: {result.records:,} records, parallelism {result.parallelism}"
    table = Table(title=title)
    for column in ("", "records/s", "ratio", "CPU s/M", "memory", "first out", "chk p50", "chk p95"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    loop = result.bare_loop
    table.add_row("bare loop", f"{loop.rate:,.0f}", "1.00", f"{loop.cpu_s_per_million:.1f}", "", "", "", "")
    for job in result.jobs:
        p50, p95 = (
            f"{value:.2f} s" if value is not None else "–" for value in (job.checkpoint_p50_s, job.checkpoint_p95_s)
        )
        table.add_row(
            job.delivery.replace("_", " "),
            f"{job.rate:,.0f}",
            f"{job.ratio:.2f}",
            f"{job.cpu_s_per_million:.1f}",
            f"{job.pss_peak / 2**20:,.0f} MiB",
            f"{job.first_output_s:.1f} s",
            p50,
            p95,
        )
    return table
