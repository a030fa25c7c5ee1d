"""`weir bench state` and `weir bench state-growth`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.cli.bench_options import backends_option, folder_option, json_option, measuring, mib, report, wide_console

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

    from pipeline.bench.state import StateReport, StateResult
    from pipeline.bench.state_growth import GrowthReport, GrowthResult
    from pipeline.bench.state_phases import Compression, Loop


@click.command()
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
@folder_option
@json_option
def state(
    sizes: tuple[int, ...], value_bytes: int, compression: Compression, folder: str | None, json_file: Path | None
) -> None:
    """Checkpoint and restore of one subtask's keyed state on the heap, beside a busy task thread.

    Each phase has a process of its own. A stop is the time from one update of a key to the next, without waiting for a
    CPU that other processes have (in brackets: with it); "alone": with no snapshot under way.
    """
    from rich.console import Console

    from pipeline.bench.environment import EnvironmentProbe
    from pipeline.bench.state import StateOptions, measure

    progress, probe = Console(stderr=True), EnvironmentProbe()
    with measuring():
        options = StateOptions(sizes, value_bytes, compression, folder)
        result = measure(options, lambda text: progress.print(text, highlight=False))
    wide_console().print(_state_table(result))
    report(json_file, "state", result, probe)


@click.command("state-growth")
@click.option(
    "--keys",
    multiple=True,
    default=(10_000, 100_000, 1_000_000),
    show_default=True,
    type=click.IntRange(min=1000),
    help="How many keys there are; may be given several times.",
)
@backends_option
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
@folder_option
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

    from pipeline.bench.environment import EnvironmentProbe
    from pipeline.bench.state_growth import measure

    progress, probe = Console(stderr=True), EnvironmentProbe()
    with measuring():
        result = measure(backends, keys, value_bytes, touched, memory << 20, folder, lambda text: progress.print(text))
    wide_console().print(_growth_table(result))
    report(json_file, "state-growth", result, probe)


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
        ("keys and values, encoded", lambda r: mib(r.encoded_bytes)),
        ("resident memory for them", lambda r: mib(r.resident)),
        ("new keys/s", lambda r: f"{r.new_keys_per_s:,.0f}"),
        ("read-modify-writes/s, new keys", lambda r: f"{r.rmw_new:,.0f}"),
        ("read-modify-writes/s, the same keys", lambda r: f"{r.rmw_repeated:,.0f}"),
        ("the loop of that alone, rounds/s", lambda r: f"{r.loop:,.0f}"),
        ("first checkpoint: task held", lambda r: f"{r.first['held_s'] * 1e3:.1f} ms"),
        ("first checkpoint: writing", lambda r: f"{r.first['write_s']:.2f} s"),
        ("first checkpoint: size", lambda r: mib(r.first["written"])),
        (f"after {report.touched:.1%} changed: task held", lambda r: f"{r.second['held_s'] * 1e3:.1f} ms"),
        ("… writing", lambda r: f"{r.second['write_s']:.2f} s"),
        ("… written, of the first one's size", lambda r: f"{r.second['written'] / r.first['written']:.1%}"),
        ("whole snapshot, as of a savepoint", lambda r: f"{r.whole_s:.1f} s"),
        ("updates/s beside it, of those alone", lambda r: f"{_per_s(r.beside) / _per_s(r.alone):.0%}"),
        ("longest stop beside it", lambda r: f"{r.beside.longest_held * 1e3:.1f} ms"),
        ("restore", lambda r: f"{r.restore_s:.2f} s"),
        ("peak memory of a process", lambda r: mib(r.peak)),
    ]
    for name, shown in rows:
        table.add_row(name, *map(shown, report.results))
    return table


def _per_s(loop: Loop) -> float:
    return loop.updates / loop.seconds


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
        ("size on disk", lambda r: mib(r.file_bytes)),
        ("longest stop beside it", lambda r: _stop(r.beside)),
        ("longest stop alone", lambda r: _stop(r.alone)),
        (f"stops of more than {long}, beside / alone", lambda r: f"{r.beside.long_stops} / {r.alone.long_stops}"),
        ("updates/s beside it", lambda r: f"{r.beside.updates / r.beside.seconds:,.0f}"),
        ("updates/s alone", lambda r: f"{r.alone.updates / r.alone.seconds:,.0f}"),
        ("restore", lambda r: f"{r.restore_s:.1f} s"),
        ("peak memory: build", lambda r: mib(r.peak_build)),
        ("peak memory: snapshot", lambda r: mib(r.peak_snapshot)),
        ("peak memory: restore", lambda r: mib(r.peak_restore)),
    ]
    for name, shown in rows:
        table.add_row(name, *map(shown, report.results))
    return table


def _stop(loop: Loop) -> str:
    return f"{loop.longest_held * 1e3:.1f} ms ({loop.longest_stop * 1e3:.1f} ms)"
