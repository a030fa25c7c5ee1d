"""`weir bench due-keys`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.cli.bench_options import backends_option, json_option, measuring, report, wide_console

if TYPE_CHECKING:
    from rich.table import Table

    from checkpoint.state_backends import StateBackend
    from pipeline.bench.due_keys import DueReport


@click.command("due-keys")
@click.option("--keys", default=1_000_000, show_default=True, type=click.IntRange(min=1), help="How many are due.")
@backends_option
@json_option
def due_keys(keys: int, backends: tuple[StateBackend, ...], json_file: Path | None) -> None:
    """How long a barrier waits while the windows of very many keys close at one watermark.

    A tumbling count in one subtask, without Kafka and Spark. A barrier is announced each 10 ms from another thread; the
    wait ends when the task thread has left its timers for it. What the snapshot takes then is `state-growth`'s.
    """
    from rich.console import Console

    from pipeline.bench.due_keys import measure
    from pipeline.bench.environment import EnvironmentProbe

    progress, probe = Console(stderr=True), EnvironmentProbe()
    with measuring():
        result = measure(backends, keys, lambda text: progress.print(text, highlight=False))
    wide_console().print(_table(result))
    report(json_file, "due-keys", result, probe)


def _table(report: DueReport) -> Table:
    from rich.table import Table

    table = Table(title=f"{report.results[0].keys:,} keys due at one watermark", title_justify="left")
    for column in ("", "all close in", "barriers", "a barrier waits: p50", "p99", "at most"):
        table.add_column(column, justify="right")
    for one in report.results:
        waits = [f"{1e3 * wait:.2f} ms" for wait in (one.p50, one.p99, one.longest)]
        table.add_row(str(one.backend), f"{one.close_s:.1f} s", f"{one.barriers:,}", *waits)
    return table
